"""The C functions of an operator family, a layout and a dtype, made from the family's metadata.

How a function takes the shape:

    up to four shape keys, all to be given      an int for each, in their order: gemm_u8s8s32(m, n, k, ...)
    more, or keys that may be left out          a pointer to a struct with a field for each, struct conv2d_shape: nobody
                                                tells twenty ints in a row apart
    none                                        nothing

The name says everything else: `conv2d_channels_first_bias_relu_u8s8s32`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from heron_asp.dtypes import DType, dtype_triple
from heron_asp.library.fields import Field, fields_of
from heron_asp.library.prototype import C_TYPES, Prototype, folded
from heron_asp.library.words import distinct, identifier
from heron_asp.operators import Operator, OperatorKind
from heron_asp.operators.epilogue import Extent, Step
from heron_asp.operators.kind import ACCUMULATOR, Names

_MOST_POSITIONAL = 4


@dataclass(frozen=True)
class Argument:
    """A tensor of an operator, as its C functions take it.

    Attributes:
        name: the tensor's name.
        variable: its name in C.
        pointer: the pointer in a call; another name where that is to what is packed.
        extents: names of its extents, row-major.
        dtype: its element type.
        constant: it is known ahead, so calls take it packed.
        fixed: its contents are fixed, so calls do not take it: the library has it.
        result: it is written.
        leading: its leading dimension in C where it is not packed; empty where it has none.

    What is a single number, such as a zero point, is passed by value; `pointer` is to a copy of it then.
    """

    name: str
    variable: str
    pointer: str
    extents: tuple[str, ...]
    dtype: DType
    constant: bool
    fixed: bool
    result: bool
    leading: str

    @property
    def c_type(self) -> str:
        """C's type of an element."""
        return C_TYPES[self.dtype.name]

    @property
    def by_value(self) -> bool:
        """Whether a call takes the number itself."""
        return not (self.extents or self.result or self.constant)

    @property
    def parameter(self) -> str:
        """The parameter of a call."""
        return f"{self.c_type} {self.variable}" if self.by_value else self.declaration

    @property
    def declaration(self) -> str:
        """The parameter of a kernel: a pointer."""
        if self.constant:
            return f"const void *{self.pointer}"
        return f"{'' if self.result else 'const '}{self.c_type} *{self.pointer}"

    @property
    def is_strided(self) -> bool:
        """Whether a call takes its leading dimension."""
        return bool(self.leading) and not self.constant

    @property
    def summary(self) -> str:
        """One line of the header's documentation."""
        shape = f"{' x '.join(self.extents)} elements" if self.extents else "one number"
        shape += f" of {self.dtype.name}"
        if self.constant:
            return f"{self.pointer}: {self.variable}, {shape}, packed by the function below"
        distance = f", rows {self.leading} apart" if self.leading else ""
        matrices = f", matrices {' * '.join((*self.extents[1:-1], self.leading))} apart"
        return (
            f"{self.variable}: {shape}{distance}{matrices if self.leading and len(self.extents) > 2 else ''}"
            f"{'; written' if self.result else ''}"
        )


@dataclass(frozen=True)
class Packed:
    """The two functions that pack a constant tensor.

    Attributes:
        interface: all functions of the operator.
        argument: the tensor.
        fields: what the layout depends on; the functions look at nothing else.
        bytes: the function that says how much memory is needed.
        pack: the function that packs.
        kernel: parameters of the function that TVM compiled.
    """

    interface: Interface
    argument: Argument
    fields: tuple[Field, ...]
    bytes: Prototype
    pack: Prototype
    kernel: tuple[str, ...]

    @property
    def dependence(self) -> str:
        """A sentence on the fields that are looked at, where that is not plain from the parameters."""
        rest = [field.name for field in self.interface.fields if field not in self.fields]
        if self.interface.positional or not rest:
            return ""
        return f" {', '.join(rest)} may be anything."


