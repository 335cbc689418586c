"""Convolutions over one, two or three dimensions, also in groups, and over each channel by itself.

The result at o is the sum over all taps k of x[o * stride + k * dilation - padding] * weight[k]: networks do not flip
the kernel. Outside of x are zeros. Of g groups, the j-th part of the result's channels sees the j-th part of x's.

    layout            x                weight                   y
    channels-last     (n, h, w, ci)    (kh, kw, ci / g, co)     (n, oh, ow, co)
    channels-first    (n, ci, h, w)    (co, ci / g, kh, kw)     (n, co, oh, ow)

The kernel sees the channels of groups as two axes, the group and the channel in it: no index needs a division.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from heron_asp.errors import HeronError
from heron_asp.operators.expressions import (
    Place,
    padded,
    sum_of_products,
)
from heron_asp.operators.kind import (
    ACCUMULATOR,
    ACTIVATION,
    WEIGHT,
    Exact,
    Expression,
    Extents,
    Layout,
    Names,
    OperatorKind,
)
from heron_asp.operators.operator import Operator
from heron_asp.operators.windows import (
    channels_last,
    in_layout,
    pad,
    require_room,
    require_size,
    taps,
    volume,
    window_defaults,
    window_least,
    windows,
)

_PLAIN = {"groups": "group", "ci_group": "ci", "co_group": "co"}  # extents and the axes that run over them


def _derived(name: str, dims: str) -> Callable[[Extents], dict[str, int]]:
    def derive(extents: Extents) -> dict[str, int]:
        found = {}
        for window in windows(extents, dims):
            require_room(name, window)
            found[f"o{window.dim}"] = window.steps
        groups = extents.get("groups")
        if groups is not None:
            for key in ("ci", "co"):
                if extents[key] % groups:
                    raise HeronError(
                        f"{name}: {key}={extents[key]} channels do not fall into groups={groups} equal parts"
                    )
                found[f"{key}_group"] = extents[key] // groups
        channels = extents["c" if groups is None else "ci"]
        require_size(name, "the padded x", extents["n"] * channels * prod(one.reach for one in windows(extents, dims)))
        return found

    return derive


def _layouts(dims: str) -> dict[str, Layout]:
    inner, outer, kernel = tuple(dims), tuple(f"o{dim}" for dim in dims), tuple(f"k{dim}" for dim in dims)

    def last(extents: Extents) -> dict[str, Names]:
        if extents["groups"] == 1:
            return {"weight": (*kernel, "ci", "co")}
        return {
            "x": ("n", *inner, "groups", "ci_group"),
            "weight": (*kernel, "ci_group", "groups", "co_group"),
            "y": ("n", *outer, "groups", "co_group"),
        }

    def first(extents: Extents) -> dict[str, Names]:
        if extents["groups"] == 1:
            return {"weight": ("co", "ci", *kernel)}
        return {
            "x": ("n", "groups", "ci_group", *inner),
            "weight": ("groups", "co_group", "ci_group", *kernel),
            "y": ("n", "groups", "co_group", *outer),
        }

    return {
        "channels-last": Layout(
            {"x": ("n", *inner, "ci"), "weight": (*kernel, "ci_group", "co"), "y": ("n", *outer, "co")}, last
        ),
        "channels-first": Layout(
            {"x": ("n", "ci", *inner), "weight": ("co", "ci_group", *kernel), "y": ("n", "co", *outer)}, first
        ),
    }


def _build(dims: str) -> Callable[..., Expression]:
    def build(operator: Operator, x: Any, weight: Any) -> Expression:
        extents, axes = operator.extents, operator.axes
        along = windows(extents, dims)
        plain = {name: tuple(_PLAIN.get(axis, axis) for axis in of) for name, of in axes.items()}
        x = padded(x, operator.inputs[0], plain["x"], {one.dim: (one.before, one.reach) for one in along})
        sizes = {_PLAIN.get(axis, axis): extents[axis] for of in axes.values() for axis in of}
        spatial = {axis: sizes[axis] for axis in plain["y"]}
        reduced = {axis: sizes[axis] for axis in (*plain["weight"], *plain["x"]) if axis not in (*spatial, *dims)}
        reduced = {f"k{dim}": reduced.pop(f"k{dim}") for dim in dims} | reduced  # in this order in every layout

        def factors(place: Place) -> tuple[Any, Any]:
            for one in along:
                place[one.dim] = place[f"o{one.dim}"] * one.stride + place[f"k{one.dim}"] * one.dilation
            return x[tuple(place[axis] for axis in plain["x"])], weight[tuple(place[axis] for axis in plain["weight"])]

        total = sum_of_products(operator.name_of_sum(), spatial, reduced, factors, operator.types)
        return Expression(total, spatial)

    return build


def _reference(dims: str) -> Callable[[Extents, Sequence[Exact], str], Exact]:
    rank = len(dims)

    def reference(extents: Extents, arrays: Sequence[Exact], layout: str) -> Exact:
        groups = extents["groups"]
        along = windows(extents, dims)
        x = pad(channels_last(arrays[0], rank, layout), along)
        x = np.moveaxis(x.reshape(*x.shape[:-1], groups, extents["ci_group"]), -2, 0)  # a product for each group
        weight = arrays[1] if layout == "channels-last" else np.moveaxis(arrays[1], (1, 0), (-2, -1))
        weight = weight.reshape(*weight.shape[:-1], groups, extents["co_group"])
        steps = [one.steps for one in along]
        total = np.zeros((groups, extents["n"] * prod(steps), extents["co_group"]))
        for place, touched in taps(along):
            # Nothing keeps the copy that reshape makes: the next tap's would come on top of it.
            total += np.matmul(
                x[:, :, *touched, :].reshape(groups, -1, extents["ci_group"]), np.moveaxis(weight[place], -2, 0)
            )
        result = np.moveaxis(total, 0, 1).reshape(extents["n"], *steps, extents["co"])
        return in_layout(result, rank, layout)

    return reference


def _depthwise(extents: Extents, arrays: Sequence[Exact], layout: str) -> Exact:
    along = windows(extents, "hw")
    x = pad(channels_last(arrays[0], 2, layout), along)
    weight = channels_last(arrays[1], 2, layout, leading=0)
    total = np.zeros((extents["n"], *(one.steps for one in along), extents["c"]))
    for place, touched in taps(along):
        total += x[:, *touched, :] * weight[place]
    return in_layout(total, 2, layout)


def _scratch(dims: str, channels: str) -> Callable[[Extents], int]:
    """Elements of float64 of the padded operand, what a tap touches of it, and a product."""

    def scratch(extents: Extents) -> int:
        along = windows(extents, dims)
        padded_size = prod(one.padded for one in along)
        steps = prod(one.steps for one in along)
        return extents["n"] * (extents[channels] * (padded_size + steps) + 2 * steps * extents.get("co", 0))

    return scratch


def _convolution(name: str, dims: str, summary: str) -> OperatorKind:
    kernel = tuple(f"k{dim}" for dim in dims)
    outer = tuple(f"o{dim}" for dim in dims)
    return OperatorKind(
        name=name,
        keys=("n", *dims, "ci", "co", *kernel),
        defaults=window_defaults(dims) | {"groups": 1},
        least=window_least(dims),
        derived=_derived(name, dims),
        layouts=_layouts(dims),
        stacked="n",
        slots=(ACTIVATION, WEIGHT, ACCUMULATOR),
        channel=("co", "groups", "co_group"),
        constant=frozenset({"weight"}),
        packed_by={"weight": ("ci", "co", *kernel, "groups", *window_defaults(dims))},
        build=_build(dims),
        reference=_reference(dims),
        scratch=_scratch(dims, "ci"),
        terms=lambda extents: volume(extents, (*kernel, "ci_group")),
        operations=lambda extents: 2 * volume(extents, ("n", *outer, "co", *kernel, "ci_group")),
        summary=summary,
    )


KINDS = {
    kind.name: kind
    for kind in (
        _convolution("conv1d", "w", "convolution over w, in groups; the weights are known ahead"),
        _convolution("conv2d", "hw", "convolution over h and w, in groups; the weights are known ahead"),
        _convolution("conv3d", "dhw", "convolution over d, h and w, in groups; the weights are known ahead"),
        _convolution("conv2d_dilated", "hw", "conv2d under the name that benchmarks give it with a dilation"),
        OperatorKind(
            name="depthwise_conv2d",
            keys=("n", "h", "w", "c", "kh", "kw"),
            defaults=window_defaults("hw"),
            least=window_least("hw"),
            derived=_derived("depthwise_conv2d", "hw"),
            layouts={
                "channels-last": Layout(
                    {"x": ("n", "h", "w", "c"), "weight": ("kh", "kw", "c"), "y": ("n", "oh", "ow", "c")}
                ),
                "channels-first": Layout(
                    {"x": ("n", "c", "h", "w"), "weight": ("c", "kh", "kw"), "y": ("n", "c", "oh", "ow")}
                ),
            },
            stacked="n",
            slots=(ACTIVATION, WEIGHT, ACCUMULATOR),
            channel=("c",),
            constant=frozenset({"weight"}),
            packed_by={"weight": ("c", "kh", "kw", *window_defaults("hw"))},
            build=_build("hw"),
            reference=_depthwise,
            scratch=_scratch("hw", "c"),
            terms=lambda extents: volume(extents, ("kh", "kw")),
            operations=lambda extents: 2 * volume(extents, ("n", "oh", "ow", "c", "kh", "kw")),
            summary="convolution of each channel by itself; the weights are known ahead",
        ),
    )
}
