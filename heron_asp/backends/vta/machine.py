"""From a target's numbers to a configuration of VTA."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heron_asp.backends.vta.config import Configuration
from heron_asp.dtypes import DTYPES
from heron_asp.errors import HeronError

if TYPE_CHECKING:
    from heron_asp.intrinsics import Intrinsic
    from heron_asp.target import Target

_MEMORIES = ("uop", "inp", "wgt", "acc")
_LIMITS = ("megahertz", "bus_bits", "burst_beats")
_COMPARED = Configuration()  # of the RTL that the cycle model was compared with
_ERROR = 0.6  # percent at most, on whole programs


@dataclass(frozen=True)
class Numbers:
    """A device.

    Attributes:
        config: sizes and field widths.
        hertz: cycles a second.
        intrinsic: name of the instruction that multiplies.
    """

    config: Configuration
    hertz: float
    intrinsic: str

    @property
    def measures(self) -> str:
        """What a number of cycles is."""
        if self.config == _COMPARED:
            bus = _COMPARED.bus_bits
            return f"cycles, model of the RTL at {bus}-bit bus, within {_ERROR} % of it on whole programs"
        return "cycles, estimate: the model of the RTL with numbers that it was not compared with"

    @property
    def operations(self) -> float:
        """Operations a second at one micro-op a cycle."""
        return 2.0 * self.config.batch * self.config.block**2 * self.hertz


def numbers_of(target: Target) -> Numbers:
    """The device that a target describes.

    Raises:
        HeronError: with the key that is missing or wrong.
    """
    where = str(target.path)
    limits, memories = target.machine.limits, {one.name: one.capacity for one in target.machine.memories}
    if target.machine.compiler is not None:
        raise HeronError(f"{where}: VTA's programs are not compiled by TVM", "leave out [compiler]")
    for name in _MEMORIES:
        if name not in memories:
            raise HeronError(f"{where}: memory '{name}' is missing", f"VTA has the memories {', '.join(_MEMORIES)}")
    for name in memories:
        if name not in _MEMORIES:
            raise HeronError(f"{where}: VTA has no memory '{name}'", f"its memories are {', '.join(_MEMORIES)}")
    for name in _LIMITS:
        if name not in limits:
            raise HeronError(
                f"{where}: limits.{name} is missing; the backend of VTA reads it", "its family names it, too"
            )
    if len(target.intrinsics) != 1:
        raise HeronError(f"{where}: {len(target.intrinsics)} intrinsics; VTA has one, which multiplies")
    (intrinsic,) = target.intrinsics.values()
    batch, block = _entry(intrinsic, where)
    config = _configuration(
        {
            **{f"log_{name}_buff_size": _log2(memories[name], f"{where}: memory '{name}'") for name in _MEMORIES},
            "log_inp_width": _width(intrinsic.operands[0].dtype),
            "log_wgt_width": _width(intrinsic.operands[1].dtype),
            "log_acc_width": _width(intrinsic.result.dtype),
            "log_batch": _log2(batch, f"{where}: intrinsic '{intrinsic.name}': the extent of b"),
            "log_block": _log2(block, f"{where}: intrinsic '{intrinsic.name}': the extent of n and k"),
            "bus_bits": limits["bus_bits"],
            "burst_beats": limits["burst_beats"],
        },
        where,
    )
    return Numbers(config, limits["megahertz"] * 1e6, intrinsic.name)


def _configuration(numbers: Mapping[str, int], where: str) -> Configuration:
    """A configuration whose errors speak of a target's file, not of the configuration's fields."""
    try:
        return Configuration.from_numbers(numbers, where)
    except HeronError as error:
        said = re.sub(r"log_(\w+)_buff_size( = \d+)?", r"memory '\1'", error.message)
        said = re.sub(r"log_(\w+)_width( = \d+)?", r"the type of \1", said)
        said = re.sub(r"log_(batch|block)\b", r"the intrinsic's \1, as a power of two,", said)
        raise HeronError(said, "capacities, limits.bus_bits and burst_beats, and the intrinsic say it") from None


def _entry(intrinsic: Intrinsic, where: str) -> tuple[int, int]:
    """Rows and columns of an entry: a micro-op adds b x k times the transpose of n x k to b x n."""
    extents = dict(intrinsic.extents)
    rows = ("b",) if "b" in extents else ()
    indices = [operand.index for operand in (*intrinsic.operands, intrinsic.result)]
    if indices != [(*rows, "k"), ("n", "k"), (*rows, "n")] or extents["n"] != extents["k"]:
        raise HeronError(
            f"{where}: intrinsic '{intrinsic.name}' is no micro-op of VTA",
            "operands [b,] k and n, k; result [b,] n; n and k of one extent",
        )
    return extents.get("b", 1), extents["n"]


def _log2(number: int, what: str) -> int:
    if number & (number - 1):
        raise HeronError(
            f"{what} is {number}; on VTA it is a power of two",
            f"{1 << number.bit_length() - 1} or {1 << number.bit_length()}",
        )
    return number.bit_length() - 1


def _width(dtype: str) -> int:
    return (8 * DTYPES[dtype].bytes).bit_length() - 1
