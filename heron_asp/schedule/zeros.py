"""Skips work on zero padding: what a loop of a window adds up there is nothing but zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heron_asp.errors import InternalError


@dataclass(frozen=True)
class Window:
    """A dimension of an operand that is zero outside of some rows, and what moves through it.

    Attributes:
        strides: by place among the block's loops, how far a step moves along the dimension.
        start: where the block begins to read.
        low: the first row that is not padding.
        high: the first one that is padding again.
        span: how many rows an execution of the block reaches over.
    """

    strides: tuple[tuple[int, int], ...]
    start: int
    low: int
    high: int
    span: int


def skip_zeros(schedule: Any, block: str, skips: Sequence[tuple[Any, Window]]) -> Any:
    """A schedule in which steps of some loops are left out where all that they read is padding.

    Args:
        schedule: of an operator; it is finished: what is skipped is no primitive of TVM's.
        block: name of the block that adds up.
        skips: loops, each with a window; what is read in a step of the loop decides.
    """
    from tvm.s_tir import Schedule

    module = schedule.mod
    for loop, window in skips:
        module = _skipped(module, block, schedule.get(loop).loop_var, window)
    return Schedule(module)


def _skipped(module: Any, block: str, variable: Any, window: Window) -> Any:
    import tvm_ffi
    from tvm import IRModule, s_tir, tirx

    function = module["main"]

    def guarded(loop: Any) -> Any:
        if not loop.loop_var.same_as(variable):
            return loop
        body = tirx.IfThenElse(_reads(loop.body, block, window), loop.body, None)
        return tirx.For(
            loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations, loop.step
        )

    outer = function.body.block
    body = tvm_ffi.structural_map(outer.body, [(tirx.For, guarded)])
    root = s_tir.SBlock(
        outer.iter_vars, outer.reads, outer.writes, outer.name_hint, body, outer.init, outer.alloc_buffers,
        outer.match_buffers, outer.annotations,
    )  # fmt: skip
    realize = s_tir.SBlockRealize(function.body.iter_values, function.body.predicate, root)
    made = tirx.PrimFunc(function.params, realize, function.ret_type, function.attrs)
    return IRModule({name: made if name.name_hint == "main" else one for name, one in module.functions.items()})


def _reads(body: Any, block: str, window: Window) -> Any:
    """Whether some row that a step reads is no padding."""
    from tvm import tirx
    from tvm.ir import Range
    from tvm.sym import Analyzer

    from heron_asp.tir import substituted

    realize, loops = _find(body, block)
    first = {loop.loop_var: tirx.const(0, "int32") for loop in loops}
    last = {loop.loop_var: tirx.const(int(loop.extent) - 1, "int32") for loop in loops}
    index: Any = tirx.const(window.start, "int32")
    for place, stride in window.strides:
        index = index + realize.iter_values[place] * stride
    analyzer = Analyzer()
    for loop in loops:
        analyzer.bind(loop.loop_var, Range(0, loop.extent))
    lowest, highest = (analyzer.simplify(substituted(index, by)) for by in (first, last))
    return tirx.all(highest + (window.span - 1) >= window.low, lowest < window.high)


def _find(body: Any, block: str) -> tuple[Any, list[Any]]:
    """The block that adds up under a statement, and the loops between."""
    import tvm_ffi
    from tvm import s_tir, tirx

    found: list[Any] = []
    loops: list[Any] = []
    tvm_ffi.structural_walk(
        body,
        [
            (s_tir.SBlockRealize, lambda one: found.append(one) if _is(one, block) else None),
            (tirx.For, loops.append),
        ],
    )
    if not found:
        raise InternalError(f"a loop that should skip padding does not surround block '{block}'")
    return found[0], loops


def _is(realize: Any, block: str) -> bool:
    """Whether it is the block, as it was or with an instruction in it."""
    return str(realize.block.name_hint) in (block, f"{block}_o", f"{block}_update", f"{block}_update_o")
