"""What is done to each element of a sum before it is stored: bias, residual, activation, requantization.

An epilogue is a chain of steps, written `bias,add,relu,clip=0:6,requantize=u8:per-channel`:

    bias           adds bias(channel), of the accumulator's type
    add            adds residual, of the result's shape and the accumulator's type
    relu           max(., 0)
    clip=LOW:HIGH  min(max(., LOW), HIGH)
    shift=BITS     integers shifted right by 0 to 31 bits, rounded down
    narrow=s8      to u8 or s8, the last step: saturated
    requantize=u8  from s32 to u8 or s8, the last step: round(. * scale) + zero_point, saturated; the product is in f32,
                   ties go to the even neighbour, as in ONNX's QLinearConv and QLinearMatMul. scale is x_scale * w_scale
                   / y_scale: one number, or one a channel (`requantize=u8:per-channel`); zero_point is of the result's
                   type

Sums of integers must fit the accumulator together with bias and residual: what a kernel makes of others is not defined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

from heron_asp.dtypes import DTYPES, DType
from heron_asp.errors import HeronError
from heron_asp.operators.kind import Array
from heron_asp.resources import suggestion

_QUANTIZED = ("u8", "s8")
_PER_CHANNEL, _PER_TENSOR = "per-channel", "per-tensor"


class Extent(Enum):
    """How large a tensor of a step is."""

    ONE = auto()  # a single element
    CHANNEL = auto()  # one for each channel of the result
    RESULT = auto()  # one for each element of the result


@dataclass(frozen=True)
class Further:
    """A tensor that a step takes."""

    extent: Extent
    dtype: DType


class Step(ABC):
    """A step of an epilogue."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The step as it is written."""

    def tensors(self, accumulator: DType) -> Mapping[str, Further]:
        """The tensors that the step takes, by name."""
        return {}

    def result(self, before: DType) -> DType:
        """The type of what the step makes."""
        return before

    def check(self, accumulator: DType) -> None:  # noqa: B027
        """Makes sure that the step makes sense for a type.

        Raises:
            HeronError: it does not.
        """

    @abstractmethod
    def express(self, value: Any, elements: Mapping[str, Any], accumulator: DType) -> Any:
        """The step in TIR: from an element to the next, with the elements of the step's tensors."""

    @abstractmethod
    def apply(self, values: Array, tensors: Mapping[str, Array]) -> Array:
        """The step in numpy, on int64 for integers and float64 for floats; the tensors broadcast to the values."""


@dataclass(frozen=True)
class Plus(Step):
    """Adds a tensor.

    Attributes:
        name: of the step: `bias` or `add`.
        tensor: its name.
        extent: its extent.
    """

    name: str
    tensor: str
    extent: Extent

    @property
    def text(self) -> str:
        """The step as it is written."""
        return self.name

    def tensors(self, accumulator: DType) -> Mapping[str, Further]:
        """The summand."""
        return {self.tensor: Further(self.extent, accumulator)}

    def express(self, value: Any, elements: Mapping[str, Any], accumulator: DType) -> Any:
        """The sum, in the accumulator's type."""
        del accumulator
        return value + elements[self.tensor]

    def apply(self, values: Array, tensors: Mapping[str, Array]) -> Array:
        """The sum."""
        total: Array = values + tensors[self.tensor]
        return total


@dataclass(frozen=True)
class Relu(Step):
    """Makes negative elements zero."""

    @property
    def text(self) -> str:
        """The step as it is written."""
        return "relu"

    def express(self, value: Any, elements: Mapping[str, Any], accumulator: DType) -> Any:
        """max(value, 0)."""
        from tvm import tirx

        del elements
        return tirx.max(value, tirx.const(0, accumulator.storage))

    def apply(self, values: Array, tensors: Mapping[str, Array]) -> Array:
        """max(values, 0)."""
        del tensors
        return np.maximum(values, 0)


