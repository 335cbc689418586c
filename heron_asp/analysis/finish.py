"""What is done to a sum after it is complete, as a chain of operations, for devices that have units for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heron_asp.dtypes import DTYPES
from heron_asp.tir import loads

if TYPE_CHECKING:
    from heron_asp.analysis.facts import BlockFacts, Finish

OTHER = "other"  # what is none of the operations below


@dataclass(frozen=True)
class Done:
    """An operation on an element of the result.

    Attributes:
        operation: `add` (an element of a tensor), `plus` (a number), `max`, `min`, `shift` (right, rounded down) or
            `cast` (cut off to fewer bits); `other` stands for a whole chain that is not made of these.
        number: the other argument, where that is known.
        tensor: the summand's name.
    """

    operation: str
    number: int = 0
    tensor: str = ""


def chain_of(block: BlockFacts) -> tuple[Done, ...]:
    """What is done to each sum, in order; nothing where the sums are the result."""
    if block.finish is None:
        return ()
    found = _chain(block.finish, block.finish.stage.value)
    return found if found is not None else (Done(OTHER),)


def summand_dims(block: BlockFacts) -> dict[str, tuple[int, ...]]:
    """For each tensor that is added the dimensions of the result that its own follow; -1 for a single place."""
    if block.finish is None:
        return {}
    return {done.tensor: _dims(block.finish, done.tensor) or () for done in chain_of(block) if done.tensor}


def _chain(finish: Finish, value: Any) -> tuple[Done, ...] | None:
    """The operations from the sum up to an expression; None where there are others."""
    from tvm.ir.prim import expr as prim

    if hasattr(value, "indices"):
        return () if str(value.source.name) == finish.source else None
    if isinstance(value, prim.Cast):
        inner = _chain(finish, value.value)
        narrow = _integer_bits(str(value.ty)) < _integer_bits(str(value.value.ty))
        return (*inner, Done("cast")) if inner is not None and narrow else None
    names = {prim.Max: "max", prim.Min: "min", prim.Add: "plus", prim.RShift: "shift"}
    if type(value) not in names:
        return None
    first, second = value.a, value.b
    inner = _chain(finish, first)
    if inner is None and type(value) is not prim.RShift:
        first, second = second, first
        inner = _chain(finish, first)
    if inner is None:
        return None
    if isinstance(second, prim.IntImm):
        return (*inner, Done(names[type(value)], int(second.value)))
    if isinstance(value, prim.Add) and hasattr(second, "indices") and _dims(finish, str(second.source.name)):
        return (*inner, Done("add", tensor=str(second.source.name)))
    return None


def _dims(finish: Finish, tensor: str) -> tuple[int, ...] | None:
    """The dimensions of the result whose places a tensor is loaded from; None where it is loaded from others."""
    from tvm.ir.prim import expr as prim
    from tvm_ffi import structural_equal

    every = loads(finish.stage.value)
    place = next(load.indices for load in every if str(load.source.name) == finish.source)
    found = []
    for load in every:
        if str(load.source.name) != tensor:
            continue
        for index in load.indices:
            at = next((dim for dim, other in enumerate(place) if structural_equal(index, other)), None)
            if at is None and not (isinstance(index, prim.IntImm) and int(index.value) == 0):
                return None
            found.append(-1 if at is None else at)
    return tuple(found)


def _integer_bits(storage: str) -> int:
    """Bits of an integer; more than any has for other types, so that nothing is cut off to them."""
    bits = (8 * one.bytes for one in DTYPES.values() if one.storage == storage and one.is_integer)
    return next(bits, 1 << 10)
