"""The transposed convolution equals its definition: every element of x adds a kernel to the result."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from heron_asp.errors import HeronError
from heron_asp.operators import operator
from heron_asp.operators.windows import SIDES
from tests.operators.unscheduled import Array, integers, run, stages

NAME = "conv2d_transposed"
PLAIN = {"n": 2, "h": 4, "w": 3, "ci": 3, "co": 5, "kh": 3, "kw": 3}


def defined(x: Array, weight: Array, shape: dict[str, int]) -> Array:
    """By its definition, in channels-last: what falls beside the result is left out."""
    sizes = []
    for dim, size in zip("hw", x.shape[1:], strict=False):
        before, after = (shape[f"padding_{side}"] for side in SIDES[dim])
        span = (shape[f"k{dim}"] - 1) * shape[f"dilation_{dim}"] + 1
        sizes.append((size - 1) * shape[f"stride_{dim}"] + span - before - after + shape[f"output_padding_{dim}"])
    result = np.zeros((x.shape[0], *sizes, weight.shape[-1]), np.int64)
    wide = weight.astype(np.int64)
    for n, h, w, kh, kw in product(*map(range, (*x.shape[:3], *weight.shape[:2]))):
        oh = h * shape["stride_h"] + kh * shape["dilation_h"] - shape["padding_top"]
        ow = w * shape["stride_w"] + kw * shape["dilation_w"] - shape["padding_left"]
        if 0 <= oh < sizes[0] and 0 <= ow < sizes[1]:
            result[n, oh, ow] += x[n, h, w].astype(np.int64) @ wide[kh, kw]
    return result


def check(shape: dict[str, int], layout: str = "channels-last") -> None:
    made = operator(NAME, shape, layout=layout)
    inputs = integers(made)
    exact = made.reference(inputs)
    assert (run(made, inputs) == exact).all(), made.label
    x, weight = inputs["x"], inputs["weight"]
    if layout == "channels-first":
        x, weight, exact = (np.transpose(one, axes) for one, axes in (
            (x, (0, 2, 3, 1)), (weight, (2, 3, 0, 1)), (exact, (0, 2, 3, 1)),
        ))  # fmt: skip
    assert (exact == defined(x, weight, dict(made.shape))).all(), made.label


@st.composite
def shapes(draw: Any) -> dict[str, int]:
    found = {"n": draw(st.integers(1, 2)), "ci": draw(st.integers(1, 3)), "co": draw(st.integers(1, 3))}
    for dim in "hw":
        size, taps = draw(st.integers(1, 5)), draw(st.integers(1, 6))
        stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        before, after = draw(st.integers(0, 4)), draw(st.integers(0, 3))
        more = draw(st.integers(0, max(stride, dilation) - 1))
        assume((size - 1) * stride + (taps - 1) * dilation + 1 - before - after + more >= 1)
        found |= {dim: size, f"k{dim}": taps, f"stride_{dim}": stride, f"dilation_{dim}": dilation}
        found |= dict(zip((f"padding_{side}" for side in SIDES[dim]), (before, after), strict=True))
        found[f"output_padding_{dim}"] = more
    return found


@given(shapes(), st.sampled_from(["channels-last", "channels-first"]))
@example(PLAIN | {"stride": 2, "dilation": 4}, "channels-last")
@example(PLAIN | {"stride": 4, "dilation": 6, "padding": 3, "output_padding": 2}, "channels-last")
@example(PLAIN | {"stride": 5, "padding": 2}, "channels-first")
@settings(max_examples=25, deadline=None)
def test_it_equals_its_definition(shape: dict[str, int], layout: str) -> None:
    try:
        check(shape, layout)
    except HeronError as error:  # its only columns lie between those that have products
        if "no element of the result has a product" not in error.message:
            raise


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kh": 1, "kw": 1}, ["y"]),
        ({"padding": 1}, ["x_pad", "weight_pad", "y"]),  # an ordinary convolution with the kernel turned round
        ({"kh": 2, "kw": 2, "stride": 2}, ["y"]),  # every phase has one tap: a matrix product
        ({"stride": 2, "padding": 1, "output_padding": 1}, ["x_pad", "weight_pad", "y"]),
        ({"stride": 2, "padding": 1}, ["x_pad", "weight_pad", "y_sum", "y"]),
        ({"kh": 1, "kw": 1, "stride": 2}, ["y_sum", "y"]),
    ],
)
def test_stages_stand_only_where_they_are_needed(changes: dict[str, int], expected: list[str]) -> None:
    assert stages(operator(NAME, PLAIN | changes)) == expected
    check(PLAIN | changes)


@pytest.mark.parametrize("changes", [{"stride": 2}, {"stride": 2, "kh": 4, "kw": 4, "padding": 1}, {"stride": 3}])
def test_no_stuffed_zeros_are_multiplied(changes: dict[str, int]) -> None:
    """The sum runs over as many taps as a phase has, not as the kernel has."""
    made = operator(NAME, {"n": 1, "h": 32, "w": 32, "ci": 16, "co": 16, "kh": 3, "kw": 3} | changes)
    multiplied = made.prim_func().script()
    loops = next(line for line in multiplied.splitlines() if "for n, qh" in line)
    extents = [int(one) for one in loops[loops.index("grid(") + 5 : loops.rindex(")")].split(",")]
    stride, kernel = made.shape["stride"], made.shape["kh"]
    stuffed = 32 * 32 * stride * stride * kernel * kernel * 16 * 16
    needed = stuffed * (-(-kernel // stride) * stride / kernel) ** 2 / stride**2
    assert needed <= np.prod(extents) <= needed * 1.15
    assert made.operations == 2 * 32 * 32 * kernel * kernel * 16 * 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"padding": 4}, "a padding of 8 along h leaves nothing of the 6 that h=4 and kh=3 make"),
        ({"output_padding": 1}, "output_padding=1 along h is not smaller than the stride 1 or the dilation 1"),
        ({"stride": 2**15, "dilation": 2}, "a stride of 32768 with a dilation: 16384 is the largest"),
        ({"stride": 2**13, "h": 64, "w": 64, "co": 1, "kh": 2, "kw": 2}, "is larger than"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(HeronError, match=NAME) as caught:
        operator(NAME, PLAIN | changes)
    assert message in caught.value.message