@dataclass(frozen=True)
class Clip(Step):
    """Keeps elements between two bounds, which the accumulator's type can hold."""

    low: float
    high: float

    @property
    def text(self) -> str:
        """The step as it is written."""
        return f"clip={_number(self.low)}:{_number(self.high)}"

    def check(self, accumulator: DType) -> None:
        """Both bounds are numbers of the type."""
        for bound in (self.low, self.high):
            if accumulator.bounds is None:
                held = abs(bound) <= float(np.finfo(accumulator.numpy).max)
            else:
                held = bound.is_integer() and accumulator.bounds[0] <= bound <= accumulator.bounds[1]
            if not held:
                raise HeronError(f"--epilogue {self.text}: {_number(bound)} is no number of {accumulator.name}")

    def express(self, value: Any, elements: Mapping[str, Any], accumulator: DType) -> Any:
        """min(max(value, low), high)."""
        from tvm import tirx

        del elements
        number: Callable[[float], float | int] = float if accumulator.bounds is None else int
        low, high = (tirx.const(number(bound), accumulator.storage) for bound in (self.low, self.high))
        return tirx.min(tirx.max(value, low), high)

    def apply(self, values: Array, tensors: Mapping[str, Array]) -> Array:
        """min(max(values, low), high)."""
        del tensors
        low, high = (values.dtype.type(bound) for bound in (self.low, self.high))
        clipped: Array = np.clip(values, low, high)
        return clipped


@dataclass(frozen=True)
class Shift(Step):
    """Divides integers by a power of two, rounded down.

    Attributes:
        bits: by how many bits they are shifted to the right.
    """

    bits: int

    @property
    def text(self) -> str:
        """The step as it is written."""
        return f"shift={self.bits}"

    def check(self, accumulator: DType) -> None:
        """The sums are integers."""
        if not accumulator.is_integer:
            raise HeronError(f"--epilogue {self.text}: shifts integers, not {accumulator.name}", "e.g. --dtype u8s8s32")

    def express(self, value: Any, elements: Mapping[str, Any], accumulator: DType) -> Any:
        """An arithmetic shift."""
        from tvm import tirx

        del elements
        return value >> tirx.const(self.bits, accumulator.storage)

    def apply(self, values: Array, tensors: Mapping[str, Array]) -> Array:
        """The same in numpy."""
        del tensors
        shifted: Array = values >> self.bits
        return shifted


@dataclass(frozen=True)
class Narrow(Step):
    """From integers to u8 or s8: what is beyond its bounds becomes the nearest of them.

    Attributes:
        to: the type of the result.
    """

    to: DType

    @property
    def text(self) -> str:
        """The step as it is written."""
        return f"narrow={self.to.name}"

    def result(self, before: DType) -> DType:
        """What is narrowed to."""
        del before
        return self.to

    def check(self, accumulator: DType) -> None:
        """The sums are integers."""
        if not accumulator.is_integer:
            raise HeronError(
                f"--epilogue {self.text}: narrows integers, not {accumulator.name}", "e.g. --dtype u8s8s32"
            )

    def express(self, value: Any, elements: Mapping[str, Any], accumulator: DType) -> Any:
        """Saturated, then cut off."""
        from tvm import tirx

        del elements
        low, high = (tirx.const(bound, accumulator.storage) for bound in _bounds(self.to))
        return tirx.min(tirx.max(value, low), high).astype(self.to.storage)

    def apply(self, values: Array, tensors: Mapping[str, Array]) -> Array:
        """The same in numpy."""
        del tensors
        narrowed: Array = np.clip(values, *_bounds(self.to))
        return narrowed


@dataclass(frozen=True)
class Requantize(Step):
    """From sums of s32 to u8 or s8 with a scale and a zero point.

    Attributes:
        to: the type of the result.
        per_channel: each channel has a scale of its own.
    """

    to: DType
    per_channel: bool

    @property
    def text(self) -> str:
        """The step as it is written."""
        return f"requantize={self.to.name}" + (f":{_PER_CHANNEL}" if self.per_channel else "")

    def tensors(self, accumulator: DType) -> Mapping[str, Further]:
        """Scale and zero point."""
        del accumulator
        extent = Extent.CHANNEL if self.per_channel else Extent.ONE
        return {"scale": Further(extent, DTYPES["f32"]), "zero_point": Further(Extent.ONE, self.to)}

    def result(self, before: DType) -> DType:
        """What is requantized to."""
        del before
        return self.to

    def check(self, accumulator: DType) -> None:
        """The sums are integers of 32 bits."""
        if accumulator.name != "s32":
            raise HeronError(
                f"--epilogue {self.text}: takes sums of s32, not {accumulator.name}", "e.g. --dtype u8s8s32"
            )

    def express(self, value: Any, elements: Mapping[str, Any], accumulator: DType) -> Any:
        """Saturated before it becomes an integer: what no integer can hold has no defined one."""
        from tvm import tirx

        del accumulator
        low, high = _bounds(self.to)
        zero = elements["zero_point"].astype("int32")
        rounded = tirx.nearbyint(value.astype("float32") * elements["scale"])
        least, most = ((tirx.const(bound, "int32") - zero).astype("float32") for bound in (low, high))
        return (tirx.min(tirx.max(rounded, least), most).astype("int32") + zero).astype(self.to.storage)

    def apply(self, values: Array, tensors: Mapping[str, Array]) -> Array:
        """The same in numpy, whose rint takes ties to the even neighbour too."""
        low, high = _bounds(self.to)
        zero = tensors["zero_point"].astype(np.int64)
        with np.errstate(over="ignore"):  # what is infinite saturates
            rounded = np.rint(values.astype(np.float32) * tensors["scale"].astype(np.float32))
        saturated: Array = np.clip(rounded, low - zero, high - zero).astype(np.int64) + zero
        return saturated