@dataclass(frozen=True)
class Interface:
    """The C functions of an operator family, a layout and a dtype.

    Attributes:
        kind: the operator family.
        dtype: activation, weight and accumulator types, e.g. `u8s8s32`.
        layout: the name of the layout; empty for the default.
        prefix: begins the name of each function; tells libraries apart that are linked into one program.
        fixed: names of the tensors with fixed contents.
        epilogue: what is done to each element of the sum before it is stored.
    """

    kind: OperatorKind
    dtype: str
    layout: str = ""
    prefix: str = ""
    fixed: frozenset[str] = frozenset()
    epilogue: tuple[Step, ...] = ()

    @classmethod
    def of(cls, operator: Operator, prefix: str = "") -> Interface:
        """The functions of an operator."""
        layout = "" if operator.layout == operator.kind.layout else operator.layout
        return cls(operator.kind, operator.dtype, layout, prefix, frozenset(operator.constants), operator.epilogue)

    @property
    def function(self) -> str:
        """The name of the function that dispatches: family, layout unless it is the default, epilogue, types."""
        parts = (self.kind.name, self.layout, *(step.text for step in self.epilogue))
        return f"{self.prefix}{'_'.join(identifier(part) for part in parts if part)}_{self.dtype}"

    # -- the shape -----------------------------------------------------------------------------------------------------

    @property
    def positional(self) -> bool:
        """Whether the functions take an int for each shape key; otherwise they take a struct."""
        return not self.kind.defaults and len(self.kind.keys) <= _MOST_POSITIONAL

    @property
    def structs(self) -> bool:
        """Whether the functions take a struct with the shape."""
        return not self.positional

    @property
    def struct(self) -> str:
        """The struct with the shape: all layouts and types of a family share it."""
        return f"{self.prefix}{identifier(self.kind.name)}_shape"

    @property
    def members(self) -> str:
        """The members of the struct, those that may be left out a line each, as C declarations."""
        plain = tuple(field.name for field in self.fields if not field.comment)
        lines = [folded("    int ", plain, ";", " " * 8)] if plain else []
        lines += [f"    int {field.name}; /* {field.comment} */" for field in self.fields if field.comment]
        return "\n".join(lines)

    @property
    def python_names(self) -> str:
        """Names of the members, as a tuple of Python in a generator."""
        parts = tuple(f'"{field.name}"' for field in self.fields)
        return folded("        for name in (", parts, ")" if len(parts) > 1 else ",)", " " * 12)

    @property
    def struct_digest(self) -> str:
        """Tells structs of one name apart, as a C constant."""
        return f"0x{zlib.crc32(' '.join(field.name for field in self.fields).encode()):08x}"

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The shape keys, in their order."""
        return fields_of(self.kind)

    def shape_parameters(self, fields: Iterable[Field]) -> tuple[str, ...]:
        """How a function takes these fields."""
        names = [field.name for field in fields]
        if self.positional:
            return tuple(f"int {name}" for name in names)
        return (f"const struct {self.struct} *shape",) if names else ()

    def shape_arguments(self, fields: Iterable[Field]) -> tuple[str, ...]:
        """The same within such a function, to pass them on."""
        names = [field.name for field in fields]
        return tuple(names) if self.positional else ("shape",) if names else ()

    def values(self, fields: Iterable[Field]) -> list[str]:
        """The values of fields within such a function, as C expressions."""
        return [field.value("" if self.positional else "shape->") for field in fields]

    def given(self, values: Mapping[str, int]) -> list[tuple[Field, int]]:
        """The fields that a caller has to give for a shape, with their values."""
        return [(field, values[field.key]) for field in self.fields if not field.may_be_left_out(values)]

    # -- the tensors ---------------------------------------------------------------------------------------------------

    @cached_property
    def _tensors(self) -> dict[str, tuple[Names, DType]]:
        """Names of the extents and element type of all tensors: operands, those of the epilogue, the result."""
        layout, types = self.kind.layouts[self.layout or self.kind.layout].tensors, dtype_triple(self.dtype)
        *operands, (result, axes) = layout.items()
        *slots, last = self.kind.slots
        found = {name: (keys, types[slot]) for (name, keys), slot in zip(operands, slots, strict=True)}
        extents: dict[Extent, Names] = {
            Extent.ONE: (),
            Extent.CHANNEL: tuple(axis for axis in axes if axis in self.kind.channel),
            Extent.RESULT: axes,
        }
        dtype = types[last]
        for step in self.epilogue:
            tensors = step.tensors(types[ACCUMULATOR])
            found |= {name: (extents[one.extent], one.dtype) for name, one in tensors.items()}
            dtype = step.result(dtype)
        return found | {result: (axes, dtype)}

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """All tensors, the result last."""
        fields = [field.name for field in self.fields] if self.positional else []
        variables = distinct(self._tensors, fields)
        taken = [*fields, *variables.values()]
        packed = distinct((f"packed_{variable}" for variable in variables.values()), taken)
        copies = distinct((f"{variable}_at" for variable in variables.values()), [*taken, *packed.values()])
        taken += [*packed.values(), *copies.values()]
        leading = distinct((f"ld{variable}" for variable in variables.values()), taken)
        *_, last = self._tensors
        made = []
        for name, (extents, dtype) in self._tensors.items():
            variable = variables[name]
            argument = Argument(
                name=name,
                variable=variable,
                pointer=variable,
                extents=extents,
                dtype=dtype,
                constant=name in self.kind.constant,
                fixed=name in self.fixed,
                result=name == last,
                leading=leading[f"ld{variable}"] if self.is_strided and len(extents) > 1 else "",
            )
            if argument.constant:
                argument = replace(argument, pointer=packed[f"packed_{variable}"])
            elif argument.by_value:
                argument = replace(argument, pointer=copies[f"{variable}_at"])
            made.append(argument)
        return tuple(made)

    @property
    def is_strided(self) -> bool:
        """Whether rows may be any distance apart."""
        return self.kind.strided and not self.epilogue

    @property
    def passed(self) -> tuple[Argument, ...]:
        """The tensors that a call takes."""
        return tuple(argument for argument in self.arguments if not argument.fixed)

    @property
    def inside(self) -> tuple[Argument, ...]:
        """The tensors that the library has."""
        return tuple(argument for argument in self.arguments if argument.fixed)

    @property
    def result(self) -> Argument:
        """The tensor that is written."""
        return self.arguments[-1]

    @property
    def strided(self) -> tuple[Argument, ...]:
        """The tensors that have a leading dimension in a call."""
        return tuple(argument for argument in self.arguments if argument.is_strided)

    # -- the functions -------------------------------------------------------------------------------------------------

    @property
    def kernel(self) -> tuple[str, ...]:
        """Parameters of a compiled kernel; where leading dimensions are free, `leading` follows."""
        return tuple(argument.declaration for argument in self.arguments)

    @property
    def leading(self) -> tuple[str, ...]:
        """Further parameters of a kernel with free leading dimensions."""
        return tuple(f"int {argument.leading}" for argument in self.strided)

    @property
    def call(self) -> Prototype:
        """The function that dispatches."""
        parameters = [*self.shape_parameters(self.fields)]
        for argument in self.passed:
            parameters.append(argument.parameter)
            parameters += [f"int {argument.leading}"] if argument.is_strided else []
        return Prototype(self.function, tuple(parameters))

    @cached_property
    def packed(self) -> tuple[Packed, ...]:
        """The functions that pack constant tensors."""
        return tuple(self._packed(argument) for argument in self.passed if argument.constant)

    def _packed(self, argument: Argument) -> Packed:
        deciding = self.kind.packed_by.get(argument.name, argument.extents)
        known = all(extent in self.kind.every_key for extent in deciding)
        fields = tuple(field for field in self.fields if field.key in deciding or not known)
        plain = f"const {argument.c_type} *{argument.variable}"
        leading = (f"int {argument.leading}",) if argument.leading else ()
        packed = f"void *{argument.pointer}"
        shape = self.shape_parameters(fields)
        return Packed(
            self,
            argument,
            fields,
            Prototype(f"{self.function}_packed_{argument.variable}_bytes", shape, "size_t"),
            Prototype(f"{self.function}_pack_{argument.variable}", (*shape, plain, *leading, packed)),
            (plain, packed, *leading),
        )

    @property
    def functions(self) -> list[Prototype]:
        """All functions."""
        return [self.call, *(function for packed in self.packed for function in (packed.bytes, packed.pack))]


def public_functions(name: str, interfaces: Iterable[Interface]) -> list[Prototype]:
    """All functions that a library exports, the general ones first."""
    return [
        Prototype(f"{name}_error", ("int status",), "const char *"),
        Prototype(f"{name}_set_threads", ("int threads",)),
        Prototype(f"{name}_threads", ()),
        *(function for interface in interfaces for function in interface.functions),
    ]
