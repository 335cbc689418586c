"""Small tensor expressions that tests read, and what compiled ones compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from bounds import checking

from heron_asp.analysis import BlockFacts, analyse_prim_func
from heron_asp.analysis.merge import simplify
from heron_asp.schedule.express import express

Array = npt.NDArray[Any]


def tensor(name: str, *shape: int, dtype: str = "int32") -> Any:
    """An argument."""
    from tvm import te

    return te.placeholder(shape, dtype, name=name)


def made(name: str, shape: Sequence[int], element: Callable[..., Any]) -> Any:
    """A tensor by its elements."""
    from tvm import te

    return te.compute(tuple(shape), element, name=name)


def total(name: str, shape: Sequence[int], over: Mapping[str, int], element: Callable[..., Any]) -> Any:
    """A tensor by what its elements add up; `element` takes the axes of `shape`, then those of `over`."""
    from tvm import te

    axes = [te.reduce_axis((0, extent), name=axis) for axis, extent in over.items()]
    names = list(element.__code__.co_varnames[: len(shape)])
    return te.compute(tuple(shape), lambda *at: te.sum(element(*at, *axes), axis=axes), name=name, varargs_names=names)


def padded(x: Any, before: Sequence[int], shape: Sequence[int], name: str) -> Any:
    """The tensor with zeros around it."""
    from tvm import te, tirx

    def element(*at: Any) -> Any:
        inner = [index - start for index, start in zip(at, before, strict=True)]
        inside = [
            test for index, extent in zip(inner, x.shape, strict=True) for test in (index >= 0, index < int(extent))
        ]
        return te.if_then_else(tirx.all(*inside), x[tuple(inner)], tirx.const(0, x.dtype))

    return te.compute(tuple(shape), element, name=name, varargs_names=[f"i{dim}" for dim in range(len(shape))])


def prim_func(*tensors: Any) -> Any:
    """The function that computes the last of some tensors from the others."""
    from tvm import te

    return te.create_prim_func(list(tensors))


def read(*tensors: Any, constant: Sequence[str] = ()) -> BlockFacts:
    """The facts of an operator over plain axes."""
    return analyse_prim_func(prim_func(*tensors), frozenset(constant))


def read_simplified(*tensors: Any, constant: Sequence[str] = ()) -> BlockFacts:
    """The facts of an operator with as few axes as its tensors allow."""
    return simplify(read(*tensors, constant=constant))


def parsed(text: str) -> Any:
    """A function written as TVMScript: what no tensor expression makes."""
    from tvm.script import from_source

    return from_source("# from tvm.script import tirx as T\n@T.prim_func(s_tir=True)\n" + text)


def called(function: Any, arguments: Sequence[Array], shape: Sequence[int], dtype: str) -> Array:
    """What an unscheduled function computes; arguments take the extents of its parameters.

    Raises:
        RuntimeError: it reads or writes outside of a tensor.
    """
    import tvm
    from tvm.target import Target

    with checking():
        compiled = tvm.compile(function, target=Target({"kind": "llvm"}))["main"]
    given = [
        tvm.runtime.tensor(np.ascontiguousarray(array).reshape([int(extent) for extent in parameter.shape]))
        for array, parameter in zip(arguments, function.params, strict=False)
    ]
    garbage = np.full([int(extent) for extent in function.params[-1].shape], 90, dtype)
    result = tvm.runtime.tensor(garbage)
    compiled(*given, result)
    array: Array = result.numpy().reshape(tuple(shape))
    return array


def same_results(
    function: Any, block: BlockFacts, extents: Mapping[str, int] | None = None, innermost: str = ""
) -> bool:
    """Whether an operator, expressed anew over some extents, still computes what its function does."""
    rng = np.random.default_rng(0)
    *inputs, output = function.params
    arguments = [rng.integers(-9, 10, [int(extent) for extent in one.shape]).astype(str(one.dtype)) for one in inputs]
    shape, dtype = [int(extent) for extent in output.shape], str(output.dtype)
    expected = called(function, arguments, shape, dtype)
    return bool((called(express(block, extents, innermost), arguments, shape, dtype) == expected).all())
