"""What the examples of a library compute: the smallest kernel of each function, in C and in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heron_asp.dtypes import DType
from heron_asp.library.choice import Kernel
from heron_asp.library.interface import Argument, Interface

_LARGEST = 3  # of the numbers that operands are filled with: sums of their products are exact in every accumulator
_NAIVE_STEPS = 2**26  # multiplications of a naive product that take about a second, compiled without optimisation

# Element types that C and NumPy know as integers only: from and to a number.
_C_HELPERS = {
    "bf16": """\
static float bf16_to_float(uint16_t bits)
{
    union { uint32_t bits; float value; } whole = {(uint32_t)bits << 16};
    return whole.value;
}

static uint16_t bf16_from_float(float value) /* cuts the lower half off */
{
    union { float value; uint32_t bits; } whole = {value};
    return (uint16_t)(whole.bits >> 16);
}""",
    "f16": """\
static float f16_to_float(uint16_t bits) /* zero and normal numbers */
{
    union { uint32_t bits; float value; } whole = {0};
    whole.bits = (bits & 0x8000u) << 16 | (((bits & 0x7fffu) << 13) + (112u << 23));
    return bits & 0x7fff ? whole.value : 0;
}

static uint16_t f16_from_float(float value) /* zero and normal numbers; cuts off what does not fit */
{
    union { float value; uint32_t bits; } whole = {value};
    uint32_t magnitude = ((whole.bits & 0x7fffffffu) - (112u << 23)) >> 13;
    return value == 0 ? 0 : (uint16_t)((whole.bits >> 16 & 0x8000u) | magnitude);
}""",
}
_PYTHON_HELPERS = {
    "bf16": '''\
def bf16_to_float(bits):
    """bf16 is the upper half of a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16_from_float(values):
    """Cuts the lower half off."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)''',
}


@dataclass(frozen=True)
class Tensor:
    """A tensor of an example: how C and NumPy write of it."""

    argument: Argument

    @property
    def name(self) -> str:
        """The variable."""
        return self.argument.name

    @property
    def size(self) -> str:
        """The number of elements, as a C expression."""
        return " * ".join(["(size_t)" + self.argument.keys[0], *self.argument.keys[1:]])

    @property
    def index(self) -> str:
        """The place of an element of compact rows, as a C expression of loop variables."""
        place = f"{self.argument.keys[0]}_at"
        for key in self.argument.keys[1:]:
            place = f"({place}) * {key} + {key}_at" if " " in place else f"{place} * {key} + {key}_at"
        return place

    @property
    def least(self) -> int:
        """The smallest number that it is filled with."""
        bounds = self.argument.dtype.bounds
        return 0 if bounds and bounds[0] == 0 else -_LARGEST

    @property
    def numpy(self) -> str:
        """NumPy's name of the element type that is passed."""
        return self.argument.dtype.storage

    def load(self, place: str) -> str:
        """The number that an element stands for, as a C expression."""
        element = f"{self.name}[{place}]"
        dtype = self.argument.dtype.name
        return f"{dtype}_to_float({element})" if dtype in _C_HELPERS else f"(double){element}"

    def small(self, seed: int) -> str:
        """Element number i of the operand, as a C expression."""
        number = f"small(i{f' + {seed}' if seed else ''}, {self.least}, {_LARGEST})"
        return f"{self.argument.dtype.name}_from_float({number})" if self.argument.dtype.name in _C_HELPERS else number

    @property
    def values(self) -> str:
        """The numbers that the elements stand for, as a NumPy expression."""
        helper = self.argument.dtype.name in _PYTHON_HELPERS
        return f"{self.argument.dtype.name}_to_float({self.name})" if helper else f"{self.name}.astype(np.float64)"

    @property
    def plain(self) -> str:
        """What to compare with exact numbers, as a NumPy expression."""
        return self.values if self.argument.dtype.name in _PYTHON_HELPERS else self.name

    @property
    def random(self) -> str:
        """Random elements, as a NumPy expression."""
        numbers = f"random.integers({self.least}, {_LARGEST + 1}, {self.name}.shape)"
        return (
            f"{self.argument.dtype.name}_from_float({numbers})"
            if self.argument.dtype.name in _PYTHON_HELPERS
            else numbers
        )


