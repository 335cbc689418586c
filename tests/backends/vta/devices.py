"""Devices of the tests: small memories, so that random tiles meet their limits, and two rows in an entry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from heron_asp.target import Target, load_target

TINY = load_target(Path(__file__).parents[3] / "benchmarks" / "vta_small.toml")


def changed(target: Target, **capacities: int) -> Target:
    """The device with other memories, in bytes."""
    memories = [
        one.model_copy(update={"capacity": capacities.get(one.name, one.capacity)}) for one in target.machine.memories
    ]
    return replace(target, machine=target.machine.model_copy(update={"memories": tuple(memories)}))


SMALL = changed(TINY, inp=512, wgt=1024, acc=2048)
