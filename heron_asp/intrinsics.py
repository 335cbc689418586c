"""What an intrinsic is, as data: axes, operands, dtypes, access pattern and the call that implements it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from heron_asp.dtypes import DTYPES
from heron_asp.errors import InternalError
from heron_asp.terms import Term, fact

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
_VECTOR = re.compile(r"([a-z]+\d+)(?:x(\d+))?")


class Strict(BaseModel):
    """A part of a target file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def vector_bits(vector: str) -> int:
    """Bits of a machine value such as `s32x16`.

    Raises:
        ValueError: the text is not an element type with an optional number of lanes.
    """
    match = _VECTOR.fullmatch(vector)
    if not match or match[1] not in {*DTYPES, "u16", "u32"}:
        raise ValueError(f"'{vector}' is not a machine value such as s32x16")
    bits = int(re.sub(r"\D", "", match[1]))
    return bits * int(match[2] or 1)


def tvm_vector(vector: str) -> str:
    """TVM's name of a machine value: `s32x16` is `int32x16`."""
    match = _VECTOR.fullmatch(vector)
    assert match, vector
    element = DTYPES[match[1]].storage if match[1] in DTYPES else match[1].replace("u", "uint")
    return f"{element}x{match[2]}" if match[2] else element


class IntrinsicAxis(Strict):
    """A loop that the instruction runs at once."""

    role: Name
    kind: Literal["spatial", "reduce"]
    extent: int = Field(gt=1)


class IntrinsicOperand(Strict):
    """Elements that the instruction reads or writes: its type, and the roles that index it, outermost first."""

    dtype: str
    index: tuple[Name, ...]

    @model_validator(mode="after")
    def _known_dtype(self) -> IntrinsicOperand:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype '{self.dtype}' is none of {', '.join(DTYPES)}")
        return self


class Argument(Strict):
    """An argument of the call: an operand's elements as one machine value.

    Attributes:
        load: which operand, counted from 0, or `result`.
        type: the machine value that the call takes.
        broadcast: replicate the operand's elements, taken as one scalar, this many times.
    """

    load: int | Literal["result"]
    type: str
    broadcast: int | None = Field(default=None, gt=1)


class Call(Strict):
    """How the instruction is reached: an LLVM intrinsic by name, or LLVM IR text that defines a function."""

    llvm: str | None = None
    ir: str | None = None
    function: str | None = None
    returns: str
    arguments: tuple[Argument, ...]

    @model_validator(mode="after")
    def _one_form(self) -> Call:
        if (self.llvm is None) == (self.ir is None):
            raise ValueError("give either 'llvm' (an intrinsic's name) or 'ir' (LLVM IR text), not both or neither")
        if self.ir is not None and (not self.function or f"@{self.function}(" not in self.ir):
            raise ValueError(f"'ir' does not define the function '{self.function}'")
        if self.llvm is not None and self.function is not None:
            raise ValueError("'function' belongs to 'ir'")
        return self


class Intrinsic(Strict):
    """An instruction that computes a small product.

    Attributes:
        name: its name in the rules.
        mnemonic: how the assembler spells it; a tensorized kernel without it in its machine code is an error.
        requires: CPU flags, as /proc/cpuinfo spells them.
        source: where the numbers are from.
        call: how TVM reaches it; None where the family's backend makes the instruction itself.
        fragments: TVM's scopes of its operands and its result, where a warp holds each of them together.
    """

    name: Name
    mnemonic: str
    requires: tuple[str, ...] = ()
    source: str
    axes: tuple[IntrinsicAxis, ...]
    operands: tuple[IntrinsicOperand, ...]
    result: IntrinsicOperand
    call: Call | None = None
    fragments: tuple[str, ...] = ()

    @property
    def reached(self) -> Call:
        """How TVM reaches it.

        Raises:
            InternalError: it does not; the backend that makes the instruction itself should not have asked.
        """
        if self.call is None:
            raise InternalError(f"intrinsic '{self.name}' has no call")
        return self.call

    @property
    def extents(self) -> dict[str, int]:
        """Extent of each role."""
        return {axis.role: axis.extent for axis in self.axes}

    @property
    def operations(self) -> int:
        """Multiplications and additions of one execution."""
        return 2 * prod(axis.extent for axis in self.axes)

    def elements(self, operand: IntrinsicOperand) -> int:
        """Number of elements of an operand."""
        return prod(self.extents[role] for role in operand.index)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Intrinsic:
        if len(self.operands) != 2:
            raise ValueError(f"intrinsic '{self.name}' has {len(self.operands)} operands; a product has 2")
        reduced = {axis.role for axis in self.axes if axis.kind == "reduce"}
        for what, operand in self._named_operands():
            for role in operand.index:
                if role not in self.extents:
                    raise ValueError(f"{what} is indexed by '{role}', which is none of the axes {list(self.extents)}")
        if reduced & set(self.result.index):
            raise ValueError(f"result is indexed by the reduced role '{min(reduced & set(self.result.index))}'")
        if self.call is not None:
            self._check_call(self.call)
        if self.fragments and len(self.fragments) != len(self.operands) + 1:
            raise ValueError("fragments are of two operands and a result: three scopes")
        return self

    def _check_call(self, call: Call) -> None:
        by_name = dict(self._named_operands())
        for number, argument in enumerate(call.arguments):
            what = f"operand {argument.load}" if argument.load != "result" else "result"
            if what not in by_name:
                raise ValueError(f"call argument {number} loads {what}, which does not exist")
            operand = by_name[what]
            has = self.elements(operand) * DTYPES[operand.dtype].bytes * 8 * (argument.broadcast or 1)
            wants = vector_bits(argument.type)
            if has != wants:
                raise ValueError(
                    f"call argument {number}: {what} x {argument.broadcast or 1} has {has} bits, "
                    f"{argument.type} has {wants}"
                )
        has, wants = self.elements(self.result) * DTYPES[self.result.dtype].bytes * 8, vector_bits(call.returns)
        if has != wants:
            raise ValueError(f"the result has {has} bits, the call returns {call.returns} of {wants}")

    def _named_operands(self) -> Iterator[tuple[str, IntrinsicOperand]]:
        for slot, operand in enumerate(self.operands):
            yield f"operand {slot}", operand
        yield "result", self.result

    def facts(self) -> Iterator[Term]:
        """The intrinsic as facts of `rules/core/interface.lp`."""
        yield fact("intrinsic", self.name)
        for flag in self.requires:
            yield fact("needs", self.name, flag)
        for axis in self.axes:
            yield fact("intrinsic_axis", self.name, axis.role, axis.kind, axis.extent)
        for slot, operand in enumerate((*self.operands, self.result)):
            place = "result" if slot == len(self.operands) else slot
            yield fact("intrinsic_operand", self.name, place, operand.dtype)
            stride = 1
            for position in reversed(range(len(operand.index))):
                role = operand.index[position]
                yield fact("intrinsic_index", self.name, place, position, role, stride)
                stride *= self.extents[role]
        where: tuple[int | str, ...] = (0, 1, "result")
        for held, scope in zip(where, self.fragments, strict=False):
            yield fact("intrinsic_fragment", self.name, held, scope)
        if self.call is not None:
            yield fact("intrinsic_values", self.name)
        if self.call is not None and self.call.ir is not None:
            yield fact("intrinsic_source", self.name)
