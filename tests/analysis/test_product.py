"""Operators as batches of matrix products: which axes become which, and that all still compute the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from heron_asp.analysis.product import as_product
from tests.analysis.expressions import made, prim_func, read, same_results, tensor, total

Tensors = tuple[Any, ...]


@dataclass(frozen=True)
class Product:
    """An operator, and what it is as a batch of products.

    Attributes:
        tensors: makes its arguments, the result last.
        axes: names and extents, without those of the slices.
        written: the name of what is written in the end.
    """

    tensors: Callable[[], Tensors]
    axes: dict[str, int]
    written: str = "y_out"


def _turned() -> Tensors:
    x, w = tensor("x", 9, 4), tensor("w", 6, 9)
    return x, w, total("y", (4, 6), {"k": 9}, lambda m, n, k: x[k, m] * w[n, k])


def _columns_first() -> Tensors:
    x, w = tensor("x", 4, 9), tensor("w", 9, 6)
    return x, w, total("y", (6, 4), {"k": 9}, lambda n, m, k: x[m, k] * w[k, n])


def _axis_of_the_result() -> Tensors:
    """No operand has the axis b."""
    x, w = tensor("x", 4, 9), tensor("w", 9, 6)
    return x, w, total("y", (4, 3, 6), {"k": 9}, lambda m, b, n, k: x[m, k] * w[k, n])


def _rows_apart() -> Tensors:
    """Columns lie between two axes of rows, of which the longer one stays."""
    x, w = tensor("x", 4, 3, 9), tensor("w", 9, 6)
    return x, w, total("y", (4, 6, 3), {"k": 9}, lambda a, n, b, k: x[a, b, k] * w[k, n])


def _squares() -> Tensors:
    x = tensor("x", 4, 9)
    return x, total("y", (4,), {"k": 9}, lambda m, k: x[m, k] * x[m, k])


def _gram() -> Tensors:
    x = tensor("x", 4, 9)
    return x, total("y", (4, 4), {"k": 9}, lambda m, n, k: x[m, k] * x[n, k])


def _named_alike() -> Tensors:
    """Two axes that become one, a third that is called as that would be, and an operand called as the result would."""
    x, w = tensor("y_out", 4, 2, 9), tensor("w", 9, 6)
    return x, w, total("y", (4, 2, 6), {"k": 9}, lambda a, b, a_b, k: x[a, b, k] * w[k, a_b])


def _column() -> Tensors:
    x, w = tensor("x", 4, 9), tensor("w", 9)
    return x, w, total("y", (4,), {"k": 9}, lambda column, k: x[column, k] * w[k])


def _transposed() -> Tensors:
    x, w = tensor("x", 4, 9), tensor("w", 9, 6)
    y = total("y", (4, 6), {"k": 9}, lambda m, n, k: x[m, k] * w[k, n])
    return x, w, made("z", (6, 4), lambda n, m: y[m, n])


PRODUCTS = {
    "turned": Product(_turned, {"m": 4, "n": 6, "k": 9}),
    "columns first": Product(_columns_first, {"m": 4, "n": 6, "k": 9}),
    "an axis of the result": Product(_axis_of_the_result, {"b": 3, "m": 4, "n": 6, "k": 9}),
    "rows apart": Product(_rows_apart, {"b": 3, "a": 4, "n": 6, "k": 9}),
    "squares": Product(_squares, {"m": 4, "row": 1, "column": 1, "k": 9}),
    "gram": Product(_gram, {"m": 4, "n": 4, "k": 9}),
    "named alike": Product(_named_alike, {"a_b_": 8, "a_b": 6, "k": 9}, "y_out_"),
    "column": Product(_column, {"column": 4, "column_": 1, "k": 9}),
    "transposed": Product(_transposed, {"m": 4, "n": 6, "k": 9}, "z"),
}


@pytest.mark.parametrize("case", PRODUCTS.values(), ids=list(PRODUCTS))
def test_what_becomes_of_an_operator(case: Product) -> None:
    tensors = case.tensors()
    block = as_product(read(*tensors))
    assert {axis.name: axis.extent for axis in block.axes} == {block.slices: 1, **case.axes}
    assert block.finish is not None
    assert block.finish.parameter.name == case.written
    function, summed = prim_func(*tensors), block.axes[-1].name
    assert same_results(function, block, {axis.name: axis.extent + 3 for axis in block.axes[1:]})
    assert same_results(function, block, {block.slices: 4, summed: 3})  # the last slice is padding alone
