"""Programs that check each of their accesses: an index outside of its tensor ends the call with an error.

A write beyond a tensor mostly leaves the result right and spoils what lies beside it, so that comparing results does
not find it. TVM has a pass for that, InstrumentBoundCheckers, which adds nothing in TVM 0.27; this one takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from heron_asp.measure.kernel import build, use_threads
from heron_asp.schedule.replay import Program
from heron_asp.task import Task

_CHILDREN = (
    "args",
    "indices",
    "a",
    "b",
    "value",
    "base",
    "stride",
    "condition",
    "true_value",
    "false_value",
    "vectors",
)


def outside(task: Task, program: Program, inputs: dict[str, npt.NDArray[Any]]) -> str:
    """What a program accesses outside of its tensors: a message, empty where there is nothing.

    Runs the program in this process.
    """
    with checking():
        built = build(task.operator, program, task.target, task.threads)
    use_threads(task.threads)
    try:
        built.run(inputs)
    except RuntimeError as error:
        return str(error).strip().splitlines()[-1]
    return ""


@contextmanager
def checking() -> Iterator[None]:
    """Compiles with the checks."""
    import tvm
    from tvm.s_tir import transform

    before = transform.InstrumentBoundCheckers
    transform.InstrumentBoundCheckers = _pass
    try:
        with tvm.transform.PassContext(config={"tirx.instrument_bound_checkers": True}):
            yield
    finally:
        transform.InstrumentBoundCheckers = before


def _pass() -> Any:
    from tvm.tirx import transform

    return transform.prim_func_pass(lambda function, _module, _context: checked(function), opt_level=0)


def checked(function: Any) -> Any:
    """A lowered function with a check before each statement that stores."""
    import tvm_ffi
    from tvm import tirx

    views = _views(function)

    def store(statement: Any) -> Any:
        loads = [*_loads(statement.value, []), *(one for index in statement.indices for one in _loads(index, []))]
        tests = [_test(statement.buffer, statement.indices, [], views)]
        tests += [_test(load.source, load.indices, guards, views) for load, guards in loads]
        found = [one for one in tests if one is not None]
        return tirx.SeqStmt([*found, statement]) if found else statement

    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.BufferStore, store)]))


def _loads(value: Any, guards: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """The loads in an expression, each with the conditions under which it is made."""
    from tvm import tirx
    from tvm.ir.expr import TensorLoad

    if isinstance(value, TensorLoad):
        yield value, guards
    if getattr(getattr(value, "op", None), "name", "") == "prim.if_then_else":
        condition, then, otherwise = value.args
        yield from _loads(condition, guards)
        yield from _loads(then, [*guards, condition])
        yield from _loads(otherwise, [*guards, tirx.Not(condition)])
        return
    for name in _CHILDREN:
        found = getattr(value, name, None)
        if found is None or isinstance(found, int | float | str):
            continue
        for child in found if name in ("args", "indices") else [found]:
            yield from _loads(child, guards)


def _views(function: Any) -> dict[str, int]:
    """Elements of the tensors of which others are views, by the views' names: an index of a view counts from there."""
    import numpy as np
    import tvm_ffi
    from tvm import tirx

    found: dict[str, int] = {}

    def declared(one: Any) -> None:
        owner = one.data.args[0] if len(getattr(one.data, "args", ())) == 1 else None
        if owner is not None and hasattr(owner, "shape") and len(one.buffer.shape) == 1:
            size = np.dtype(str(owner.dtype)).itemsize * math.prod(map(int, owner.shape))
            found[str(one.buffer.name)] = size // np.dtype(str(one.buffer.dtype)).itemsize

    tvm_ffi.structural_walk(function.body, [(tirx.DeclBuffer, declared)])
    return found


def _test(buffer: Any, indices: Any, guards: list[Any], views: Mapping[str, int]) -> Any:
    """The check of an access; None where it is proven."""
    from tvm import tirx
    from tvm.ir import StringImm
    from tvm.sym import Analyzer

    analyzer = Analyzer()
    inside = []
    for index, extent in zip(indices, buffer.shape, strict=True):
        for end in _ends(index):
            inside += [tirx.all(end >= 0, end < views.get(str(buffer.name), extent))]
    condition = tirx.all(*inside)
    for guard in guards:
        condition = tirx.Or(tirx.Not(guard), condition)
    condition = analyzer.simplify(condition)
    if analyzer.can_prove(condition):
        return None
    said = f"{buffer.name}{list(indices)} is outside of its {list(buffer.shape)}"
    return tirx.AssertStmt(condition, StringImm("RuntimeError"), [StringImm(said)])  # not as TVM's docstring has it


def _ends(index: Any) -> list[Any]:
    """The first and the last element of an index that may be a vector."""
    from tvm import tirx

    if isinstance(index, tirx.Ramp):
        return [index.base, index.base + index.stride * (int(index.lanes) - 1)]
    if isinstance(index, tirx.Broadcast):
        return _ends(index.value)
    if "x" in str(getattr(index, "ty", "")):
        raise NotImplementedError(f"the index {index} is neither a number nor a ramp")
    return [index]
