"""From a target's numbers to a device: what is wrong is told by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.machine import numbers_of
from heron_asp.errors import HeronError
from heron_asp.resources import targets_folder
from heron_asp.target import load_target
from tests.backends.vta.devices import SMALL


def test_the_default_device_is_the_one_that_was_compared() -> None:
    numbers = numbers_of(load_target(targets_folder() / "vta-pynq.toml"))
    assert numbers.config == Configuration()
    assert numbers.measures.startswith("cycles, model of the RTL at 64-bit bus, within")
    assert numbers.operations == 2 * 16 * 16 * 100e6


@pytest.mark.parametrize("name", ["vta-ultra96", "vta-de10", "vta-32"])
def test_others_are_estimates(name: str) -> None:
    assert numbers_of(load_target(targets_folder() / f"{name}.toml")).measures.startswith("cycles, estimate")


def test_rows_and_block_are_the_intrinsic_s() -> None:
    config = numbers_of(SMALL).config
    assert (config.batch, config.block) == (2, 4)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"inp"\ncapacity = 32_768', '"inp"\ncapacity = 30_000', "memory 'inp' is 30000; on VTA it is a power of two"),
        ('"wgt"\ncapacity = 262_144', '"wgt"\ncapacity = 128', "memory 'wgt': the memory is smaller than"),
        ('name = "uop"', 'name = "micro"', "memory 'uop' is missing"),
        ("bus_bits = 64", "bus_bits = 96", "bus_bits is 96; the memory bus has 64, 128, 256 or 512 bits"),
        ("burst_beats = 256", "", "key 'limits.burst_beats' is missing"),
        ("distance = 3", "distance = 30", "limits.distance = 30 is not in 1..8"),
        ("distance = 3", "distanze = 3", "unknown key 'limits.distanze'"),
    ],
)
def test_wrong_numbers(before: str, after: str, message: str, tmp_path: Path) -> None:
    text = (targets_folder() / "vta-pynq.toml").read_text()
    assert before in text
    file = tmp_path / "mine.toml"
    file.write_text(text.replace(before, after))
    with pytest.raises(HeronError, match=message):
        load_target(file)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            'role = "k", kind = "reduce", extent = 32',
            'role = "k", kind = "reduce", extent = 16',
            "is no micro-op of VTA",
        ),
        ('index = ["n", "k"]', 'index = ["k", "n"]', "is no micro-op of VTA"),
        ("extent = 32", "extent = 24", "the extent of n and k is 24; on VTA it is a power of two"),
    ],
)
def test_an_intrinsic_that_is_none(before: str, after: str, message: str, tmp_path: Path) -> None:
    text = (targets_folder() / "vta-32.toml").read_text()
    assert before in text
    file = tmp_path / "mine.toml"
    file.write_text(text.replace(before, after))
    with pytest.raises(HeronError, match=message):
        load_target(file)
