"""Devices of the tests: small memories, so that random tiles meet their limits, and two rows in an entry."""

from __future__ import annotations

from heron_asp.intrinsics import Intrinsic, IntrinsicAxis, IntrinsicOperand
from heron_asp.resources import targets_folder
from heron_asp.target import Target, load_target

_SMALL = {"uop": 256, "inp": 512, "wgt": 1024, "acc": 2048}


def changed(target: Target, **capacities: int) -> Target:
    """The device with other memories, in bytes."""
    memories = [
        one.model_copy(update={"capacity": capacities.get(one.name, one.capacity)}) for one in target.machine.memories
    ]
    return Target(target.machine.model_copy(update={"memories": tuple(memories)}), target.shared, target.path)


def _small() -> Target:
    pynq = load_target(targets_folder() / "vta-pynq.toml")
    gemm = Intrinsic(
        name="gemm",
        mnemonic="GEMM",
        source="two rows, four columns",
        axes=(
            IntrinsicAxis(role="b", kind="spatial", extent=2),
            IntrinsicAxis(role="n", kind="spatial", extent=4),
            IntrinsicAxis(role="k", kind="reduce", extent=4),
        ),
        operands=(IntrinsicOperand(dtype="s8", index=("b", "k")), IntrinsicOperand(dtype="s8", index=("n", "k"))),
        result=IntrinsicOperand(dtype="s32", index=("b", "n")),
    )
    machine = pynq.machine.model_copy(update={"name": "vta-small", "intrinsics": (gemm,)})
    return changed(Target(machine, pynq.shared, pynq.path), **_SMALL)


SMALL = _small()
