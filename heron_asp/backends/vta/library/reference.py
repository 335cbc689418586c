"""The examples of a library: random numbers, and the operator in plain C, one sum after the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from heron_asp.analysis.facts import BlockFacts
from heron_asp.analysis.facts import Tensor as Operand
from heron_asp.backends.vta.library.kernel import TAKEN, Kernel, Tensor, listed
from heron_asp.backends.vta.library.packing import Range, nested
from heron_asp.library.prototype import Prototype, folded
from heron_asp.library.words import distinct
from heron_asp.tir_c import bare, expression, flat, helpers

_MOST_OPERAND = 127
_MOST_SUMMAND = 1 << 20


@dataclass(frozen=True)
class Example:
    """What an example does with a kernel."""

    kernel: Kernel

    @cached_property
    def texts(self) -> tuple[str, str]:
        """The reference as two functions: a sum of products, and the result."""
        return self._sum(), self._result()

    def size(self, tensor: Tensor) -> str:
        """Elements of a tensor."""
        return " * ".join(map(str, tensor.spec.shape))

    def most(self, tensor: Tensor) -> int:
        """The largest random number, so that results neither vanish nor are all cut off."""
        shift = sum(done.number for done in self._block.chain if done.operation == "shift")
        if tensor.spec.name in {one.name for one in self._block.operands}:
            return int(min(_MOST_OPERAND, max(1.0, (192 * 2**shift / self.kernel.operator.terms**0.5) ** 0.5)))
        return int(min(_MOST_SUMMAND, 32 * 2**shift))

    def contents(self, tensor: Tensor) -> str:
        """The elements of a tensor with fixed contents."""
        return listed(self.kernel.operator.constants[tensor.spec.name].ravel().tolist())

    @property
    def call(self) -> str:
        """The call."""
        tensors = [*self.kernel.operands, self.kernel.result]
        arguments = ("kernel", *(tensor.variable for tensor in tensors))
        return folded(f"    succeed({self.kernel.symbol}_run(", arguments, "));", " " * 8)

    @property
    def reference_call(self) -> str:
        """The call of the reference."""
        inputs = [tensor.variable for tensor in self.kernel.tensors[:-1]]
        return folded(f"    {self.kernel.local}_reference(", (*inputs, "expected"), ");", " " * 8)

    # -- the reference -------------------------------------------------------------------------------------------------

    @property
    def _block(self) -> BlockFacts:
        return self.kernel.lowered.problem.block

    @cached_property
    def _axes(self) -> dict[str, str]:
        taken = [*TAKEN, *(tensor.variable for tensor in self.kernel.tensors)]
        return distinct((axis.name for axis in self._block.axes), taken)

    @cached_property
    def _factors(self) -> tuple[list[str], list[str]]:
        """The two factors of a product, and what they declare."""
        factors, declared = [], []
        for letter, operand in zip("pq", self._block.operands, strict=True):
            names = []
            for dim in range(len(operand.shape)):
                text = self._index(operand, dim)
                if not re.fullmatch(r"\w+", text):
                    declared.append(f"const int32_t {letter}{dim} = {text};")
                    text = f"{letter}{dim}"
                names.append(text)
            factors.append(self._element(operand, names))
        used = [line for line in declared if any(re.search(rf"\b{line.split()[2]}\b", one) for one in factors)]
        return factors, used

    def _index(self, operand: Operand, dim: int) -> str:
        terms = [(self._axes[one.axis], one.stride) for one in self._block.of(operand.name, dim)]
        parts = [axis if stride == 1 else f"{axis} * {stride}" for axis, stride in terms]
        start = operand.start(dim)
        return " + ".join([*parts, *([str(start)] if start or not parts else [])])

    def _element(self, operand: Operand, names: Sequence[str]) -> str:
        if operand.stage is None:
            return f"{self._tensor(operand.name).variable}[{flat(names, operand.shape)}]"
        return expression(operand.stage.value, dict(zip(operand.stage.variables, names, strict=True)), self._load)

    def _tensor(self, name: str) -> Tensor:
        return next(tensor for tensor in self.kernel.tensors if tensor.spec.name == name)

    def _load(self, name: str, at: Sequence[str]) -> str:
        tensor = self._tensor(name)
        return f"{tensor.variable}[{flat(at, tensor.view)}]"

    @cached_property
    def _multiplied(self) -> list[Tensor]:
        names = {operand.name for operand in self._block.operands}
        return [tensor for tensor in self.kernel.tensors if tensor.spec.name in names]

    @cached_property
    def _places(self) -> list[str]:
        """The axis that a sum's place along each dimension is; of those that an operand depends on."""
        factors, declared = self._factors
        used = set(re.findall(r"\w+", " ".join([*factors, *declared])))
        dims = range(len(self._block.result.shape))
        axes = ["".join(self._axes[one.axis] for one in self._block.of(self._block.result.name, dim)) for dim in dims]
        return [axis if axis in used else "" for axis in axes]

    def _sum(self) -> str:
        factors, declared = self._factors
        ranges: list[Range] = [
            (self._axes[one.name], 0, one.extent) for one in self._block.axes if one.kind == "reduce"
        ]
        statement = f"sum += {' * '.join(f'(uint32_t){one}' for one in factors)};"
        parameters = [*(tensor.parameter for tensor in self._multiplied)]
        parameters += [f"int32_t {axis}" for axis in self._places if axis]
        head = Prototype(f"{self.kernel.local}_sum", tuple(parameters), "static int32_t").text
        inside = nested(ranges, [*declared, statement], always=True)
        return "\n".join([head, "{", "    uint32_t sum = 0;", *inside, "    return (int32_t)sum;", "}"])

    def _result(self) -> str:
        finish, result = self._block.finish, self.kernel.result
        shape = finish.parameter.shape if finish else self._block.result.shape
        ranges: list[Range] = [(f"o{at}", 0, extent) for at, extent in enumerate(shape)]
        places = [name for name, _, _ in ranges]

        def load(name: str, at: Sequence[str]) -> str:
            if finish is not None and name != finish.source:
                return self._load(name, at)
            passed = [*(tensor.variable for tensor in self._multiplied)]
            passed += [bare(place) for place, axis in zip(at, self._places, strict=True) if axis]
            return f"{self.kernel.local}_sum({', '.join(passed)})"

        if finish is None:
            value = load("", places)
        else:
            value = bare(expression(finish.stage.value, dict(zip(finish.stage.variables, places, strict=True)), load))
        parameters = [*(tensor.parameter for tensor in self.kernel.tensors[:-1]), result.parameter]
        head = Prototype(f"{self.kernel.local}_reference", tuple(parameters), "static void").text
        inside = nested(ranges, [f"*{result.variable}++ = {value};"], always=True)
        return "\n".join([head, "{", *inside, "}"])


def examples(kernels: Sequence[Kernel]) -> list[Example]:
    """An example for each function of a library: its kernel with the least work."""
    smallest: dict[str, Kernel] = {}
    for kernel in sorted(kernels, key=lambda kernel: kernel.operator.operations):
        smallest.setdefault(kernel.interface.function, kernel)
    return [Example(smallest[function]) for function in sorted(smallest)]


def example_helpers(shown: Sequence[Example]) -> list[str]:
    """C functions that the references call."""
    return helpers(text for example in shown for text in example.texts)
