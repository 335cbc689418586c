"""Recorded programs, and pieces of programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.vectors import Recorded, read_programs

DATA = Path(__file__).parents[2] / "data" / "vta"


@pytest.fixture(scope="session")
def config() -> Configuration:
    return Configuration()


@pytest.fixture(scope="session")
def functional_programs() -> list[Recorded]:
    return list(read_programs(DATA / "functional.jsonl.gz"))


@pytest.fixture(scope="session")
def timed_programs() -> list[Recorded]:
    return list(read_programs(DATA / "cycles.jsonl.gz"))


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, 1 << 16).astype(np.uint8)
