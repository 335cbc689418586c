"""The C functions of an operator family and a dtype, made from the family's metadata: names, parameters, prototypes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from heron_asp.dtypes import DType, dtype_triple
from heron_asp.operators import OperatorKind

# How C stores an element. f16 and bf16 have no type in every C compiler: the bits are passed as integers.
C_TYPES = {
    "u8": "uint8_t",
    "s8": "int8_t",
    "s16": "int16_t",
    "s32": "int32_t",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f32": "float",
}
NOTES = {
    "f16": "f16 elements are passed as uint16_t: the bits of an IEEE half.",
    "bf16": "bf16 elements are passed as uint16_t: the upper half of the bits of a float.",
}
_WIDTH = 110


@dataclass(frozen=True)
class Prototype:
    """A C function: its name, and its declaration without the semicolon."""

    name: str
    parameters: tuple[str, ...]
    returns: str = "int"

    @property
    def text(self) -> str:
        """The declaration, broken into lines that are not too long."""
        lines, line = [], f"{self.returns}{'' if self.returns.endswith('*') else ' '}{self.name}("
        indent = " " * len(line)
        parameters = self.parameters or ("void",)
        for number, parameter in enumerate(parameters):
            last = number == len(parameters) - 1
            piece = parameter + (")" if last else ",")
            if len(line) + 1 + len(piece) > _WIDTH and number > 0:
                lines.append(line)
                line = indent + piece
            else:
                line += (" " if number > 0 else "") + piece
        return "\n".join([*lines, line])


@dataclass(frozen=True)
class Argument:
    """A tensor of an operator, as its C functions take it.

    Attributes:
        name: the tensor's name.
        keys: its extents as shape keys.
        dtype: its element type.
        constant: it is known ahead, so calls take it packed.
        result: it is written.
    """

    name: str
    keys: tuple[str, ...]
    dtype: DType
    constant: bool
    result: bool

    @property
    def c_type(self) -> str:
        """C's type of an element."""
        return C_TYPES[self.dtype.name]

    @property
    def pointer(self) -> str:
        """The pointer in a call."""
        return f"packed_{self.name}" if self.constant else self.name

    @property
    def pointer_declaration(self) -> str:
        """The declaration of the pointer in a call."""
        if self.constant:
            return f"const void *{self.pointer}"
        return f"{'' if self.result else 'const '}{self.c_type} *{self.name}"

    @property
    def plain_leading(self) -> str:
        """The leading dimension of the tensor where it is not packed; empty for a vector."""
        return f"ld{self.name}" if len(self.keys) > 1 else ""

    @property
    def leading(self) -> str:
        """The leading dimension in a call; empty where it has none."""
        return "" if self.constant else self.plain_leading

    @property
    def row(self) -> str:
        """Elements of a row, as a C expression."""
        return self.keys[-1]

    @property
    def rows(self) -> str:
        """The number of rows, as a C expression of 64 bits."""
        return " * ".join(["(int64_t)" + self.keys[0], *self.keys[1:-1]])

    @property
    def summary(self) -> str:
        """One line of the header's documentation."""
        shape = f"{' x '.join(self.keys)} elements of {self.dtype.name}"
        if self.constant:
            return f"{self.pointer}: {self.name}, {shape}, packed by the function below"
        distance = f", rows {self.leading} apart" if self.leading else ""
        matrices = f", matrices {' * '.join((*self.keys[1:-1], self.leading))} apart" if len(self.keys) > 2 else ""
        return f"{self.name}: {shape}{distance}{matrices}{'; written' if self.result else ''}"


@dataclass(frozen=True)
class Packed:
    """The two functions that pack a constant tensor.

    Attributes:
        argument: the tensor.
        keys: shape keys that the layout depends on, in the order of the operator's.
        bytes: the function that says how much memory is needed.
        pack: the function that packs.
        kernel: parameters of the function that TVM compiled.
    """

    argument: Argument
    keys: tuple[str, ...]
    bytes: Prototype
    pack: Prototype
    kernel: tuple[str, ...]


@dataclass(frozen=True)
class Interface:
    """The C functions of an operator family and a dtype.

    Attributes:
        kind: the operator family.
        dtype: activation, weight and accumulator types, e.g. `u8s8s32`.
        prefix: begins the name of each function; tells libraries apart that are linked into one program.
    """

    kind: OperatorKind
    dtype: str
    prefix: str = ""

    @property
    def function(self) -> str:
        """The name of the function that dispatches."""
        return f"{self.prefix}{self.kind.name}_{self.dtype}"

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """All tensors, the result last."""
        types = dtype_triple(self.dtype)
        last = list(self.kind.tensors)[-1]
        return tuple(
            Argument(name, keys, types[slot], name in self.kind.constant, name == last)
            for (name, keys), slot in zip(self.kind.tensors.items(), self.kind.slots, strict=True)
        )

    @property
    def operands(self) -> tuple[Argument, ...]:
        """The tensors that are read."""
        return self.arguments[:-1]

    @property
    def result(self) -> Argument:
        """The tensor that is written."""
        return self.arguments[-1]

    @property
    def strided(self) -> tuple[Argument, ...]:
        """The tensors that have a leading dimension in a call."""
        return tuple(argument for argument in self.arguments if argument.leading)

    @property
    def kernel(self) -> tuple[str, ...]:
        """Parameters of a compiled kernel; where leading dimensions are free, `leading` follows."""
        return tuple(argument.pointer_declaration for argument in self.arguments)

    @property
    def leading(self) -> tuple[str, ...]:
        """Further parameters of a kernel with free leading dimensions."""
        return tuple(f"int {argument.leading}" for argument in self.strided)

    @property
    def call(self) -> Prototype:
        """The function that dispatches."""
        parameters = [f"int {key}" for key in self.kind.keys]
        for argument in self.arguments:
            parameters.append(argument.pointer_declaration)
            parameters += [f"int {argument.leading}"] if argument.leading else []
        return Prototype(self.function, tuple(parameters))

    @cached_property
    def packed(self) -> tuple[Packed, ...]:
        """The functions that pack constant tensors."""
        return tuple(self._packed(argument) for argument in self.arguments if argument.constant)

    def _packed(self, argument: Argument) -> Packed:
        keys = tuple(key for key in self.kind.keys if key in argument.keys)
        extents = tuple(f"int {key}" for key in keys)
        plain = f"const {argument.c_type} *{argument.name}"
        leading = (f"int {argument.plain_leading}",) if argument.plain_leading else ()
        packed = f"void *{argument.pointer}"
        return Packed(
            argument,
            keys,
            Prototype(f"{self.function}_packed_{argument.name}_bytes", extents, "size_t"),
            Prototype(f"{self.function}_pack_{argument.name}", (*extents, plain, *leading, packed)),
            (plain, packed, *leading),
        )


def public_functions(name: str, interfaces: Iterable[Interface]) -> list[Prototype]:
    """All functions that a library exports, the general ones first."""
    found = [
        Prototype(f"{name}_error", ("int status",), "const char *"),
        Prototype(f"{name}_set_threads", ("int threads",)),
        Prototype(f"{name}_threads", ()),
    ]
    for interface in interfaces:
        found.append(interface.call)
        found += [function for packed in interface.packed for function in (packed.bytes, packed.pack)]
    return found