@dataclass(frozen=True)
class Example:
    """A product that an example computes.

    Attributes:
        interface: the functions that it calls.
        shape: the extents, by key.
        step: only every so manieth element is compared with the naive product.
        tolerance: the largest error; 0 where the result is exact.
    """

    interface: Interface
    shape: tuple[tuple[str, int], ...]
    step: int
    tolerance: float

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, the result last."""
        return tuple(Tensor(argument) for argument in self.interface.arguments)

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The tensors that are read."""
        return self.tensors[:-1]

    @property
    def result(self) -> Tensor:
        """The tensor that is written."""
        return self.tensors[-1]

    @property
    def summed(self) -> tuple[str, ...]:
        """The shape keys that are summed over."""
        return tuple(key for key in self.interface.kind.keys if key not in self.result.argument.keys)

    @property
    def indices(self) -> tuple[str, ...]:
        """Loop variables of the result's extents from the place `at` of an element, as C definitions."""
        first, *inner = self.result.argument.keys
        found, below = [], ""
        for key in reversed(inner):
            found.append(f"{key}_at = at{below} % {key}")
            below += f" / {key}"
        return (f"{first}_at = at{below}", *reversed(found))

    @property
    def c_wrong(self) -> str:
        """Whether element `at` is wrong, as a C expression."""
        value = self.result.load("at")
        return f"!(fabs({value} - expected) <= {self.tolerance})" if self.tolerance else f"{value} != expected"

    @property
    def python_right(self) -> str:
        """Whether all elements are right, as a NumPy expression."""
        value = self.result.values
        return (
            f"np.all(abs({value} - expected) <= {self.tolerance})"
            if self.tolerance
            else f"np.array_equal({self.result.plain}, expected)"
        )

    @property
    def c_call(self) -> str:
        """The arguments of the call in C, rows packed one after the other."""
        arguments = [*self.interface.kind.keys]
        for argument in self.interface.arguments:
            arguments += [argument.pointer, argument.row] if argument.leading else [argument.pointer]
        return ", ".join(arguments)

    @property
    def python_call(self) -> str:
        """The arguments of the call in Python."""
        arguments = [*self.interface.kind.keys]
        for argument in self.interface.arguments:
            arguments.append(f"pointer({argument.pointer})")
            arguments += [f"leading({argument.name})"] if argument.leading else []
        return ", ".join(arguments)

    def c_pack(self, argument: Argument) -> str:
        """The arguments of a packing function in C."""
        packed = next(one for one in self.interface.packed if one.argument == argument)
        leading = [argument.row] if argument.plain_leading else []
        return ", ".join([*packed.keys, argument.name, *leading, argument.pointer])

    def python_pack(self, argument: Argument) -> str:
        """The arguments of a packing function in Python."""
        packed = next(one for one in self.interface.packed if one.argument == argument)
        leading = [f"leading({argument.name})"] if argument.plain_leading else []
        return ", ".join([*packed.keys, f"pointer({argument.name})", *leading, f"pointer({argument.pointer})"])


def examples(kernels: Sequence[Kernel]) -> list[Example]:
    """An example for each function of a library: its kernel with the least work."""
    smallest: dict[str, Kernel] = {}
    for kernel in sorted(kernels, key=lambda kernel: kernel.tuned.task.operator.operations):
        smallest.setdefault(kernel.interface.function, kernel)
    return [_example(smallest[function]) for function in sorted(smallest)]


def _example(kernel: Kernel) -> Example:
    operator = kernel.tuned.task.operator
    step = operator.operations // 2 // _NAIVE_STEPS + 1
    return Example(
        kernel.interface,
        tuple(operator.shape.items()),
        step | 1 if step > 1 else 1,  # odd, so as to visit all columns
        _tolerance(operator.result.dtype, operator.operations),
    )


def _tolerance(dtype: DType, operations: int) -> float:
    """Sums of small products are exact but in the narrow floats, which round each sum."""
    return float(_LARGEST**2 * operations * dtype.epsilon) if dtype.name in ("f16", "bf16") else 0.0


def c_helpers(kernels: Sequence[Kernel]) -> list[str]:
    """C functions that the examples of these kernels need."""
    return _used(_C_HELPERS, kernels)


def python_helpers(kernels: Sequence[Kernel]) -> list[str]:
    """Python functions that the examples of these kernels need."""
    return _used(_PYTHON_HELPERS, kernels)


def _used(helpers: dict[str, str], kernels: Sequence[Kernel]) -> list[str]:
    used = {argument.dtype.name for kernel in kernels for argument in kernel.interface.arguments}
    return [text for name, text in helpers.items() if name in used]
