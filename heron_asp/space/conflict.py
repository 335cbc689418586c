"""Minimal conflicts: the smallest sets of constraints and pins that leave a sketch without a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import clingo

from heron_asp.space.candidate import Pins
from heron_asp.terms import Value, from_symbol, to_symbol

if TYPE_CHECKING:
    from heron_asp.space.sketch_space import SketchSpace


@dataclass(frozen=True)
class Core:
    """What cannot hold together; leaving any one of it out resolves the conflict.

    Attributes:
        constraints: names of constraints that only forbid. Where neither they nor pins are to blame, of those that
            define variables: a value would be larger than a space has them.
        pins: pinned variables.
    """

    constraints: tuple[str, ...]
    pins: tuple[Value, ...]


class Guarded:
    """A sketch's problem in which each constraint that only forbids, and each pin, is assumed or not.

    Args:
        part: the sketch's space.
    """

    def __init__(self, part: SketchSpace) -> None:
        self.part = part

    @cached_property
    def _control(self) -> clingo.Control:
        control = self.part.control(guarded=True)
        control.ground([("base", [])])
        return control

    @cached_property
    def _guards(self) -> dict[str, list[int]]:
        atoms = self._control.symbolic_atoms
        found: dict[str, list[int]] = {}
        for name, guards in self.part.guards.items():
            known = [atoms[to_symbol(guard)] for guard in guards]
            found[name] = [atom.literal for atom in known if atom is not None]
        return found

    @cached_property
    def _values(self) -> dict[Value, dict[Value, int]]:
        """The literal of each value of each variable that grounding leaves possible."""
        found: dict[Value, dict[Value, int]] = {}
        for atom in self._control.symbolic_atoms.by_signature("value", 2):
            variable, value = map(from_symbol, atom.symbol.arguments)
            found.setdefault(variable, {})[value] = atom.literal
        return found

    def core(self, pins: Pins) -> Core | None:
        """A minimal conflict under pins; None if there is a program.

        The constraints that clingo's search needed come first; then each is left out in turn, for good if the rest
        still conflicts. Rules of thumb are left out first, so that what remains is as firm as can be.
        """
        thumbs = {one.name for one in self.part.constraints if one.thumb}
        names = sorted(self._guards, key=lambda name: name not in thumbs)
        kept = self._needed(names, list(pins), pins)
        if kept is None:
            return None
        constraints, variables = kept
        for name in list(constraints):
            fewer = self._needed([one for one in constraints if one != name], variables, pins)
            if fewer is not None:
                constraints, variables = fewer
        for variable in list(variables):
            fewer = self._needed(constraints, [one for one in variables if one != variable], pins)
            if fewer is not None:
                constraints, variables = fewer
        return Core(tuple(constraints or ([] if variables else self._undefined())), tuple(variables))

    def _undefined(self) -> list[str]:
        """A smallest set of definitions that leave no program by themselves: their values would be too large."""
        excuses = self.part.definitions
        control = self.part.control(guarded=True, choices=excuses.values())
        control.ground([("base", [])])
        known = {name: control.symbolic_atoms[to_symbol(excuse)] for name, excuse in excuses.items()}
        strict = {-atom.literal: name for name, atom in known.items() if atom is not None}
        kept = list(strict)
        for literal in strict:
            if literal not in kept:
                continue
            fewer = [one for one in kept if one != literal]
            with control.solve(assumptions=fewer, yield_=True) as handle:
                if handle.get().unsatisfiable:
                    core = set(handle.core())
                    kept = [one for one in fewer if one in core]
        return [strict[literal] for literal in kept]

    def _needed(
        self, names: Sequence[str], variables: Sequence[Value], pins: Pins
    ) -> tuple[list[str], list[Value]] | None:
        """Which of some constraints and pins a refutation needed; None if they hold together."""
        assumed: dict[int, tuple[str, Value]] = {}
        for name in names:
            assumed.update((literal, ("constraint", name)) for literal in self._guards[name])
        for variable in variables:
            assumed.update((literal, ("pin", variable)) for literal in self._excluding(variable, pins[variable]))
        with self._control.solve(assumptions=list(assumed), yield_=True) as handle:
            if not handle.get().unsatisfiable:
                return None
            said = {assumed[literal] for literal in handle.core()}
        return [one for one in names if ("constraint", one) in said], [one for one in variables if ("pin", one) in said]

    def _excluding(self, variable: Value, allowed: frozenset[Value]) -> Iterable[int]:
        """Literals that leave a variable the allowed values."""
        return [-literal for value, literal in self._values.get(variable, {}).items() if value not in allowed]
