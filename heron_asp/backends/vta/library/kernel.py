"""Kernels of an exported library: their programs, and the tensors that their C functions take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from heron_asp.analysis.facts import Stage
from heron_asp.backends.vta.encode import encode_program
from heron_asp.backends.vta.isa import Memory
from heron_asp.backends.vta.lowering import Lowered
from heron_asp.backends.vta.lowering.lower import Region
from heron_asp.errors import HeronError
from heron_asp.library.choice import Tuned, glued
from heron_asp.library.interface import Argument, Interface
from heron_asp.library.prototype import Prototype, folded
from heron_asp.library.words import distinct, identifier
from heron_asp.operators import Operator, TensorSpec
from heron_asp.operators.epilogue import Extent
from heron_asp.operators.kind import ACCUMULATOR
from heron_asp.tir import loads
from heron_asp.tir_c import WORDS

Words = npt.NDArray[np.uint64]

# Names that generated functions declare or call where the names of tensors are in scope.
_DECLARED = [f"{letter}{number}" for letter in "deijopq" for number in range(16)]
_WIDTH = 118
TAKEN = (*_DECLARED, "to", "from", "sum", "state", "status", "send", "receive", "execute", "start", "stop", *WORDS)


class Role(StrEnum):
    """When the contents of a tensor are known."""

    FIXED = "fixed"  # when the library is made: the library has it
    CONSTANT = "constant"  # before the calls: it is set once
    OPERAND = "operand"  # in a call
    RESULT = "result"


@dataclass(frozen=True)
class Copy:
    """What is made of a tensor for VTA.

    Attributes:
        name: of its function in C.
        region: where it lies.
        shape: of the tensor as the program sees it.
        stage: how that is made of the argument; None where it is the argument.
    """

    name: str
    region: Region
    shape: tuple[int, ...]
    stage: Stage | None


@dataclass(frozen=True)
class Tensor:
    """A tensor of a kernel, as its C functions take it.

    Attributes:
        argument: its element type, and names of its extents.
        variable: its name in C.
        spec: its extents.
        view: the same memory as the program sees it, by extents.
        role: when its contents are known.
        copies: what is made of it; of the result, what it is made of.
    """

    argument: Argument
    variable: str
    spec: TensorSpec
    view: tuple[int, ...]
    role: Role
    copies: tuple[Copy, ...]

    @property
    def parameter(self) -> str:
        """The parameter of a function."""
        return f"{'' if self.role is Role.RESULT else 'const '}{self.argument.c_type} *{self.variable}"

    @property
    def setter(self) -> str:
        """The end of the name of the function that sets it."""
        return f"set_{self.variable}"

    @property
    def summary(self) -> str:
        """One line of the header's documentation."""
        names = f" ({', '.join(self.argument.extents)})" if self.argument.extents else ""
        shape = " x ".join(map(str, self.spec.shape))
        when = {Role.CONSTANT: "; set once", Role.RESULT: "; written"}.get(self.role, "")
        return f"{self.variable}{names}: {shape} elements of {self.argument.dtype.name}{when}"


