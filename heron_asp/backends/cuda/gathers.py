"""Vectors are read at once only where they lie together in memory, and where such accesses may begin.

TVM 0.27 makes a copy of any vector of 4, 8 or 16 bytes one that runs by itself (InjectPTXAsyncCopy), also where its
elements lie apart in memory or begin between such places: an operand that is stored with other dimensions innermost.
Its code for vectors of 8 halves that lie apart is refused by nvcc, too. Here a thread reads such elements one by one.
What lies in shared memory is laid out by the rules, and is left as they have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heron_asp.tir import substituted


def scalar_gathers() -> Any:
    """The pass: vectorised loops that read elements apart, or misaligned ones, become plain loops."""
    from tvm import tirx
    from tvm.tirx.transform import prim_func_pass

    def transform(function: Any, _module: Any, _context: Any) -> Any:
        return tirx.PrimFunc(function.params, _plain(function.body), function.ret_type, function.attrs)

    return prim_func_pass(transform, opt_level=0, name="heron_asp.ScalarGathers")


def _plain(body: Any) -> Any:
    import tvm_ffi
    from tvm import tirx

    def loop(one: Any) -> Any:
        if one.kind != tirx.ForKind.VECTORIZED or all(_together(index, one) for index in _indices(one)):
            return one
        return tirx.For(one.loop_var, one.min, one.extent, tirx.ForKind.SERIAL, one.body, annotations=one.annotations)

    return tvm_ffi.structural_map(body, [(tirx.For, loop)])


def _indices(loop: Any) -> Iterator[Any]:
    """Of all that a loop reads in global memory."""
    import tvm_ffi
    from tvm.ir.expr import TensorLoad

    found: list[Any] = []

    def load(one: Any) -> None:
        if str(one.source.scope()) in ("", "global"):
            found.extend(one.indices)

    tvm_ffi.structural_walk(loop.body, [(TensorLoad, load)])
    yield from found


def _together(index: Any, loop: Any) -> bool:
    """Whether an index does not move with a loop, or step by step from a multiple of its length on."""
    steps = _steps(index, loop)
    return steps == 0 or (steps == 1 and _begins_whole(index, loop))


def _begins_whole(value: Any, loop: Any) -> bool:
    """Whether a value is a multiple of a loop's length where the loop begins."""
    from tvm.sym import Analyzer

    first = substituted(value, {loop.loop_var: loop.min})
    return bool(Analyzer().can_prove_equal(first % loop.extent, 0))


def _steps(value: Any, loop: Any) -> int | None:
    """By how much a value grows with each step of a loop; None if that is not known, or not always the same.

    A quotient stays, and a remainder moves on, while what is divided runs from one multiple of the loop's length to
    just before the next, and the divisor is such a multiple.
    """
    from tvm import tirx

    if isinstance(value, tirx.Var):
        return int(value.same_as(loop.loop_var))
    if isinstance(value, tirx.IntImm):
        return 0
    if not isinstance(value, tirx.Add | tirx.Sub | tirx.Mul | tirx.FloorDiv | tirx.FloorMod):
        return None
    first, second = (_steps(part, loop) for part in (value.a, value.b))
    if first is None or second is None:
        return None
    if first == second == 0:
        return 0
    if isinstance(value, tirx.Add | tirx.Sub):
        return first + second if isinstance(value, tirx.Add) else first - second
    if second or not isinstance(value.b, tirx.IntImm):
        return None
    if isinstance(value, tirx.Mul):
        return first * int(value.b)
    whole = first == 1 and int(value.b) % int(loop.extent) == 0 and _begins_whole(value.a, loop)
    return int(isinstance(value, tirx.FloorMod)) if whole else None
