"""Fewer axes and dimensions for the same operator: what vanishes, what becomes one, and what must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from heron_asp.analysis import analyse
from heron_asp.operators import operator
from tests.analysis.expressions import made, padded, prim_func, read_simplified, same_results, tensor, total

Tensors = tuple[Any, ...]


@dataclass(frozen=True)
class Merge:
    """An operator, and what is left of it.

    Attributes:
        tensors: makes its arguments, the result last.
        axes: names and extents that are left.
        shapes: of the operands and the result, as the block sees them.
    """

    tensors: Callable[[], Tensors]
    axes: dict[str, int]
    shapes: tuple[tuple[int, ...], ...]


def _gemm(m: int = 4, n: int = 6, k: int = 9) -> Tensors:
    x, w = tensor("x", m, k), tensor("w", k, n)
    return x, w, total("y", (m, n), {"k": k}, lambda m, n, k: x[m, k] * w[k, n])


def _dense() -> Tensors:
    """Neighbours of both kinds that walk together."""
    x, w = tensor("x", 2, 3, 4, 5), tensor("w", 4, 5, 6, 7)
    y = total("y", (2, 3, 6, 7), {"r": 4, "s": 5}, lambda a, b, c, d, r, s: x[a, b, r, s] * w[r, s, c, d])
    return x, w, y


def _flat() -> Tensors:
    """Two axes within one dimension, as one axis would walk."""
    x, w = tensor("x", 3, 20), tensor("w", 20)
    return x, w, total("y", (3,), {"r": 4, "s": 5}, lambda m, r, s: x[m, r * 5 + s] * w[r * 5 + s])


def _gap() -> Tensors:
    """Two axes within one dimension, with a gap between their rounds."""
    x, w = tensor("x", 3, 24), tensor("w", 24)
    return x, w, total("y", (3,), {"r": 4, "s": 5}, lambda m, r, s: x[m, r * 6 + s] * w[r * 6 + s])


def _batch() -> Tensors:
    x, w = tensor("x", 2, 4, 9), tensor("w", 2, 9, 6)
    return x, w, total("y", (2, 4, 6), {"k": 9}, lambda b, m, n, k: x[b, m, k] * w[b, k, n])


def _units() -> Tensors:
    x, w = tensor("x", 1, 4, 1, 9), tensor("w", 1, 9, 1)
    y = total("y", (1, 4, 1), {"q": 1, "k": 9}, lambda a, m, n, q, k: x[a, m, q, k] * w[q, k, n])
    return x, w, y


def _only_units() -> Tensors:
    x, w = tensor("x", 1, 1), tensor("w", 1, 1)
    return x, w, total("y", (1, 1), {"k": 1}, lambda m, n, k: x[m, k] * w[k, n])


def _scaled() -> Tensors:
    """An operand of a single element."""
    x, w = tensor("x", 1), tensor("w", 4, 9)
    return x, w, total("y", (4,), {"k": 9}, lambda m, k: x[0] * w[m, k])


def _window(stride: int = 1, dilation: int = 1) -> Tensors:
    """Windows over rows of channels."""
    x, w = tensor("x", 20, 3), tensor("w", 4, 3, 5)
    y = total("y", (5, 5), {"r": 4, "c": 3}, lambda i, o, r, c: x[i * stride + r * dilation, c] * w[r, c, o])
    return x, w, y


def _padded_window() -> Tensors:
    x, w = tensor("x", 8, 3), tensor("w", 4, 3, 5)
    around = padded(x, (1, 0), (10, 3), "around")
    return x, w, total("y", (7, 5), {"r": 4, "c": 3}, lambda i, o, r, c: around[i + r, c] * w[r, c, o])


def _padded_channels() -> Tensors:
    """The rows of the padded tensor are no rows of the argument."""
    x, w = tensor("x", 8, 2), tensor("w", 4, 3, 5)
    around = padded(x, (1, 1), (10, 3), "around")
    return x, w, total("y", (7, 5), {"r": 4, "c": 3}, lambda i, o, r, c: around[i + r, c] * w[r, c, o])


def _start() -> Tensors:
    """The sum begins inside of the tensor; whole rows are left out."""
    x, w = tensor("x", 10, 3), tensor("w", 4, 3)
    return x, w, total("y", (2,), {"r": 4, "c": 3}, lambda i, r, c: x[i + r + 2, c] * w[r, c])


def _part_of_rows() -> Tensors:
    """Of each row only a part is read."""
    x, w = tensor("x", 4, 5), tensor("w", 4, 3)
    return x, w, total("y", (1,), {"r": 4, "c": 3}, lambda _, r, c: x[r, c] * w[r, c])


def _part_from_start() -> Tensors:
    """Some elements of a single row, and some whole rows."""
    x, w = tensor("x", 6, 9), tensor("w", 8, 5)
    return x, w, total("y", (5,), {"k": 4}, lambda n, k: x[2, k + 3] * w[k + 1, n])


def _part_of_padded() -> Tensors:
    x, w = tensor("x", 3, 4), tensor("w", 4, 5)
    around = padded(x, (1, 1), (5, 6), "around")
    return x, w, total("y", (5,), {"k": 4}, lambda n, k: around[3, k + 2] * w[k, n])


def _read_twice() -> Tensors:
    """One of the two loads would not know the argument under other extents."""
    x, w = tensor("x", 8, 3), tensor("w", 4, 3)
    both = made("both", (8, 3), lambda i, c: x[i, c] + x[0, 0])
    return x, w, total("y", (5,), {"r": 4, "c": 3}, lambda i, r, c: both[i + r, c] * w[r, c])


def _squares() -> Tensors:
    x = tensor("x", 3, 4, 5)
    return x, total("y", (3,), {"r": 4, "c": 5}, lambda m, r, c: x[m, r, c] * x[m, r, c])


def _finished(shape: tuple[int, ...], element: Callable[..., Any]) -> Tensors:
    x, w, bias = tensor("x", 2, 3, 9), tensor("w", 9, 6), tensor("bias", 6)
    summed = total("summed", (2, 3, 6), {"k": 9}, lambda a, b, n, k: x[a, b, k] * w[k, n])
    return x, w, bias, made("y", shape, lambda *i: element(summed, bias, *i))


def _unit_finished() -> Tensors:
    x, w = tensor("x", 1, 3, 9), tensor("w", 9, 6)
    summed = total("summed", (1, 3, 6), {"k": 9}, lambda a, b, n, k: x[a, b, k] * w[k, n])
    return x, w, made("y", (1, 3, 6), lambda a, b, n: summed[a, b, n] * 2)


CASES = {
    "nothing to merge": Merge(_gemm, {"m": 4, "n": 6, "k": 9}, ((4, 9), (9, 6), (4, 6))),
    "rows and columns": Merge(_dense, {"a_b": 6, "c_d": 42, "r_s": 20}, ((6, 20), (20, 42), (6, 42))),
    "one dimension": Merge(_flat, {"m": 3, "r_s": 20}, ((3, 20), (20,), (3,))),
    "a gap": Merge(_gap, {"m": 3, "r": 4, "s": 5}, ((3, 24), (24,), (3,))),
    "a batch of products": Merge(_batch, {"b": 2, "m": 4, "n": 6, "k": 9}, ((2, 4, 9), (2, 9, 6), (2, 4, 6))),
    "axes of one step": Merge(_units, {"m": 4, "k": 9}, ((4, 9), (9,), (4,))),
    "one of each kind stays": Merge(_only_units, {"n": 1, "k": 1}, ((1,), (1, 1), (1,))),
    "a single element": Merge(_scaled, {"m": 4, "k": 9}, ((1,), (4, 9), (4,))),
    "a window's rows": Merge(_window, {"i": 5, "o": 5, "r_c": 12}, ((60,), (12, 5), (5, 5))),
    "at a stride": Merge(lambda: _window(3), {"i": 5, "o": 5, "r_c": 12}, ((60,), (12, 5), (5, 5))),
    "dilated": Merge(lambda: _window(1, 2), {"i": 5, "o": 5, "r": 4, "c": 3}, ((20, 3), (4, 3, 5), (5, 5))),
    "padded rows": Merge(_padded_window, {"i": 7, "o": 5, "r_c": 12}, ((30,), (12, 5), (7, 5))),
    "padded channels": Merge(_padded_channels, {"i": 7, "o": 5, "r": 4, "c": 3}, ((10, 3), (4, 3, 5), (7, 5))),
    "a start": Merge(_start, {"i": 2, "r_c": 12}, ((30,), (12,), (2,))),
    "parts of rows": Merge(_part_of_rows, {"_": 1, "r": 4, "c": 3}, ((4, 3), (4, 3), (1,))),  # no row of memory
    "parts from a start": Merge(_part_from_start, {"n": 5, "k": 4}, ((4,), (4, 5), (5,))),
    "parts of what is padded": Merge(_part_of_padded, {"n": 5, "k": 4}, ((4,), (4, 5), (5,))),
    "an argument read twice": Merge(_read_twice, {"i": 5, "r": 4, "c": 3}, ((8, 3), (4, 3), (5,))),
    "a tensor with itself": Merge(_squares, {"m": 3, "r": 4, "c": 5}, ((3, 4, 5), (3, 4, 5), (3,))),
    "finished in place": Merge(
        lambda: _finished((2, 3, 6), lambda y, bias, a, b, n: y[a, b, n] + bias[n]),
        {"a_b": 6, "n": 6, "k": 9},
        ((6, 9), (9, 6), (6, 6)),
    ),
    "finished by rows": Merge(
        lambda: _finished((2, 3, 6), lambda y, bias, a, b, n: y[a, b, n] + bias[b]),
        {"a": 2, "b": 3, "n": 6, "k": 9},
        ((2, 3, 9), (9, 6), (2, 3, 6)),
    ),
    "finished elsewhere": Merge(
        lambda: _finished((3, 2, 6), lambda y, bias, b, a, n: y[a, b, n] + bias[n]),
        {"a": 2, "b": 3, "n": 6, "k": 9},
        ((2, 3, 9), (9, 6), (2, 3, 6)),
    ),
    "finished in part": Merge(
        lambda: _finished((2, 2, 6), lambda y, bias, a, b, n: y[a, b, n] + bias[n]),
        {"a": 2, "b": 3, "n": 6, "k": 9},
        ((2, 3, 9), (9, 6), (2, 3, 6)),
    ),
    "a unit of what is finished": Merge(_unit_finished, {"b": 3, "n": 6, "k": 9}, ((3, 9), (9, 6), (3, 6))),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_left(name: str) -> None:
    case = CASES[name]
    block = read_simplified(*case.tensors())
    assert block.extents == case.axes
    assert tuple(one.shape for one in (*block.operands, block.result)) == case.shapes


@pytest.mark.parametrize("name", CASES)
def test_it_computes_the_same(name: str) -> None:
    tensors = CASES[name].tensors()
    assert same_results(prim_func(*tensors), read_simplified(*tensors))


@pytest.mark.parametrize(
    ("name", "layout", "shape", "axes"),
    [
        ("conv2d", "channels-last", {"kh": 1, "kw": 1}, {"n_oh_ow": 84, "co": 5, "ci": 3}),
        ("conv2d", "channels-first", {"kh": 1, "kw": 1}, {"n": 2, "co": 5, "oh_ow": 42, "ci": 3}),
        ("conv2d", "channels-last", {"kh": 1, "kw": 1, "stride": 2}, {"n": 2, "oh": 3, "ow": 4, "co": 5, "ci": 3}),
        (
            "conv2d", "channels-last", {"kh": 3, "kw": 3, "padding": 1},
            {"n": 2, "oh": 6, "ow": 7, "co": 5, "kh": 3, "kw_ci": 9},
        ),
        ("conv2d", "channels-last", {"kh": 1, "kw": 7}, {"n_oh": 12, "co": 5, "kw_ci": 21}),  # one column of windows
        ("conv2d", "channels-last", {"kh": 6, "kw": 7}, {"n": 2, "co": 5, "kh_kw_ci": 126}),
        (
            "conv2d", "channels-last", {"kh": 3, "kw": 3, "dilation": 2},
            {"n": 2, "oh": 2, "ow": 3, "co": 5, "kh": 3, "kw": 3, "ci": 3},
        ),
        ("gemm", "row-major", {"m": 1, "n": 7, "k": 1}, {"m": 1, "n": 7, "k": 1}),  # rows may be any distance apart
    ],
)  # fmt: skip
def test_shipped_operators(name: str, layout: str, shape: dict[str, int], axes: dict[str, int]) -> None:
    whole = {"n": 2, "h": 6, "w": 7, "ci": 3, "co": 5, **shape} if name != "gemm" else shape
    assert analyse(operator(name, whole, layout=layout)).extents == axes


@pytest.mark.parametrize(
    ("shape", "roles", "axes"),
    [
        ({"ci": 1}, {"spatial": 1, "reduce": 1}, {"n": 2, "oh": 6, "ow": 7, "co": 5, "kh": 3, "kw": 3, "ci": 1}),
        ({"n": 1, "co": 1}, {"spatial": 1, "reduce": 1}, {"oh": 6, "ow": 7, "co": 1, "kh": 3, "kw": 3, "ci": 3}),
        ({"n": 1}, {"spatial": 1, "reduce": 1}, {"oh": 6, "ow": 7, "co": 5, "kh": 3, "kw": 3, "ci": 3}),
        ({"n": 1}, {"spatial": 2, "reduce": 1}, {"n": 1, "oh": 6, "ow": 7, "co": 5, "kh": 3, "kw": 3, "ci": 3}),
    ],
)
def test_a_step_stays_where_a_role_needs_it(shape: dict[str, int], roles: dict[str, int], axes: dict[str, int]) -> None:
    """Windows cannot be padded to the entries of a memory: a batch or a channel can, even of one."""
    whole = {"n": 2, "h": 6, "w": 7, "ci": 3, "co": 5, "kh": 3, "kw": 3, "padding": 1, **shape}
    assert analyse(operator("conv2d", whole), False, roles).extents == axes