def _bounds(integer: DType) -> tuple[int, int]:
    assert integer.bounds is not None
    return integer.bounds


def _number(bound: float) -> str:
    return str(int(bound)) if bound.is_integer() else repr(bound)


_SIMPLE: Mapping[str, Step] = {
    "bias": Plus("bias", "bias", Extent.CHANNEL),
    "add": Plus("add", "residual", Extent.RESULT),
    "relu": Relu(),
}
_MOST_SHIFT = 31


def parse_epilogue(text: str) -> tuple[Step, ...]:
    """Parses `bias,relu,requantize=u8`; an empty text is no step.

    Raises:
        HeronError: an unknown step, a wrong parameter, a step that takes tensors twice, or one after the last.
    """
    steps = tuple(_step(text, part.strip()) for part in text.split(",")) if text.strip() else ()
    names = [step.text for step in steps if step.tensors(DTYPES["s32"])]
    for step in steps[:-1]:
        if isinstance(step, Requantize | Narrow):
            raise HeronError(f"--epilogue {text}: '{step.text}' must be the last step")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise HeronError(f"--epilogue {text}: '{twice}' is given twice")
    return steps


def _step(text: str, part: str) -> Step:
    name, separator, said = part.partition("=")
    if name not in _NAMES:
        raise HeronError(f"--epilogue {text}: no step '{name}'", suggestion(name, _NAMES))
    if name in _SIMPLE:
        if separator:
            raise HeronError(f"--epilogue {text}: '{name}' takes no '={said}'")
        return _SIMPLE[name]
    return _WITH_NUMBERS[name](text, part, said)


def _clip(text: str, part: str, said: str) -> Clip:
    try:
        low, high = map(float, said.split(":"))
    except ValueError:
        raise HeronError(f"--epilogue {text}: '{part}' is not clip=LOW:HIGH", "e.g. clip=0:6") from None
    if not low <= high:
        raise HeronError(f"--epilogue {text}: '{part}' leaves nothing", "the lower bound comes first: clip=0:6")
    return Clip(low, high)


def _requantize(text: str, part: str, said: str) -> Requantize:
    to, separator, scales = said.partition(":")
    if to not in _QUANTIZED or (separator and scales not in (_PER_CHANNEL, _PER_TENSOR)):
        raise HeronError(
            f"--epilogue {text}: '{part}' is not requantize=TYPE or requantize=TYPE:{_PER_CHANNEL}",
            f"TYPE is {' or '.join(_QUANTIZED)}",
        )
    return Requantize(DTYPES[to], scales == _PER_CHANNEL)


def _shift(text: str, part: str, said: str) -> Shift:
    if not said.isdecimal() or not said.isascii() or int(said) > _MOST_SHIFT:
        raise HeronError(f"--epilogue {text}: '{part}' is not shift=BITS, 0 to {_MOST_SHIFT}", "e.g. shift=8")
    return Shift(int(said))


def _narrow(text: str, part: str, said: str) -> Narrow:
    if said not in _QUANTIZED:
        raise HeronError(f"--epilogue {text}: '{part}' is not narrow=TYPE", f"TYPE is {' or '.join(_QUANTIZED)}")
    return Narrow(DTYPES[said])


_WITH_NUMBERS: Mapping[str, Callable[[str, str, str], Step]] = {
    "clip": _clip,
    "shift": _shift,
    "narrow": _narrow,
    "requantize": _requantize,
}
_NAMES = (*_SIMPLE, *_WITH_NUMBERS)
