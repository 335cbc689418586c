"""Operators that a family is tried with: small ones that an instruction of it computes, with the number of programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from heron_asp.errors import HeronError
from heron_asp.operators import Operator, operator
from heron_asp.target import Target
from heron_asp.task import Task

NUMBER = 2
_TRIED: tuple[tuple[str, Mapping[str, int]], ...] = (  # small, and axes that fit most instructions; then one to pad
    ("gemm", {"m": 32, "n": 64, "k": 64}),
    ("conv2d", {"n": 1, "h": 14, "w": 14, "ci": 16, "co": 32, "kh": 3, "kw": 3, "padding": 1}),
    ("batch_matmul", {"batch": 2, "m": 32, "n": 64, "k": 64}),
    ("gemm", {"m": 9, "n": 20, "k": 10}),
    ("gemv", {"m": 64, "k": 64}),
)


@dataclass(frozen=True)
class Case:
    """An operator that an instruction of the target computes.

    Attributes:
        operator: the operator.
        programs: the size of its space on the target with one thread; exact.
        usual: types and epilogue are those that the family has where none are said.
    """

    operator: Operator
    programs: int
    usual: bool

    @property
    def options(self) -> tuple[str, ...]:
        """The operator on the command line."""
        made = self.operator
        shape = ",".join(f"{key}={value}" for key, value in made.said.items())
        dtype = () if self.usual else ("--dtype", made.dtype)
        epilogue = () if self.usual or not made.epilogue else ("--epilogue", made.epilogue_text)
        return (made.name, "-s", shape, *dtype, *epilogue)


def cases(target: Target) -> tuple[Case, ...]:
    """A few operators that the target's instructions compute, each of another kind where there are such.

    Raises:
        HeronError: its rules are wrong.
    """
    found: dict[str, Case] = {}
    again: list[Case] = []
    for case in _feasible(target):
        if case.operator.name in found:
            again.append(case)
        found.setdefault(case.operator.name, case)
        if len(found) == NUMBER:
            break
    return (*found.values(), *again)[:NUMBER]


def _feasible(target: Target) -> Iterator[Case]:
    for name, shape in _TRIED:
        for number, (dtype, epilogue) in enumerate(_asked(target)):
            made = None
            with suppress(HeronError):  # an operator may refuse the types or the epilogue
                made = operator(name, shape, dtype, None, epilogue)
            task = Task(made, target) if made else None
            if task and any(one.tensorized for one in task.sketches) and task.space.exact and task.space.size:
                yield Case(task.operator, task.space.size, number == 0)
                break


def _asked(target: Target) -> Iterator[tuple[str | None, str]]:
    """Types of activation, weight and accumulator with an epilogue: the family's usual ones, then what it has."""
    usual = target.shared.defaults
    yield usual.dtype or None, usual.epilogue
    for intrinsic in target.intrinsics.values():
        yield "".join(one.dtype for one in (*intrinsic.operands, intrinsic.result)), usual.epilogue
