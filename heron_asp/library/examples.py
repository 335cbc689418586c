"""What the examples of a library compute: the smallest kernel of each function, in C and in NumPy.

Both fill the operands with the same small numbers and compare with the reference: the sum of all elements of the
result, and a few elements. So no example needs to know what an operator does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.library.choice import Kernel
from heron_asp.library.fields import Field
from heron_asp.library.interface import Argument, Interface, Packed
from heron_asp.library.prototype import CTYPES, folded
from heron_asp.measure.data import case_of
from heron_asp.operators import TensorSpec
from heron_asp.operators.kind import ACCUMULATOR

_LARGEST = 3  # of the numbers that operands are filled with: sums of their products are exact in every accumulator
_SCALE = 0.125  # what numbers become that bring sums of integers to the size of a narrow type
_SAMPLES = 6  # elements of the result that are compared, besides the first and the last

# Element types that C and NumPy know as integers only: from a number and to one.
_C_FROM = {
    "bf16": """\
static uint16_t bf16_from_float(float value) /* cuts the lower half off */
{
    union { float value; uint32_t bits; } whole = {value};
    return (uint16_t)(whole.bits >> 16);
}""",
    "f16": """\
static uint16_t f16_from_float(float value) /* zero and normal numbers; cuts off what does not fit */
{
    union { float value; uint32_t bits; } whole = {value};
    uint32_t magnitude = ((whole.bits & 0x7fffffffu) - (112u << 23)) >> 13;
    return value == 0 ? 0 : (uint16_t)((whole.bits >> 16 & 0x8000u) | magnitude);
}""",
}
_C_TO = {
    "bf16": """\
static float bf16_to_float(uint16_t bits)
{
    union { uint32_t bits; float value; } whole = {(uint32_t)bits << 16};
    return whole.value;
}""",
    "f16": """\
static float f16_to_float(uint16_t bits) /* zero and normal numbers */
{
    union { uint32_t bits; float value; } whole = {0};
    whole.bits = (bits & 0x8000u) << 16 | (((bits & 0x7fffu) << 13) + (112u << 23));
    return bits & 0x7fff ? whole.value : 0;
}""",
}
_PYTHON_FROM = {
    "bf16": '''\
def bf16_from_float(values):
    """Cuts the lower half off."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)'''
}
_PYTHON_TO = {
    "bf16": '''\
def bf16_to_float(bits):
    """bf16 is the upper half of a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)'''
}


def small(size: int, seed: int, least: int) -> npt.NDArray[np.int64]:
    """The numbers that the examples fill an operand with: from `least` to `_LARGEST`, in no order."""
    mixed = (np.arange(size, dtype=np.uint32) + np.uint32(seed)) * np.uint32(2654435761) >> np.uint32(9)
    return least + (mixed % np.uint32(_LARGEST - least + 1)).astype(np.int64)


@dataclass(frozen=True)
class Tensor:
    """A tensor of an example: how C and NumPy write of it.

    Attributes:
        argument: the tensor.
        spec: its extents.
        named: the extents that the example has variables for, by name.
        seed: what it is filled from.
        is_scale: it brings sums of integers to the size of a narrow type.
    """

    argument: Argument
    spec: TensorSpec
    named: frozenset[str]
    seed: int
    is_scale: bool = False

    @property
    def variable(self) -> str:
        """The variable."""
        return self.argument.variable

    @property
    def _shape(self) -> list[str]:
        pairs = zip(self.argument.extents, self.spec.shape, strict=False)  # a single number has the shape (1,)
        return [name if name in self.named else str(extent) for name, extent in pairs]

    @property
    def size(self) -> str:
        """The number of elements, as a C expression."""
        return "(size_t)" + " * ".join(self._shape or ["1"])

    @property
    def shape(self) -> str:
        """The extents, as a Python tuple."""
        if self.argument.by_value:
            return "(1,)"
        return f"({', '.join(self._shape)}{',' if len(self._shape) == 1 else ''})"

    @property
    def row(self) -> str:
        """Elements of a row, as a C expression."""
        return self._shape[-1]

    @property
    def extents(self) -> str:
        """The extents' names; empty where they are in the program already."""
        return "" if {*self.argument.extents} <= self.named else " x ".join(self.argument.extents)

    @property
    def least(self) -> int:
        """The smallest number that it is filled with."""
        if self.is_scale:
            return 1
        bounds = self.argument.dtype.bounds
        return 0 if bounds and bounds[0] == 0 else -_LARGEST

    @property
    def elements(self) -> npt.NDArray[Any]:
        """What it is filled with."""
        numbers = small(prod(self.spec.shape), self.seed, self.least) * (_SCALE if self.is_scale else 1)
        return numbers.reshape(self.spec.shape).astype(self.spec.dtype.numpy)

    @property
    def numpy(self) -> str:
        """NumPy's name of the element type that is passed."""
        return self.argument.dtype.storage

    def load(self, place: str) -> str:
        """The number that an element stands for, as a C expression."""
        element = f"{self.variable}[{place}]"
        dtype = self.argument.dtype.name
        return f"{dtype}_to_float({element})" if dtype in _C_TO else f"(double){element}"

    def c_number(self, place: str) -> str:
        """An element of the operand, as a C expression."""
        index = place if self.seed == 0 else str(self.seed) if place == "0" else f"{place} + {self.seed}"
        number = f"small({index}, {self.least}, {_LARGEST})"
        number = f"{_SCALE}f * {number}" if self.is_scale else number
        return f"{self.argument.dtype.name}_from_float({number})" if self.argument.dtype.name in _C_FROM else number

    @property
    def python_numbers(self) -> str:
        """All elements, as a NumPy expression."""
        numbers = f"small({self.variable}.shape, {self.seed}, {self.least}, {_LARGEST})"
        numbers = f"{_SCALE} * {numbers}" if self.is_scale else numbers
        helper = self.argument.dtype.name in _PYTHON_FROM
        return f"{self.argument.dtype.name}_from_float({numbers})" if helper else numbers

    @property
    def python_values(self) -> str:
        """The numbers that the elements stand for, as a NumPy expression."""
        helper = self.argument.dtype.name in _PYTHON_TO
        return f"{self.argument.dtype.name}_to_float({self.variable})" if helper else self.variable


