"""Random small operators over all kinds, layouts, element types and epilogues, odd ones above all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from heron_asp import operator
from heron_asp.errors import HeronError
from heron_asp.operators import KINDS, Operator
from heron_asp.operators.windows import SIDES

MOST_OPERATIONS = 3_000_000  # checked in milliseconds
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 20, 32, 33, 48)
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 64, 65, 100)
DTYPES = {
    "mean": ("bf16bf16f32", "bf16bf16f32", "u8s8f32", "f32f32f32"),
    "variance": ("bf16bf16f32", "bf16bf16f32", "s8s8f32", "f32f32f32"),
}
PRODUCT_DTYPES = (
    *("u8s8s32",) * 6,  # runs on an instruction, as the next ones do
    *("bf16bf16f32",) * 3,
    "s8u8s32",
    "s8s8s32",
    "f32f32f32",  # plain vector code, as the next one
    "f16f16f32",
)
EPILOGUES = (
    *("",) * 4,
    "relu",
    "bias",
    "bias,add,clip=-3:300",
    "bias,relu,requantize=u8:per-channel",
    "add,requantize=s8",
)
_TRIES = 1_000


def random_operators(number: int, seed: int) -> Iterator[Operator]:
    """Small operators; the kinds take turns, so each has its share."""
    names = sorted(KINDS)
    for index in range(number):
        yield random_operator(names[index % len(names)], Random(f"{seed} {index}"))


def random_operator(name: str, rng: Random, most: int = MOST_OPERATIONS) -> Operator:
    """An operator of a kind of at most so many operations, with random shape, layout, types and epilogue."""
    kind = KINDS[name]
    for _ in range(_TRIES):
        shape = _SHAPES.get(name, _plain)(name, rng)
        dtype = rng.choice(DTYPES.get(name, PRODUCT_DTYPES))
        try:
            made = operator(name, shape, dtype, rng.choice(list(kind.layouts)), rng.choice(EPILOGUES))
        except HeronError:  # it makes no sense, such as a kernel beyond the padded operand, or floats requantized
            continue
        if made.operations <= most:
            return made
    raise HeronError(f"{name}: none of {_TRIES} random shapes makes sense")


def _plain(name: str, rng: Random) -> dict[str, int]:
    return {key: rng.randint(1, 3) if key == "batch" else rng.choice(EXTENTS) for key in KINDS[name].keys}


def _windows(dims: str, largest: int, name: str, rng: Random) -> dict[str, int]:
    """Extents of windows; the same along all dimensions, or different ones, also on either side."""
    shape = {"n": rng.randint(1, 3)}
    for dim in dims:
        shape |= {dim: rng.randint(1, largest), f"k{dim}": rng.randint(1, 4)}
    steps = {"stride": (1, 1, 2, 3), "dilation": (1, 1, 1, 2)}
    for key, values in steps.items():
        if len(dims) == 1 or rng.random() < 0.5:
            shape[key] = rng.choice(values)
        else:
            shape |= {f"{key}_{dim}": rng.choice(values) for dim in dims}
    if rng.random() < 0.5:
        shape["padding"] = rng.randint(0, 3)
    else:
        shape |= {f"padding_{side}": rng.randint(0, 3) for dim in dims for side in SIDES[dim]}
    if name == "conv2d_transposed":
        shape |= {f"output_padding_{dim}": rng.randint(0, 2) for dim in dims}
    return shape


def _convolution(dims: str, largest: int) -> Callable[[str, Random], dict[str, int]]:
    def shape(name: str, rng: Random) -> dict[str, int]:
        found = _windows(dims, largest, name, rng)
        groups = rng.choice((1, 1, 1, 2, 3, 4)) if "groups" in KINDS[name].defaults else 1
        found |= {"ci": groups * rng.choice(CHANNELS), "co": groups * rng.choice(CHANNELS)}
        return found | ({"groups": groups} if groups > 1 else {})

    return shape


def _depthwise(name: str, rng: Random) -> dict[str, int]:
    return _windows("hw", 12, name, rng) | {"c": rng.choice(CHANNELS)}


_SHAPES: dict[str, Callable[[str, Random], dict[str, int]]] = {
    "conv1d": _convolution("w", 40),
    "conv2d": _convolution("hw", 12),
    "conv2d_dilated": _convolution("hw", 12),
    "conv3d": _convolution("dhw", 6),
    "conv2d_transposed": _convolution("hw", 8),
    "depthwise_conv2d": _depthwise,
}
