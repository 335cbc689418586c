"""Where an operand is zero padding, and which part of the products is with it."""

from __future__ import annotations

from math import prod
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from instances import random_operator

from heron_asp.analysis import analyse
from heron_asp.operators import operator
from heron_asp.operators.windows import windows
from tests.analysis.expressions import made, padded, read, tensor, total

CONV = {"n": 1, "h": 6, "w": 7, "ci": 3, "co": 5, "kh": 3, "kw": 3}


@pytest.mark.parametrize(
    ("shape", "layout", "borders"),
    [
        ({}, None, {}),
        ({"padding": 1}, None, {0: (1, 7), 1: (3, 24)}),  # columns and channels are one dimension
        ({"padding": 1}, "channels-first", {1: (1, 7), 2: (1, 8)}),
        ({"padding_left": 2}, "channels-first", {2: (2, 9)}),
        ({"padding_bottom": 2}, "channels-first", {1: (0, 6)}),
        ({"padding_top": 2, "kh": 1, "stride_h": 7}, "channels-first", {1: (2, 8)}),
        (
            {"padding_top": 2, "kh": 1, "stride_h": 9},
            "channels-first",
            {},
        ),  # all is padding, no dimension
        ({"padding_bottom": 2, "stride_h": 4}, "channels-first", {1: (0, 6)}),  # of which only the first is read
        ({"padding_top": 1, "h": 1, "kh": 2}, "channels-first", {1: (1, 2)}),  # a single row of elements
    ],
)
def test_borders_of_a_convolution(shape, layout, borders) -> None:
    block = analyse(operator("conv2d", {**CONV, **shape}, layout=layout))
    x = block.operands[0]
    assert {dim: rows for dim in range(len(x.shape)) if (rows := block.border(x, dim)) is not None} == borders
    said = {fact.arguments[2] for fact in block.facts() if fact.name == "bordered"}
    assert said == set(borders)


@pytest.mark.parametrize(
    ("shape", "layout", "grains"),
    [
        ({"padding": 1}, None, {0: 1, 1: 3}),
        ({"padding": 1}, "channels-first", {1: 1, 2: 1}),
        ({"padding": 2, "h": 6, "w": 8}, None, {0: 1, 1: 3}),  # padding begins and ends at even columns, windows do not
        ({"padding": 2, "h": 6, "w": 8, "stride": 2}, None, {0: 2, 1: 6}),
        ({"padding_left": 2}, None, {1: 3}),
    ],
)
def test_borders_have_a_grain(shape, layout, grains) -> None:
    block = analyse(operator("conv2d", {**CONV, **shape}, layout=layout))
    said = [fact.arguments for fact in block.facts() if fact.name == "bordered"]
    assert {dim: grain for _, _, dim, grain in said} == grains


def test_what_is_not_zero_is_no_border() -> None:
    from tvm import te

    x, w = tensor("x", 6), tensor("w", 3)
    ones = made("ones", (8,), lambda i: te.if_then_else(i < 6, x[i], 1))
    block = read(x, w, total("y", (6,), {"r": 3}, lambda i, r: ones[i + r] * w[r]))
    assert block.border(block.operands[0], 0) is None
    zeros = padded(x, (1,), (8,), "zeros")
    block = read(x, w, total("y", (6,), {"r": 3}, lambda i, r: zeros[i + r] * w[r]))
    assert block.border(block.operands[0], 0) == (1, 7)
    assert block.useful_share == 16 / 18


@given(st.sampled_from(["conv1d", "conv2d", "conv3d", "depthwise_conv2d"]), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_useful_share_counts_products_with_elements(name: str, random: Random) -> None:
    made = random_operator(name, random)
    dims = {"conv1d": "w", "conv3d": "dhw"}.get(name, "hw")
    useful = 1.0
    for one in windows(made.extents, dims):
        taps = [o * one.stride + k * one.dilation - one.before for o in range(one.steps) for k in range(one.taps)]
        useful *= sum(0 <= tap < one.size for tap in taps) / len(taps)
    assume(useful > 0)
    assert analyse(made).useful_share == pytest.approx(useful), made.label


def test_shares_of_whole_tensors_are_one() -> None:
    block = analyse(operator("gemm", {"m": 3, "n": 4, "k": 5}))
    assert block.useful_share == 1.0
    assert prod(block.extents.values()) == 60
