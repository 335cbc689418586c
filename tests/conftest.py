"""Shared fixtures: targets, tasks, and what a test needs of the machine."""

from __future__ import annotations

from pathlib import Path
from shutil import which

import pytest

from heron_asp.host import missing_flags
from heron_asp.operators import operator
from heron_asp.resources import targets_folder
from heron_asp.target import Target, load_target
from heron_asp.task import Task
from tests.fake_driver import compiled

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files; review them like code")


@pytest.fixture(scope="session")
def zen4() -> Target:
    return load_target(targets_folder() / "zen4.toml")


@pytest.fixture(scope="session")
def runnable(zen4: Target) -> Target:
    """A target whose programs this machine runs."""
    missing = missing_flags(zen4)
    if missing:
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    return zen4


def make_task(target: Target, name: str = "gemm", dtype: str = "u8s8s32", threads: int = 1, **shape: int) -> Task:
    return Task(operator(name, shape, dtype), target, threads)


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """Compares text with a golden file; `--update-golden` rewrites it."""

    def compare(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        assert file.exists(), f"{file} is missing: run pytest --update-golden and review it"
        assert text == file.read_text(), f"{file} differs: run pytest --update-golden and review the change"

    return compare


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CUDA driver that runs emulated programs on the host."""
    return _compiled_for_tests("driver", tmp_path_factory)


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program for it: what a cubin is to a real driver."""
    return _compiled_for_tests("program", tmp_path_factory)


def _compiled_for_tests(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not which("g++"):
        pytest.skip("the fake CUDA driver is compiled by g++")
    return compiled(name, tmp_path_factory.mktemp(name))