@dataclass(frozen=True)
class Expected:
    """A number of the reference, and how far the library's may be from it.

    Attributes:
        at: place of the element, counted row by row.
        value: the number.
        tolerance: 0 where it is exact.
    """

    at: int
    value: float
    tolerance: float

    def __str__(self) -> str:
        return f"{_text(self.value)}, {_text(self.tolerance)}"


def _text(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) < 2**53 else f"{number:.9g}"


def _rounded(tolerance: float) -> float:
    """Two digits, rounded up."""
    return float(f"{1.05 * tolerance:.1e}")


@dataclass(frozen=True)
class Example:
    """A call that an example makes.

    Attributes:
        kernel: what computes.
    """

    kernel: Kernel

    @property
    def interface(self) -> Interface:
        """The functions that it calls."""
        return self.kernel.interface

    @property
    def shape(self) -> dict[str, int]:
        """The shape as it is given, by the names of the fields."""
        return self.kernel.given

    @property
    def c_shape(self) -> str:
        """The shape as a struct of C."""
        parts = tuple(f".{name} = {value}" for name, value in self.shape.items())
        return folded(f"    const struct {self.interface.struct} shape = {{", parts, "};", " " * 8)

    @property
    def python_shape(self) -> str:
        """The shape as a struct of Python."""
        parts = tuple(f"{name}={value}" for name, value in self.shape.items())
        return folded(f"    shape = {self.interface.struct}(", parts, ")", " " * 8)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that are passed, the result last."""
        specs = {spec.name: spec for spec in self.kernel.operator.tensors}
        names = {field.key for field in self.interface.fields if field.key == field.name}
        named = frozenset(names if self.interface.positional else ())
        passed = enumerate(self.interface.passed)
        integers = self.kernel.operator.types[ACCUMULATOR].is_integer
        return tuple(
            Tensor(argument, specs[argument.name], named, number, integers and not argument.dtype.is_integer)
            for number, argument in passed
        )

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The tensors that are read."""
        return self.tensors[:-1]

    @property
    def result(self) -> Tensor:
        """The tensor that is written."""
        return self.tensors[-1]

    @cached_property
    def _reference(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Each element of the result and its tolerance, row by row."""
        operator = self.kernel.operator
        inputs = {tensor.spec.name: tensor.elements for tensor in self.operands} | dict(operator.constants)
        expected = case_of(operator, "example", inputs)
        values = expected.expected.astype(np.float64).ravel()
        tolerance = np.zeros_like(values) if expected.tolerance is None else expected.tolerance.ravel()
        return values, tolerance

    @cached_property
    def samples(self) -> list[Expected]:
        """A few elements of the result."""
        values, tolerance = self._reference
        inner = np.random.default_rng(0).integers(0, values.size, _SAMPLES)
        places = sorted({0, values.size - 1, *map(int, inner)})
        return [Expected(at, float(values[at]), _rounded(float(tolerance[at]))) for at in places]

    @property
    def c_samples(self) -> str:
        """The initialiser of an array of them in C."""
        parts = tuple(f"{{{sample.at}, {sample}}}" for sample in self.samples)
        return folded("        ", parts, ",", " " * 8)

    @property
    def python_samples(self) -> str:
        """The lines of a list of them in Python."""
        parts = tuple(f"({sample.at}, {sample})" for sample in self.samples)
        return folded("        ", parts, ",", " " * 8)

    @property
    def total(self) -> Expected:
        """The sum of all elements; a sum of floats in double precision rounds, too."""
        values, tolerance = self._reference
        rounding = values.size * 2.0**-53 * float(np.abs(values).sum()) if tolerance.any() else 0.0
        return Expected(0, float(values.sum()), _rounded(float(tolerance.sum()) + rounding))

    @property
    def c_call(self) -> str:
        """The call in C, rows packed one after the other."""
        arguments = self._c_arguments(self.interface.fields)
        for tensor in self.tensors:
            argument = tensor.argument
            arguments.append(argument.variable if argument.by_value else argument.pointer)
            arguments += [tensor.row] if argument.is_strided else []
        return folded(f"    succeed({self.interface.function}(", tuple(arguments), "));", " " * 8)

    @property
    def python_call(self) -> str:
        """The call in Python."""
        arguments = self._python_arguments(self.interface.fields)
        for argument in self.interface.passed:
            number = f"ctypes.{CTYPES[argument.dtype.name]}.from_buffer({argument.variable})"
            arguments.append(number if argument.by_value else f"pointer({argument.pointer})")
            arguments += [f"leading({argument.variable})"] if argument.is_strided else []
        return folded(f"    succeed(library.{self.interface.function}(", tuple(arguments), "))", " " * 8)

    def c_bytes(self, packed: Packed) -> str:
        """The arguments of the function in C that says how much memory a packed operand needs."""
        return ", ".join(self._c_arguments(packed.fields))

    def c_pack(self, packed: Packed) -> str:
        """The call of a packing function in C."""
        argument = packed.argument
        tensor = next(tensor for tensor in self.tensors if tensor.argument == argument)
        leading = [tensor.row] if argument.leading else []
        arguments = (*self._c_arguments(packed.fields), argument.variable, *leading, argument.pointer)
        return folded(f"    succeed({packed.pack.name}(", arguments, "));", " " * 8)

    def python_allocate(self, packed: Packed) -> str:
        """The allocation of a packed operand in Python."""
        size = f"library.{packed.bytes.name}({', '.join(self._python_arguments(packed.fields))})"
        return folded(f"    {packed.argument.pointer} = aligned(", (size, "np.uint8"), ")", " " * 8)

    def python_pack(self, packed: Packed) -> str:
        """The call of a packing function in Python."""
        argument = packed.argument
        leading = [f"leading({argument.variable})"] if argument.leading else []
        pointers = [f"pointer({argument.variable})", *leading, f"pointer({argument.pointer})"]
        arguments = (*self._python_arguments(packed.fields), *pointers)
        return folded(f"    succeed(library.{packed.pack.name}(", arguments, "))", " " * 8)

    def _c_arguments(self, fields: Sequence[Field]) -> list[str]:
        arguments = self.interface.shape_arguments(fields)
        return [*arguments] if self.interface.positional else [f"&{argument}" for argument in arguments]

    def _python_arguments(self, fields: Sequence[Field]) -> list[str]:
        arguments = self.interface.shape_arguments(fields)
        return [*arguments] if self.interface.positional else [f"ctypes.byref({argument})" for argument in arguments]


def examples(kernels: Sequence[Kernel]) -> list[Example]:
    """An example for each function of a library: its kernel with the least work."""
    smallest: dict[str, Kernel] = {}
    for kernel in sorted(kernels, key=lambda kernel: kernel.operator.operations):
        smallest.setdefault(kernel.interface.function, kernel)
    return [Example(smallest[function]) for function in sorted(smallest)]


def c_helpers(shown: Sequence[Example]) -> list[str]:
    """C functions that some examples need."""
    return _used(_C_FROM, _C_TO, shown)


def python_helpers(shown: Sequence[Example]) -> list[str]:
    """Python functions that some examples need."""
    return _used(_PYTHON_FROM, _PYTHON_TO, shown)


def _used(from_number: Mapping[str, str], to_number: Mapping[str, str], shown: Sequence[Example]) -> list[str]:
    filled = {tensor.argument.dtype.name for example in shown for tensor in example.operands}
    looked_at = {example.result.argument.dtype.name for example in shown}
    return [
        *(text for name, text in from_number.items() if name in filled),
        *(text for name, text in to_number.items() if name in looked_at),
    ]
