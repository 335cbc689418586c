"""Convolutions equal their definition, written out index by index, in TIR and in numpy, whatever the shape."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from heron_asp.errors import HeronError
from heron_asp.operators import operator
from heron_asp.operators.windows import SIDES
from tests.operators.unscheduled import Array, integers, run, stages

LAYOUTS = st.sampled_from(["channels-last", "channels-first"])


def defined(x: Array, weight: Array, said: dict[str, int], dims: str, groups: int) -> Array:
    """A convolution in channels-last by its definition: a tap at a time, where x has an element."""
    along = [
        (
            said.get(f"stride_{dim}", said.get("stride", 1)),
            said.get(f"dilation_{dim}", said.get("dilation", 1)),
            *(said.get(f"padding_{side}", said.get("padding", 0)) for side in SIDES[dim]),
        )
        for dim in dims
    ]
    steps = [
        (size + before + after - dilation * (taps - 1) - 1) // stride + 1
        for size, taps, (stride, dilation, before, after) in zip(x.shape[1:-1], weight.shape, along, strict=False)
    ]
    channels, outputs = x.shape[-1] // groups, weight.shape[-1] // groups
    result = np.zeros((x.shape[0], *steps, weight.shape[-1]), np.int64)
    x, weight = x.astype(np.int64), weight.astype(np.int64)
    for at in product(*map(range, result.shape)):
        group = at[-1] // outputs
        for tap in product(*map(range, weight.shape[:-2])):
            place = [
                o * stride + k * dilation - before
                for o, k, (stride, dilation, before, _) in zip(at[1:-1], tap, along, strict=False)
            ]
            if all(0 <= i < size for i, size in zip(place, x.shape[1:-1], strict=True)):
                seen = x[(at[0], *place)][group * channels : (group + 1) * channels]
                result[at] += seen @ weight[(*tap, slice(None), at[-1])]
    return result


def last(array: Array, layout: str, dims: int, leading: int = 1) -> Array:
    """An operand with its channels last."""
    if layout == "channels-last":
        return array
    return np.moveaxis(array, range(array.ndim - dims, array.ndim), range(leading, leading + dims))


def check(name: str, dims: str, shape: dict[str, int], layout: str = "channels-last", seed: int = 0) -> None:
    """TIR equals reference equals definition."""
    made = operator(name, shape, layout=layout)
    inputs = integers(made, seed)
    exact = made.reference(inputs)
    assert (run(made, inputs) == exact).all(), made.label
    x = last(inputs["x"], layout, len(dims))
    weight, groups = inputs["weight"], shape.get("groups", 1)
    if name == "depthwise_conv2d":  # as many groups as channels, of one channel each
        weight, groups = last(weight, layout, 2, leading=0)[:, :, np.newaxis, :], shape["c"]
    elif layout == "channels-first":
        weight = np.transpose(weight, (*range(2, weight.ndim), 1, 0))
    assert (last(exact, layout, len(dims)) == defined(x, weight, shape, dims, groups)).all(), made.label


@st.composite
def windows(draw: Any, dims: str, most: int = 5) -> dict[str, int]:
    """Windows of which each dimension has its own numbers; kernels may exceed the operand without its zeros."""
    several, found = len(dims) > 1, {}
    for dim in dims:
        size, taps, dilation = draw(st.integers(1, most)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
        before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        assume(dilation * (taps - 1) + 1 <= size + before + after)
        suffix = f"_{dim}" if several else ""
        found |= {dim: size, f"k{dim}": taps, f"dilation{suffix}": dilation, f"stride{suffix}": draw(st.integers(1, 3))}
        found |= dict(zip((f"padding_{side}" for side in SIDES[dim]), (before, after), strict=True))
    return found


@given(windows("hw"), st.integers(1, 3), st.sampled_from([(1, 3, 5), (1, 5, 1), (2, 3, 1), (3, 1, 3)]), LAYOUTS)
@settings(max_examples=25, deadline=None)
def test_conv2d(shape: dict[str, int], n: int, channels: tuple[int, int, int], layout: str) -> None:
    groups, ci, co = channels
    check("conv2d", "hw", shape | {"n": n, "ci": ci * groups, "co": co * groups, "groups": groups}, layout)


@given(windows("w", most=12), st.integers(1, 3), st.sampled_from([1, 2]), LAYOUTS)
@settings(max_examples=10, deadline=None)
def test_conv1d(shape: dict[str, int], n: int, groups: int, layout: str) -> None:
    check("conv1d", "w", shape | {"n": n, "ci": 3 * groups, "co": 5 * groups, "groups": groups}, layout)


@given(windows("dhw", most=3), st.sampled_from([1, 2]), LAYOUTS)
@settings(max_examples=10, deadline=None)
def test_conv3d(shape: dict[str, int], groups: int, layout: str) -> None:
    check("conv3d", "dhw", shape | {"n": 1, "ci": groups, "co": 3 * groups, "groups": groups}, layout)


@given(windows("hw"), st.integers(1, 3), st.integers(1, 7), LAYOUTS)
@settings(max_examples=10, deadline=None)
def test_depthwise(shape: dict[str, int], n: int, c: int, layout: str) -> None:
    check("depthwise_conv2d", "hw", shape | {"n": n, "c": c}, layout)


def test_conv2d_dilated_is_conv2d() -> None:
    shape = {"n": 1, "h": 6, "w": 5, "ci": 3, "co": 2, "kh": 3, "kw": 2, "padding": 1, "dilation": 2}
    check("conv2d_dilated", "hw", shape)


def test_one_number_serves_all_dimensions_and_a_side_has_its_own() -> None:
    shape = {"n": 1, "h": 9, "w": 9, "ci": 1, "co": 1, "kh": 3, "kw": 3}
    made = operator("conv2d", shape | {"stride": 2, "stride_w": 3, "padding": 2, "padding_w": 1, "padding_right": 0})
    shown = {key: made.shape[key] for key in made.kind.defaults}
    assert shown == {
        "stride": 2, "padding": 2, "dilation": 1, "stride_h": 2, "padding_h": 2, "dilation_h": 1, "stride_w": 3,
        "padding_w": 1, "dilation_w": 1, "padding_top": 2, "padding_bottom": 2, "padding_left": 1, "padding_right": 0,
        "groups": 1,
    }  # fmt: skip
    assert made.label == (
        "conv2d u8s8s32 n=1,h=9,w=9,ci=1,co=1,kh=3,kw=3,stride=2,padding=2,stride_w=3,padding_w=1,padding_right=0"
    )
    assert operator("conv2d", made.shape).label == made.label
    assert (made.extents["oh"], made.extents["ow"]) == (6, 3)


def test_operations_are_those_of_the_field() -> None:
    shape = {"n": 16, "h": 56, "w": 56, "ci": 64, "co": 128, "kh": 3, "kw": 3, "padding": 1, "stride": 2}
    made = operator("conv2d", shape)
    assert made.operations == 2 * 16 * 28 * 28 * 128 * 9 * 64
    assert made.terms == 9 * 64
    grouped = operator("conv2d", shape | {"groups": 32})
    assert grouped.operations == made.operations // 32
    assert grouped.terms == 9 * 2
    depthwise = operator("depthwise_conv2d", {"n": 2, "h": 8, "w": 8, "c": 32, "kh": 3, "kw": 3})
    assert (depthwise.operations, depthwise.terms) == (2 * 2 * 36 * 32 * 9, 9)


def test_stages_stand_only_where_they_are_needed() -> None:
    shape = {"n": 1, "h": 8, "w": 8, "ci": 4, "co": 4, "kh": 3, "kw": 3}
    assert stages(operator("conv2d", shape)) == ["y"]
    assert stages(operator("conv2d", shape | {"padding_left": 1})) == ["x_pad", "y"]
    unused = {"kh": 1, "kw": 1, "stride": 3, "padding_bottom": 1, "padding_right": 1}  # no window reaches those zeros
    assert stages(operator("conv2d", shape | unused)) == ["y"]


def test_groups_are_an_axis_of_the_kernel_only() -> None:
    shape = {"n": 2, "h": 5, "w": 5, "ci": 6, "co": 4, "kh": 1, "kw": 1}
    assert all(spec.kernel_shape == spec.shape for spec in operator("conv2d", shape).tensors)
    x, weight, y = operator("conv2d", shape | {"groups": 2}).tensors
    assert (x.shape, x.kernel_shape) == ((2, 5, 5, 6), (2, 5, 5, 2, 3))
    assert (weight.shape, weight.kernel_shape) == ((1, 1, 3, 4), (1, 1, 3, 2, 2))
    assert (y.shape, y.kernel_shape) == ((2, 5, 5, 4), (2, 5, 5, 2, 2))
    x, weight, y = operator("conv2d", shape | {"groups": 2}, layout="channels-first").tensors
    assert (x.shape, x.kernel_shape) == ((2, 6, 5, 5), (2, 2, 3, 5, 5))
    assert (weight.shape, weight.kernel_shape) == ((4, 3, 1, 1), (2, 2, 3, 1, 1))


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"kh": 6}, "kh=6 spans 6 along h, more than the 5 of h=5 and 0 of padding", "padding=1 would do"),
        ({"dilation": 3}, "kh=3 with dilation 3 spans 7 along h, more than the 5", "padding=1 would do"),
        ({"groups": 3}, "ci=4 channels do not fall into groups=3 equal parts", ""),
        ({"groups": 4}, "co=6 channels do not fall into groups=4 equal parts", ""),
        ({"stride": 0}, "stride=0 is outside 1..16777216", ""),
        ({"pading": 1}, "no shape key 'pading'", "padding"),
        ({"padding": 2**20, "n": 2**10}, "elements is larger than 2147483647", ""),
        ({"ci": 2**9, "padding": 2**10}, "the padded x of 2157982208 elements is larger than", ""),
    ],
)
def test_shapes_that_make_no_sense_are_refused(changes: dict[str, int], message: str, hint: str) -> None:
    shape = {"n": 1, "h": 5, "w": 5, "ci": 4, "co": 6, "kh": 3, "kw": 3}
    with pytest.raises(HeronError, match="conv2d") as caught:
        operator("conv2d", shape | changes)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(HeronError, match="conv1d has no layout 'channel-first'") as caught:
        operator("conv1d", {"n": 1, "w": 5, "ci": 4, "co": 6, "kw": 3}, layout="channel-first")
    assert "channels-first" in (caught.value.hint or "")


def test_a_transposed_convolution_without_products_is_refused() -> None:
    """Its only column lies between those that the stride and the dilated kernel reach."""
    shape = {"n": 1, "h": 1, "w": 2, "ci": 1, "co": 1, "kh": 2, "kw": 1, "padding": 1, "stride": 2, "dilation": 2}
    with pytest.raises(HeronError, match="along h no element of the result has a product"):
        operator("conv2d_transposed", shape)
