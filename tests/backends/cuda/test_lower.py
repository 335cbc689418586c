"""From a schedule to CUDA C++: barriers between what shares bytes, and names."""

from __future__ import annotations

import numpy as np
import pytest

from heron_asp import resolve_target
from heron_asp.backends.cuda.build import build
from heron_asp.errors import HeronError
from heron_asp.operators import Operator, from_prim_func, operator
from heron_asp.task import Task
from heron_asp.terms import Term
from tests.analysis.expressions import prim_func, tensor, total


@pytest.mark.parametrize("pipeline", ["none", "registers", "async3", "fed2"])
def test_a_barrier_stands_between_operands_and_the_sums_in_their_bytes(pipeline: str) -> None:
    task = Task(operator("gemm", {"m": 128, "n": 128, "k": 128}, "f16f16f32"), resolve_target("a100"))
    pins = {Term("pipeline", ("c",)): frozenset({pipeline})}
    (candidate,) = task.space["wmma_16x16x16_f16_f32"].sample(1, np.random.default_rng(0), pins)
    source = build(task, candidate).source
    end = source.rindex("mma_sync(")
    assert "__syncthreads();" in source[end : source.index("store_matrix_sync(", end)]


def own(first: str, second: str) -> Task:
    """A product of the user's own whose operands have these names."""
    x, w = tensor(first, 40, 90, dtype="float16"), tensor(second, 90, 20, dtype="float16")
    y = total("y", (40, 20), {"k": 90}, lambda m, n, k: x[m, k].astype("float32") * w[k, n].astype("float32"))
    kind = from_prim_func("own", prim_func(x, w, y))
    return Task(Operator(kind, {}, kind.dtype, kind.layout), resolve_target("a100"))


def test_arguments_are_told_apart_however_they_are_called() -> None:
    task = own("a_ptr", "a")
    (candidate,) = task.space.sample(1, np.random.default_rng(0))
    (kernel,) = build(task, candidate).kernels
    assert sorted(kernel.arguments) == ["a", "a_ptr", "y_pad"]


def test_an_operand_that_is_called_as_what_is_written_is_refused() -> None:
    task = own("y_pad", "a")
    (candidate,) = task.space.sample(1, np.random.default_rng(0))
    with pytest.raises(HeronError, match="an operand has the name under which the result is written, y_pad") as raised:
        build(task, candidate)
    assert raised.value.hint == "rename the operand"
