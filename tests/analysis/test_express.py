"""Operators written down again over padded extents compute what they did."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import random_operator

from heron_asp.analysis import BlockFacts, analyse
from heron_asp.errors import InternalError
from heron_asp.measure.data import cases
from heron_asp.operators import KINDS, Operator
from heron_asp.schedule.express import express
from heron_asp.schedule.start import Start, start_with
from tests.analysis.expressions import called, made, padded, prim_func, read, same_results, tensor, total

MOST_OPERATIONS = 50_000


def _blocks_of(function: Any) -> list[str]:
    """Names of the blocks, in order."""
    body = function.body.block.body
    found = []
    for statement in getattr(body, "seq", [body]):
        while hasattr(statement, "loop_var"):
            statement = statement.body
        found.append(str(statement.block.name_hint))
    return found


def _product() -> tuple[Any, ...]:
    x, w = tensor("x", 4, 9), tensor("w", 9, 6)
    return x, w, total("y", (4, 6), {"k": 9}, lambda m, n, k: x[m, k] * w[k, n])


def _started() -> tuple[Any, ...]:
    x, w = tensor("x", 4, 12), tensor("w", 9, 6)
    return x, w, total("y", (4, 6), {"k": 9}, lambda m, n, k: x[m, k + 3] * w[k, n])


def _window() -> tuple[Any, ...]:
    x, w = tensor("x", 20), tensor("w", 4, 5)
    return x, w, total("y", (6, 5), {"r": 4}, lambda i, o, r: x[i * 2 + r * 3] * w[r, o])


def _staged() -> tuple[Any, ...]:
    x, w = tensor("x", 8, 2), tensor("w", 4, 3, 5)
    around = padded(x, (1, 1), (10, 3), "around")
    return x, w, total("y", (7, 5), {"r": 4, "c": 3}, lambda i, o, r, c: around[i + r, c] * w[r, c, o])


def _squares() -> tuple[Any, ...]:
    x = tensor("x", 4, 5)
    return x, total("y", (4, 4), {"k": 5}, lambda i, j, k: x[i, k] * x[j, k])


def _ones_beyond() -> tuple[Any, ...]:
    """A stage that is no zero padding: what is beyond it must still add nothing."""
    x = tensor("x", 4, 5)
    more = made("more", (4, 2, 5), lambda i, s, k: x[i, k] + s + 1)
    return x, total("y", (4, 2), {"k": 5}, lambda i, s, k: x[i, k] * more[i, s, k])


def _finished() -> tuple[Any, ...]:
    x, w, bias = tensor("x", 4, 9), tensor("w", 9, 6), tensor("bias", 6)
    summed = total("summed", (4, 6), {"k": 9}, lambda m, n, k: x[m, k] * w[k, n])
    return x, w, bias, made("y", (6, 4), lambda n, m: summed[3 - m, n] + bias[n])


CASES: dict[str, tuple[Callable[[], tuple[Any, ...]], dict[str, int], list[str]]] = {
    "as it is": (_product, {}, ["y"]),
    "spatial": (_product, {"m": 6}, ["x_pad", "y", "y_pad"]),
    "summed": (_product, {"k": 12}, ["x_pad", "w_pad", "y"]),
    "all": (_product, {"m": 5, "n": 16, "k": 12}, ["x_pad", "w_pad", "y", "y_pad"]),
    "from a start": (_started, {"m": 5, "k": 12}, ["x_pad", "w_pad", "y", "y_pad"]),
    "a window": (_window, {"i": 9, "r": 7}, ["x_pad", "w_pad", "y", "y_pad"]),
    "a window's result": (_window, {"o": 16}, ["w_pad", "y", "y_pad"]),
    "a stage": (_staged, {}, ["x_pad", "y"]),
    "a stage further": (_staged, {"i": 8, "o": 8, "c": 4}, ["x_pad", "w_pad", "y", "y_pad"]),
    "a tensor with itself": (_squares, {}, ["x_again_pad", "y"]),
    "a tensor with itself, apart": (_squares, {"i": 6, "k": 8}, ["x_pad", "x_again_pad", "y", "y_pad"]),
    "a stage that is not zero": (_ones_beyond, {"s": 16, "k": 8}, ["x_pad", "more_pad", "y", "y_pad"]),
    "a finish": (_finished, {}, ["summed", "summed_pad"]),
    "a finish further": (_finished, {"m": 7, "n": 16}, ["x_pad", "w_pad", "summed", "summed_pad"]),
}


@pytest.mark.parametrize("name", CASES)
def test_blocks_are_made_where_they_are_needed(name: str) -> None:
    tensors, extents, blocks = CASES[name]
    assert _blocks_of(express(read(*tensors()), extents)) == blocks


@pytest.mark.parametrize("name", CASES)
def test_padding_adds_nothing(name: str) -> None:
    tensors, extents, _ = CASES[name]
    arguments = tensors()
    assert same_results(prim_func(*arguments), read(*arguments), extents)


@pytest.mark.parametrize("name", ["spatial", "a window's result", "a finish further"])
@pytest.mark.parametrize("innermost", [0, 1])
def test_a_result_may_be_made_in_another_order(name: str, innermost: int) -> None:
    tensors, extents, blocks = CASES[name]
    arguments = tensors()
    block = read(*arguments)
    axis = block.axes[innermost].name
    assert block.order(axis)[1] == axis  # behind the other spatial axis, before those that are summed
    assert _blocks_of(express(block, extents, axis)) == blocks
    assert same_results(prim_func(*arguments), block, extents, axis)


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_what_an_offset_adds_is_taken_off_by_the_start(name: str, slot: int) -> None:
    """Whichever operand has the offset, and whatever is padded."""
    from tvm.s_tir import Schedule

    tensors, extents, _ = CASES[name]
    arguments = tensors()
    block, function = read(*arguments), prim_func(*arguments)
    shifted, other = block.operands[slot], block.operands[1 - slot]
    schedule = Schedule(express(block, extents, shifts={shifted.name: 128}))
    loops = schedule.get_loops(schedule.get_sblock(block.block))
    spatial = [axis.name for axis in block.axes if axis.kind == "spatial"]
    schedule.decompose_reduction(schedule.get_sblock(block.block), loops[len(spatial)])
    start = Start(
        f"{other.name}_start", tuple(spatial.index(axis) for axis in spatial if axis in block.indexes(other.name))
    )
    made = start_with(schedule, block.block, start).mod["main"]
    rng = np.random.default_rng(0)
    *inputs, output = function.params
    values = [rng.integers(-9, 10, [int(extent) for extent in one.shape]).astype(str(one.dtype)) for one in inputs]
    shape = [int(extent) for extent in output.shape]
    begun = np.zeros([int(extent) for extent in made.params[-2].shape], np.int32)
    found = called(made, [*values, begun], shape, "int32")
    assert (found == called(function, values, shape, "int32")).all()


def test_an_order_of_its_own_is_a_further_block() -> None:
    block = read(*_product())
    assert _blocks_of(express(block, {}, "n")) == ["y"]
    assert _blocks_of(express(block, {}, "m")) == ["y", "y_pad"]


def test_what_would_add_something_is_refused() -> None:
    x, w = tensor("x", 12), tensor("w", 12)
    block = read(x, w, total("y", (5,), {"r": 8}, lambda i, r: x[i + r] * w[i + r]))
    assert express(block, {"i": 8}) is not None
    with pytest.raises(InternalError, match="axis r of 8 steps cannot have 9"):
        express(block, {"r": 9})
    with pytest.raises(InternalError, match="axis m of 4 steps cannot have 3"):
        express(read(*_product()), {"m": 3})


def _wrong(made: Operator, block: BlockFacts, extents: dict[str, int], innermost: str) -> str | None:
    """What is wrong with what the operator computes over some extents, made with an axis innermost."""
    case, result = cases(made)[0], made.result
    inputs = [spec.dtype.stored(case.inputs[spec.name]) for spec in made.inputs]
    found = called(express(block, extents, innermost), inputs, result.shape, result.dtype.storage)
    return case.error(found.view(result.dtype.numpy))


@given(st.sampled_from(sorted(KINDS)), st.randoms(use_true_random=False), st.integers(0, 6))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_operators_compute_their_reference_over_any_extents(name: str, random: Random, most: int) -> None:
    made = random_operator(name, random, MOST_OPERATIONS)
    block = analyse(made)
    extents = {axis.name: axis.extent + random.randint(0, most) for axis in block.axes if not block.endless(axis)}
    innermost = random.choice([axis.name for axis in block.axes if axis.kind == "spatial"])
    assert _wrong(made, block, extents, innermost) is None, (made.label, extents, innermost)
