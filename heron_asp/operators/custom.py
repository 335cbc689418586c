"""Operators of the user's own: an OperatorKind or a TIR PrimFunc in a Python file, named `FILE.py:NAME`."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from heron_asp.dtypes import DTYPES, DType
from heron_asp.errors import HeronError, InternalError
from heron_asp.operators.kind import Array, Exact, Expression, Extents, Layout, OperatorKind
from heron_asp.resources import suggestion


def load_kind(source: str) -> OperatorKind:
    """The operator family that a Python file defines: runs the file.

    Args:
        source: `FILE.py:NAME`; NAME is an OperatorKind or a PrimFunc in the file.

    Raises:
        HeronError: there is no such file or name, the file fails, or it is neither of the two.
    """
    file, _, name = source.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise HeronError(f"operator {source}: there is no file {path}", "FILE.py:NAME, or the name of an operator")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise HeronError(f"operator {source}: {path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise HeronError(f"operator {source}: {path.name} fails: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if found is None:
        raise HeronError(f"operator {source}: {path.name} defines no '{name}'", suggestion(name, _defined(module)))
    if not isinstance(found, OperatorKind):
        found = from_prim_func(name, found)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return replace(found, source=f"{path}:{name}", digest=digest)


def _defined(module: Any) -> list[str]:
    return [name for name, value in vars(module).items() if _is_prim_func(value) or isinstance(value, OperatorKind)]


def _is_prim_func(value: object) -> bool:
    from tvm import tirx

    return isinstance(value, tirx.PrimFunc)


def from_prim_func(
    name: str,
    function: Any,
    *,
    constant: Collection[str] = (),
    reference: Callable[..., Array] | None = None,
    summary: str = "",
) -> OperatorKind:
    """An operator family of a single shape.

    Args:
        name: its name, in C too.
        function: a PrimFunc (`te.create_prim_func`, TVMScript) with a block that adds up products of two elements;
            blocks of single elements may stand before and after it. Its last argument is written.
        constant: names of arguments that are known ahead of the call, such as weights.
        reference: makes the result, a NumPy array, from the other arguments, float64 arrays. By default the function
            as it stands, compiled without a schedule, is what programs are compared with.
        summary: one line.

    Raises:
        HeronError: it is no such function, or its types are not those of two factors and their sum.
    """
    from heron_asp.analysis import analyse_prim_func

    if not name.isidentifier() or name != name.lower():
        raise HeronError(f"an operator named '{name}'", "a lower-case C identifier")
    if not _is_prim_func(function):
        raise HeronError(f"operator {name}: a {type(function).__name__} is neither an OperatorKind nor a PrimFunc")
    block = analyse_prim_func(function, frozenset(constant))
    shapes = {str(one.name): tuple(int(extent) for extent in one.shape) for one in function.params}
    unknown = set(constant) - set(shapes)
    if unknown:
        raise HeronError(f"operator {name} has no argument '{min(unknown)}'", suggestion(min(unknown), shapes))
    triple = [*(operand.dtype for operand in block.operands), block.result.dtype]
    extents = {f"{tensor}_{dim}": extent for tensor, shape in shapes.items() for dim, extent in enumerate(shape)}
    terms = prod(axis.extent for axis in block.axes if axis.kind == "reduce")
    sums = prod(axis.extent for axis in block.axes if axis.kind == "spatial")
    return OperatorKind(
        name=name,
        keys=(),
        layouts={
            "row-major": Layout(
                {tensor: tuple(f"{tensor}_{dim}" for dim in range(len(shape))) for tensor, shape in shapes.items()}
            )
        },
        slots=tuple(_slot(name, str(one.name), str(one.dtype), triple) for one in function.params),
        constant=frozenset(constant),
        build=_not_built,
        reference=_reference(reference) if reference is not None else _Unscheduled(function, triple),
        terms=lambda _: terms,
        operations=lambda _: 2 * terms * sums,
        summary=summary or f"{name}, a PrimFunc",
        derived=lambda _: extents,
        dtype="".join(triple),
        function=function,
    )


def _not_built(*_: Any) -> Expression:
    raise InternalError("a PrimFunc is not built anew")


def _slot(name: str, tensor: str, storage: str, triple: Sequence[str]) -> int:
    """Which of the three types a tensor has."""
    for slot, dtype in enumerate(triple):
        if DTYPES[dtype].storage == storage:
            return slot
    raise HeronError(
        f"operator {name}: {tensor} has elements of {storage}, which is no type of the product ({', '.join(triple)})",
        "arguments have the type of a factor or of the sum",
    )


def _reference(function: Callable[..., Array]) -> Callable[[Extents, Sequence[Exact], str], Exact]:
    def call(_extents: Extents, arrays: Sequence[Exact], _layout: str) -> Exact:
        return np.asarray(function(*arrays), np.float64)

    return call


class _Unscheduled:
    """What a function computes as it stands."""

    def __init__(self, function: Any, triple: Sequence[str]) -> None:
        self.function = function
        self.types = [DTYPES[name] for name in triple]
        self._compiled: Any = None

    def __call__(self, _extents: Extents, arrays: Sequence[Exact], _layout: str) -> Exact:
        import tvm

        if self._compiled is None:
            self._compiled = tvm.compile(self.function, target="llvm")
        *inputs, result = self.function.params
        tensors = [
            tvm.runtime.tensor(self._stored(array, str(one.dtype)).reshape([int(extent) for extent in one.shape]))
            for array, one in zip(arrays, inputs, strict=True)
        ]
        written = tvm.runtime.empty([int(extent) for extent in result.shape], str(result.dtype))
        self._compiled(*tensors, written)
        array: Array = written.numpy()
        return array.view(self._typed(str(result.dtype)).numpy).astype(np.float64)

    def _typed(self, storage: str) -> DType:
        return next(one for one in self.types if one.storage == storage)

    def _stored(self, array: Exact, storage: str) -> Array:
        dtype = self._typed(storage)
        return dtype.stored(np.ascontiguousarray(array.astype(dtype.numpy)))
