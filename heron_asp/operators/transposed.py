"""Transposed convolution: what a network calls upsampling by weights, the gradient of a convolution by its input.

Each element x[i] adds x[i] * weight[k] to the result at i * stride + k * dilation - padding; where no tap reaches,
it is zero.

    layout            x                weight             y
    channels-last     (n, h, w, ci)    (kh, kw, ci, co)   (n, oh, ow, co)
    channels-first    (n, ci, h, w)    (ci, co, kh, kw)   (n, co, oh, ow), as in ONNX and PyTorch
    oh = (h - 1) * stride + (kh - 1) * dilation + 1 - padding_top - padding_bottom + output_padding

No zeros are stuffed between the elements of x, and no multiplication is with such a zero: results whose places differ
by a multiple of the stride see the same taps, so they are a *phase*, an ordinary convolution with stride 1 over some of
the taps. All phases are one sum of products with a further axis; a last stage puts them into their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np

from heron_asp.errors import HeronError
from heron_asp.operators.expressions import (
    Place,
    compute,
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
    Window,
    channels_last,
    in_layout,
    require_size,
    taps,
    volume,
    window_defaults,
    window_least,
    windows,
)

_NAME = "conv2d_transposed"
_LARGEST_STRIDE = 2**14  # its square, times a few, is an index in 32 bits


@dataclass(frozen=True)
class Phases:
    """A transposed convolution along one dimension, as ordinary ones: one a phase.

    Phase r at q adds up x[q + spread * t - before] * weight[first + r - step * t] over t in 0 .. taps - 1.

    Attributes:
        dim: the dimension: h or w.
        count: how many phases there are.
        length: extent of each phase.
        taps: of each phase; those with an index outside of the kernel are zero.
        spread: distance of neighbouring taps in x.
        before: zeros before x; where negative, so much of x is not seen.
        first: the tap of phase 0 at t = 0.
        step: distance of neighbouring taps in the kernel.
        in_place: the result at o is phase o % count at o // count.
        window: what it does to a convolution's result.
    """

    dim: str
    count: int
    length: int
    taps: int
    spread: int
    before: int
    first: int
    step: int
    in_place: bool
    window: Window

    @property
    def whole(self) -> bool:
        """The taps of the phases are those of the kernel, in its order."""
        return self.first == 0 and self.taps == 1 and self.count == self.window.taps

    @property
    def axes(self) -> Names:
        """Axes of the result of the phases."""
        if self.count == 1:
            return (f"o{self.dim}" if self.in_place else f"q{self.dim}",)
        return (f"q{self.dim}", f"r{self.dim}")

    @property
    def reach(self) -> int:
        """How much of the padded x the phases touch."""
        return self.length + self.spread * (self.taps - 1)

    def place(self, at: Any) -> tuple[dict[str, Any], list[Any]]:
        """Where in the phases the result at `at` stands, and the conditions under which it is not zero.

        The result at o is of the phase r for which o + padding - r * dilation is a multiple of the stride.
        """
        from tvm import tirx

        q, r = f"q{self.dim}", f"r{self.dim}"
        if self.in_place:
            return ({f"o{self.dim}": at} if self.count == 1 else {q: at // self.count, r: at % self.count}), []
        window = self.window
        shared = gcd(window.stride, window.dilation)
        period = window.stride // shared
        moved = at + window.before
        exact = tirx.floormod(tirx.floordiv(moved, shared) * pow(window.dilation // shared, -1, period), period)
        phase = exact if self.count > 1 else tirx.const(0, "int32")
        conditions = [tirx.floormod(moved, shared) == 0] if shared > 1 else []
        conditions += [exact < self.count] if self.count < period else []
        begun = moved if window.dilation == 1 else moved - phase * window.dilation
        found = {q: tirx.floordiv(begun, window.stride) - _begin(window, self.count)}
        return (found if self.count == 1 else {**found, r: phase}), conditions


def _begin(window: Window, count: int) -> int:
    """The smallest q of the phases r < count of which q * stride + r * dilation - padding is not negative."""
    return -((window.dilation * (count - 1) - window.before) // window.stride)


def _phases(window: Window, length: int) -> Phases:
    """The phases of a transposed convolution.

    Args:
        window: the convolution that is transposed.
        length: extent of the result.
    """
    stride, dilation, kernel, before = window.stride, window.dilation, window.taps, window.before
    shared = gcd(stride, dilation)
    step, spread = stride // shared, dilation // shared
    count = min(step, kernel)
    each = -(-kernel // step)
    if dilation == 1 and kernel >= stride and length % stride == 0:
        # The result at q * stride + r sees x[q - u] through weight[r + padding + stride * u]: nothing is to be placed
        # afterwards. Worth it where all phases together need no more taps than the kernel has.
        low, high = -((before + stride - 1) // stride), (kernel - 1 - before) // stride
        if high - low + 1 <= each:
            return Phases(
                dim=window.dim,
                count=stride,
                length=length // stride,
                taps=high - low + 1,
                spread=1,
                before=high,
                first=before + stride * high,
                step=stride,
                in_place=True,
                window=window,
            )
    begin = _begin(window, count)
    end = (length - 1 + before) // stride
    return Phases(
        dim=window.dim,
        count=count,
        length=end - begin + 1,
        taps=each,
        spread=spread,
        before=spread * (each - 1) - begin,
        first=step * (each - 1),
        step=step,
        in_place=stride == 1,
        window=window,
    )


def _along(extents: Extents) -> tuple[Phases, ...]:
    return tuple(_phases(window, _length(extents, window)) for window in windows(extents, "hw"))


def _length(extents: Extents, window: Window) -> int:
    """Extent of the result."""
    more = extents[f"output_padding_{window.dim}"]
    return (window.size - 1) * window.stride + window.span - window.before - window.after + more


def _derived(extents: Extents) -> dict[str, int]:
    found: dict[str, int] = {}
    for window in windows(extents, "hw"):
        dim, more = window.dim, extents[f"output_padding_{window.dim}"]
        if more >= max(window.stride, window.dilation):
            raise HeronError(
                f"{_NAME}: output_padding={more} along {dim} is not smaller than the stride {window.stride} "
                f"or the dilation {window.dilation}",
                "it says which of the lengths is meant that a convolution with this stride makes alike",
            )
        if window.dilation > 1 and window.stride > _LARGEST_STRIDE:
            raise HeronError(f"{_NAME}: a stride of {window.stride} with a dilation: {_LARGEST_STRIDE} is the largest")
        length = _length(extents, window)
        if length < 1:
            zeros = window.before + window.after
            raise HeronError(
                f"{_NAME}: a padding of {zeros} along {dim} leaves nothing of the {length + zeros} that "
                f"{dim}={window.size} and k{dim}={window.taps} make",
                "padding takes away from the result here; give less",
            )
        one = _phases(window, length)
        if one.length < 1:
            raise HeronError(
                f"{_NAME}: along {dim} no element of the result has a product",
                "with this stride and dilation all of them lie between those that have",
            )
        found |= {f"o{dim}": length, f"q{dim}": one.length, f"r{dim}": one.count}
    along = _along({**extents, **found})
    require_size(_NAME, "the padded x", volume(extents, ("n", "ci")) * prod(one.reach for one in along))
    require_size(_NAME, "y by phases", volume(extents, ("n", "co")) * prod(one.length * one.count for one in along))
    require_size(_NAME, "the kernel by phases", volume(extents, ("ci", "co")) * prod(x.taps * x.count for x in along))
    return found


def _views(extents: Extents) -> dict[str, Names]:
    """The result as the kernel sees it, in channels-last; itself where it is put together afterwards."""
    along = _along(extents)
    if all(one.in_place for one in along):
        return {"y": ("n", *(axis for one in along for axis in one.axes), "co")}
    return {}


def _views_first(extents: Extents) -> dict[str, Names]:
    return {name: ("n", "co", *axes[1:-1]) for name, axes in _views(extents).items()}


def _build(operator: Operator, x: Any, weight: Any) -> Expression:
    from tvm import te, tirx

    along = _along(operator.extents)
    axes, extents = operator.axes, operator.extents
    x = padded(x, operator.inputs[0], axes["x"], {one.dim: (one.before, one.reach) for one in along})
    weight, weight_axes = _weight(operator, weight, along)
    last = operator.layout == "channels-last"
    inner = {axis: extent for one in along for axis, extent in zip(one.axes, (one.length, one.count), strict=False)}
    channels = {"co": extents["co"]}
    spatial = {"n": extents["n"]} | (inner | channels if last else channels | inner)
    reduced = {f"k{one.dim}": one.taps for one in along if one.taps > 1} | {"ci": extents["ci"]}

    def factors(place: Place) -> tuple[Any, Any]:
        for one in along:
            place[one.dim] = place[one.axes[0]] + place.get(f"k{one.dim}", 0) * one.spread
        return x[tuple(place[axis] for axis in axes["x"])], weight[tuple(place.get(axis, 0) for axis in weight_axes)]

    placed = all(one.in_place for one in along)
    total = sum_of_products(operator.name_of_sum(not placed), spatial, reduced, factors, operator.types)
    if placed:
        return Expression(total, spatial)

    def element(place: Place) -> Any:
        conditions = []
        for one in along:
            where, needed = one.place(place[f"o{one.dim}"])
            place |= where
            conditions += needed
        value = total[tuple(place[axis] for axis in spatial)]
        zero = tirx.const(0, total.dtype)
        return te.if_then_else(tirx.all(*conditions), value, zero) if conditions else value

    return Expression(total, {axis: extents[axis] for axis in axes["y"]}, element)


def _weight(operator: Operator, weight: Any, along: tuple[Phases, ...]) -> tuple[Any, Names]:
    """The taps by phase, and the names of their dimensions."""
    from tvm import te, tirx

    axes = operator.axes["weight"]
    if all(one.whole for one in along):  # phase r has tap r
        return weight, tuple(f"r{axis[1:]}" if axis.startswith("k") else axis for axis in axes)
    by_dim = {f"k{one.dim}": one for one in along}
    sizes: dict[str, int] = {}
    for axis in axes:
        if axis in by_dim:
            one = by_dim[axis]
            sizes |= {f"r{one.dim}": one.count} if one.count > 1 else {}
            sizes |= {axis: one.taps} if one.taps > 1 else {}
        else:
            sizes[axis] = operator.extents[axis]

    def element(place: Place) -> Any:
        inside = []
        for axis, one in by_dim.items():
            tap = place.get(f"r{one.dim}", 0) - place.get(axis, 0) * one.step + one.first
            inside += [tap >= 0] if one.first < one.step * (one.taps - 1) else []
            inside += [tap < one.window.taps] if one.first + one.count > one.window.taps else []
            place[axis] = tap
        value = weight[tuple(place[axis] for axis in axes)]
        return te.if_then_else(tirx.all(*inside), value, tirx.const(0, weight.dtype)) if inside else value

    return compute("weight_pad", sizes, element), tuple(sizes)


def _reference(extents: Extents, arrays: Sequence[Exact], layout: str) -> Exact:
    along = windows(extents, "hw")
    x = channels_last(arrays[0], 2, layout)
    weight = channels_last(arrays[1], 2, layout, leading=0)
    lengths = [_length(extents, one) for one in along]
    # As x of the convolution that this one transposes: each tap adds to what it would touch.
    whole = [max((x.size - 1) * x.stride + x.span, x.before + length) for x, length in zip(along, lengths, strict=True)]
    total = np.zeros((extents["n"], *whole, extents["co"]))
    for place, _ in taps(along):
        touched = (
            slice(tap * one.dilation, tap * one.dilation + (one.size - 1) * one.stride + 1, one.stride)
            for tap, one in zip(place, along, strict=True)
        )
        total[:, *touched] += np.matmul(x, weight[place])
    kept = (slice(one.before, one.before + length) for one, length in zip(along, lengths, strict=True))
    return in_layout(total[:, *kept], 2, layout)


def _scratch(extents: Extents) -> int:
    whole = prod(one.size * one.stride + one.span + one.before for one in windows(extents, "hw"))
    return extents["n"] * extents["co"] * (whole + volume(extents, ("h", "w")))


def _terms(extents: Extents) -> int:
    return extents["ci"] * prod(-(-one.window.taps // one.step) for one in _along(extents))


_DEFAULTS = window_defaults("hw") | {
    "output_padding": 0,
    "output_padding_h": "output_padding",
    "output_padding_w": "output_padding",
}

KINDS = {
    _NAME: OperatorKind(
        name=_NAME,
        keys=("n", "h", "w", "ci", "co", "kh", "kw"),
        defaults=_DEFAULTS,
        least=window_least("hw") | dict.fromkeys(("output_padding", "output_padding_h", "output_padding_w"), 0),
        derived=_derived,
        layouts={
            "channels-last": Layout(
                {"x": ("n", "h", "w", "ci"), "weight": ("kh", "kw", "ci", "co"), "y": ("n", "oh", "ow", "co")}, _views
            ),
            "channels-first": Layout(
                {"x": ("n", "ci", "h", "w"), "weight": ("ci", "co", "kh", "kw"), "y": ("n", "co", "oh", "ow")},
                _views_first,
            ),
        },
        stacked="n",
        slots=(ACTIVATION, WEIGHT, ACCUMULATOR),
        channel=("co",),
        constant=frozenset({"weight"}),
        packed_by={"weight": ("ci", "co", "kh", "kw", *_DEFAULTS)},
        build=_build,
        reference=_reference,
        scratch=_scratch,
        terms=_terms,
        operations=lambda extents: 2 * volume(extents, ("n", "h", "w", "ci", "co", "kh", "kw")),
        summary="transposed convolution over h and w; the weights are known ahead",
    )
}