@dataclass(frozen=True)
class Kernel:
    """A program on its way into the library.

    Attributes:
        tuned: where it is from.
        interface: names of its operator's functions and tensors.
        lowered: the program.
        cycles: that it takes.
        local: the beginning of the names that only the source has.
    """

    tuned: Tuned
    interface: Interface
    lowered: Lowered
    cycles: int
    local: str

    @property
    def operator(self) -> Operator:
        """What it computes."""
        return self.tuned.task.operator

    @property
    def given(self) -> dict[str, int]:
        """The shape without what is as by default, by names in C."""
        return {identifier(key): value for key, value in self.operator.said.items()}

    @property
    def symbol(self) -> str:
        """The beginning of the names of its functions."""
        return "_".join([self.interface.function, *glued(self.given)])

    @cached_property
    def words(self) -> Words:
        """The instructions, two words each, addressed as if the image began at 0."""
        program = encode_program(self.lowered.instructions, self.lowered.problem.config)
        return np.frombuffer(program, "<u8").reshape(-1, 2)

    @property
    def room(self) -> int:
        """Bytes of the largest thing that is copied to the device or from it at once."""
        return max(self.words.nbytes, *(region.bytes for region in self.lowered.regions.values()))

    @property
    def gops(self) -> float:
        """Billions of useful operations a second."""
        return self.operator.operations / self.tuned.seconds / 1e9

    # -- tensors -------------------------------------------------------------------------------------------------------

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors in the order of the operator, the result last.

        Raises:
            HeronError: a tensor is made of several arguments.
        """
        specs = {spec.name: spec for spec in self.operator.tensors}
        variables = distinct(specs, [*TAKEN, *(axis.name for axis in self.lowered.problem.block.axes)])
        views = {one.name: one.shape for one in self.lowered.problem.block.parameters}
        made = []
        for argument in self.interface.arguments:
            name, role = argument.name, self._role(argument)
            view = views.get(name, specs[name].kernel_shape)
            made.append(Tensor(argument, variables[name], specs[name], view, role, self._copies(argument)))
        return tuple(made)

    def _role(self, argument: Argument) -> Role:
        if argument.result:
            return Role.RESULT
        if argument.fixed:
            return Role.FIXED
        return Role.CONSTANT if argument.constant or argument.name in self._known_ahead else Role.OPERAND

    @cached_property
    def _known_ahead(self) -> set[str]:
        """What the epilogue has for each channel or once; what it has for each element of the result, a call brings."""
        accumulator = self.operator.types[ACCUMULATOR]
        tensors = [pair for step in self.operator.epilogue for pair in step.tensors(accumulator).items()]
        return {name for name, one in tensors if one.extent is not Extent.RESULT}

    def _copies(self, argument: Argument) -> tuple[Copy, ...]:
        block, found = self.lowered.problem.block, []
        operands = {one.name: one for one in block.operands}
        for name, region in self.lowered.regions.items():
            tensor = region.entries.tensor
            kind = identifier(name.partition("(")[0])
            if region.entries.memory is Memory.OUT:
                if argument.result:
                    found.append(Copy(f"unpack_{kind}", region, block.result.shape, None))
                continue
            if tensor != argument.name:
                continue
            operand = operands.get(tensor)
            shape = operand.shape if operand else next(one.shape for one in block.parameters if one.name == tensor)
            stage = operand.stage if operand else None
            if stage is not None and {str(load.source.name) for load in loads(stage.value)} != {tensor}:
                raise HeronError(
                    f"{self.tuned.origin}: {tensor} is made of several arguments, which no exported function does",
                    "make it before, and give it to the operator as one argument",
                )
            found.append(Copy(f"pack_{kind}_{identifier(tensor)}", region, shape, stage))
        return tuple(found)

    def of(self, *roles: Role) -> list[Tensor]:
        """The tensors of some roles."""
        return [tensor for tensor in self.tensors if tensor.role in roles]

    @property
    def fixed(self) -> list[Tensor]:
        """What the library has."""
        return self.of(Role.FIXED)

    @property
    def constants(self) -> list[Tensor]:
        """What is set once."""
        return self.of(Role.CONSTANT)

    @property
    def operands(self) -> list[Tensor]:
        """What a call takes."""
        return self.of(Role.OPERAND)

    @property
    def result(self) -> Tensor:
        """What a call writes."""
        return self.tensors[-1]

    def baked(self, tensor: Tensor) -> list[tuple[Copy, str]]:
        """What is made of a tensor with fixed contents, as elements in C."""
        inputs = {spec.name: np.zeros(spec.shape, spec.dtype.numpy) for spec in self.operator.inputs}
        made = self.lowered.problem.operands(inputs | self.operator.constants)
        by_region = {self.lowered.regions[name].address: array for name, array in made.items()}
        return [
            (copy, listed(copy.region.entries.pack(by_region[copy.region.address], copy.region.held).ravel().tolist()))
            for copy in tensor.copies
        ]

    # -- functions -----------------------------------------------------------------------------------------------------

    @property
    def _self(self) -> str:
        return f"struct {self.symbol} *kernel"

    @property
    def open(self) -> Prototype:
        """Makes a kernel ready."""
        return Prototype(f"{self.symbol}_open", (f"struct {self.symbol} **kernel",))

    def set(self, tensor: Tensor) -> Prototype:
        """Sets a constant."""
        return Prototype(f"{self.symbol}_{tensor.setter}", (self._self, tensor.parameter))

    @property
    def run(self) -> Prototype:
        """Computes."""
        tensors = [*self.operands, self.result]
        return Prototype(f"{self.symbol}_run", (self._self, *(tensor.parameter for tensor in tensors)))

    @property
    def close(self) -> Prototype:
        """Ends."""
        return Prototype(f"{self.symbol}_close", (self._self,), "void")

    @property
    def functions(self) -> list[Prototype]:
        """All of them."""
        return [self.open, *(self.set(tensor) for tensor in self.constants), self.run, self.close]


def declaration(function: Prototype) -> str:
    """A function's declaration without the semicolon; parameters begin a line where they do not fit."""
    head = f"{function.returns} {function.name}("
    line = head + ", ".join(function.parameters) + ")"
    return line if len(line) <= _WIDTH else f"{head}\n{folded('    ', function.parameters, ')', '    ')}"


def listed(values: Sequence[int], width: int = 16, hexadecimal: int = 0) -> str:
    """Elements of an array in C, so many a line; in hexadecimal with so many digits."""
    texts = [f"0x{value:0{hexadecimal}x}" if hexadecimal else str(value) for value in values]
    rows = (", ".join(texts[at : at + width]) for at in range(0, len(texts), width))
    return ",\n".join(f"    {row}" for row in rows)
