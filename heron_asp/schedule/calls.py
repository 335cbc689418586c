"""Calls of `tvm.s_tir.Schedule` as data: what a plan consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

from heron_asp.schedule.fragments import FragmentCall
from heron_asp.schedule.start import Start
from heron_asp.schedule.zeros import Window


@dataclass(frozen=True)
class Ref:
    """A block or loop that an earlier call made, by the name of its Python variable."""

    name: str


@dataclass(frozen=True)
class IndexMap:
    """A layout: for each new dimension the old dimension it comes from, and how.

    Attributes:
        rank: number of old dimensions.
        parts: (old dimension, `//` or `%`, unit).
    """

    rank: int
    parts: tuple[tuple[int, str, int], ...]

    def apply(self, indices: Sequence[Any]) -> list[Any]:
        """The new indices of an element: numbers, or expressions of TVM."""
        return [indices[dim] // unit if how == "//" else indices[dim] % unit for dim, how, unit in self.parts]


@dataclass(frozen=True)
class Source:
    """Text that a target holds for an intrinsic (LLVM IR)."""

    intrinsic: str


@dataclass(frozen=True)
class IntrinsicName:
    """The name under which an intrinsic is registered for one seating of the operands.

    Attributes:
        intrinsic: its name in the rules.
        seating: `straight` or `crossed`.
        stored: element types of the tensors in its slots, where it reads some of them with an offset.
    """

    intrinsic: str
    seating: str
    stored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Form:
    """How the operator is expressed.

    Attributes:
        padded: axes that are padded, each with its extent.
        innermost: the axis that is innermost in the result as the block makes it; empty where that is the last.
        shifts: operands that are read with an offset, each with that.
        native: bf16 is a type of the machine's own.
    """

    padded: tuple[tuple[str, int], ...] = ()
    innermost: str = ""
    shifts: tuple[tuple[str, int], ...] = ()
    native: bool = False


@dataclass(frozen=True)
class Skip:
    """A loop that leaves out steps on zero padding, by the window that it walks through."""

    loop: Ref
    window: Window


Simple: TypeAlias = (
    Ref | int | str | bool | Form | Skip | Start | IndexMap | Source | IntrinsicName | FragmentCall | None
)
Argument: TypeAlias = Union[Simple, tuple["Argument", ...]]  # noqa: UP007 - it names itself


@dataclass(frozen=True)
class Call:
    """One call of a schedule primitive.

    Attributes:
        primitive: the method of `tvm.s_tir.Schedule`.
        arguments: positional arguments.
        options: keyword arguments.
        results: names for what it returns.
        take: keep only the last so many of the returned loops (0: all).
    """

    primitive: str
    arguments: tuple[Argument, ...]
    results: tuple[str, ...] = ()
    options: tuple[tuple[str, Argument], ...] = ()
    take: int = 0

    @property
    def several(self) -> bool:
        """Whether it returns a list of loops, even where that has one."""
        return self.primitive in ("get_loops", "split")
