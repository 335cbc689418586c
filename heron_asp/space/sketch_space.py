"""The programs of one sketch: ground by clingo, compiled into a circuit, on first use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import clingo
import numpy as np
import numpy.typing as npt

from heron_asp.errors import HeronError
from heron_asp.limits import SpaceLimits
from heron_asp.resources import rule_files, rules_folder, suggestion
from heron_asp.sketch import Constraint, Sketch
from heron_asp.space.candidate import Candidate, Meaning, Pins, Weighting, is_shown
from heron_asp.space.circuit import Circuit
from heron_asp.space.compiled import Compiled, compile_program
from heron_asp.space.conflict import Guarded
from heron_asp.space.ground import TableProgram, ground
from heron_asp.space.own_rules import OwnRules, enforced
from heron_asp.space.sampling import sample
from heron_asp.space.table import TooLargeError
from heron_asp.terms import Term, Value, add_facts, fact, text, to_symbol


class SketchSpace:
    """The programs of one sketch.

    Args:
        sketch: the sketch.
        relaxed: constraints, by name, or rules (`c5`) that are lifted, to look and never to tune.
        own: constraints of the user's own.
        limits: what compiling may take.
    """

    def __init__(
        self,
        sketch: Sketch,
        relaxed: Iterable[str] = (),
        own: OwnRules | None = None,
        limits: SpaceLimits | None = None,
    ) -> None:
        self.sketch = sketch
        self.own = own or OwnRules()
        self.relaxed = _lifted(sketch, self.own, set(relaxed))
        self.limits = limits or SpaceLimits()

    @cached_property
    def name(self) -> str:
        """The sketch's name."""
        return self.sketch.name

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """All named constraints, those of the user's own rule files last."""
        return (*self.sketch.constraints, *self.own.as_constraints())

    def lifting(self, names: Iterable[str]) -> SketchSpace:
        """The space without some more constraints."""
        return SketchSpace(self.sketch, [*self.relaxed, *names], self.own, self.limits)

    # -- compiling -------------------------------------------------------------------------------------------------

    def control(
        self, guarded: bool = False, messages: list[str] | None = None, choices: Iterable[Term] = ()
    ) -> clingo.Control:
        """A fresh clingo control with the sketch's problem, not ground yet. Its models are the programs.

        Args:
            guarded: constraints that only forbid are choices (see `guards`), so that each can be assumed or not.
            messages: filled with what clingo has to say.
            choices: further atoms that may hold or not.
        """
        said: list[str] = [] if messages is None else messages
        control = clingo.Control(["0", "--warn=all"], logger=lambda _code, message: said.append(message))
        for path in rule_files(rules_folder() / "csp"):
            control.load(str(path))
        if self.own:
            self.own.add_to(control, self.sketch.facts())
        facts = [*self.sketch.problem(self.relaxed), *enforced(n for n in self.own.names if n not in self.relaxed)]
        guards = {atom for atoms in self.guards.values() for atom in atoms} if guarded else set()
        add_facts(control, (atom for atom in facts if atom not in guards))
        with control.backend() as backend:
            for atom in (*guards, *choices):
                backend.add_rule([backend.add_atom(to_symbol(atom))], choice=True)
        return control

    @cached_property
    def guards(self) -> dict[str, tuple[Term, ...]]:
        """The atoms that put each constraint that only forbids into force, by its name."""
        found = {
            one.name: tuple(fact("constraint", (one.rule, one.id), kind) for kind in one.kinds)
            for one in self.sketch.constraints
            if one.defines is None and one.name not in self.relaxed
        }
        own = {name: tuple(enforced([name])) for name in self.own.names if name not in self.relaxed}
        return {**found, **own}

    @cached_property
    def definitions(self) -> dict[str, Term]:
        """The atom that excuses each constraint that defines a variable from having a value, by its name."""
        return {
            one.name: fact("excused", (one.rule, one.id)) for one in self.sketch.constraints if one.defines is not None
        }

    @cached_property
    def largest(self) -> int:
        """The largest value that a variable may have."""
        bound = self.control().get_const("bound")
        assert bound is not None
        return bound.number

    @cached_property
    def compiled(self) -> Compiled:
        """The compiled problem.

        Raises:
            HeronError: grounding or compiling takes more time or memory than it may.
        """
        return self.limits.call(self._what, self._compile)

    @property
    def _what(self) -> str:
        return f"compiling the space of sketch '{self.name}'"

    def _compile(self) -> Compiled:
        messages: list[str] = []
        program = ground(self.control(messages=messages))
        _raise_own(messages, self.own)
        try:
            return compile_program(program, self.limits.rows)
        except TooLargeError:
            raise self.limits.too_large(self._what) from None

    @cached_property
    def guarded(self) -> Guarded:
        """The problem for explanations: each constraint that only forbids is assumed or not."""
        return Guarded(self)

    # -- what it holds ---------------------------------------------------------------------------------------------

    @property
    def program(self) -> TableProgram:
        """The ground problem as tables."""
        return self.compiled.program

    @property
    def circuit(self) -> Circuit | None:
        """The circuit; None where grounding alone refutes the problem."""
        return self.compiled.circuit

    @property
    def exact(self) -> bool:
        """Whether `size` is exact; otherwise it is an estimate from samples."""
        return self.compiled.exact

    @cached_property
    def variables(self) -> dict[Value, int]:
        """Number in the circuit of each variable of the sketch."""
        return {family[1]: number for number, family in enumerate(self.program.families) if family[0] == "value"}

    @cached_property
    def domains(self) -> dict[Value, tuple[Value, ...]]:
        """Values of each variable that some program has; where the space is not exact, some that none may have."""
        shares = self.marginals()
        return {
            variable: tuple(shares[variable]) if variable in shares else tuple(self.program.values[number])
            for variable, number in self.variables.items()
            if shares
        }

    @cached_property
    def size(self) -> int:
        """Number of programs: exact, or an estimate where `exact` is false."""
        if self.exact:
            return self.compiled.bound()
        if self.compiled.acceptance == 0.0:
            raise self._too_rare()
        return round(self.compiled.bound() * self.compiled.acceptance)

    def count(self, pins: Pins) -> int:
        """Number of programs under pins: exact, or an estimate where `exact` is false and the pins leave too many."""
        weights = self.weights(pins)
        if weights is None:
            return 0
        if self.exact:
            return self.compiled.bound(weights)
        under = self.pinned(pins)
        if under.exact:
            return under.bound()
        return round(under.bound() * under.acceptance)

    def weights(self, pins: Pins, weighting: Weighting | None = None) -> dict[int, npt.NDArray[np.float64]] | None:
        """Pins and weights by number of variable; None if a pin leaves no value.

        Raises:
            HeronError: there is no such variable.
        """
        weights: dict[int, npt.NDArray[np.float64]] = {}
        for variable, allowed in pins.items():
            number = self._number(variable)
            weight = np.zeros(len(self.program.values[number]))
            weight[[self._index[number][value] for value in allowed if value in self._index[number]]] = 1.0
            if not weight.any():
                return None
            weights[number] = weight
        for variable, by_value in (weighting or {}).items():
            number = self._number(variable)
            weight = np.array([float(by_value.get(value, 1.0)) for value in self.program.values[number]])
            weights[number] = weights.get(number, 1.0) * weight
        return weights

    @cached_property
    def _index(self) -> list[dict[Value, int]]:
        """For each number of a variable the index of each of its values."""
        return [{value: index for index, value in enumerate(values)} for values in self.program.values]

    def _number(self, variable: Value) -> int:
        number = self.variables.get(variable)
        if number is None:
            raise HeronError(
                f"sketch '{self.name}' has no variable {text(variable)}",
                suggestion(text(variable), (text(one) for one in self.variables if is_shown(one))),
            )
        return number

    # -- samples ---------------------------------------------------------------------------------------------------

    def sample(
        self,
        number: int,
        rng: np.random.Generator,
        pins: Pins | None = None,
        weighting: Weighting | None = None,
    ) -> list[Candidate]:
        """Independent, exactly uniform programs under pins; none if there is none.

        Args:
            number: how many.
            rng: what is random about them.
            pins: values that variables may have.
            weighting: draws in proportion to the product of these weights instead of uniformly.
        """
        return sample([self], number, rng, pins or {}, weighting)

    def sample_each(self, pins: Sequence[Pins], number: int, rng: np.random.Generator) -> list[list[Candidate]]:
        """The same under each of many sets of pins, far faster than one after the other."""
        weights = self._weights_each(pins)
        drawn = self.compiled.draw_each(len(pins), number, rng, weights)
        found = [[self.candidate_of(row) for row in rows] for rows in drawn]
        if self.exact:
            return found
        return [  # few of the circuit's solutions were programs
            [*some, *self.sample(number - len(some), rng, one)] if len(some) < number else some
            for some, one in zip(found, pins, strict=True)
        ]

    def _weights_each(self, pins: Sequence[Pins]) -> dict[int, npt.NDArray[np.float64]]:
        """Several sets of pins by number of variable: shape (sets, values)."""
        sets: dict[int, list[int]] = {}
        allowed: dict[int, tuple[list[int], list[int]]] = {}
        for place, one in enumerate(pins):
            for variable, values in one.items():
                number = self._number(variable)
                index = self._index[number]
                sets.setdefault(number, []).append(place)
                rows, columns = allowed.setdefault(number, ([], []))
                for value in values:
                    if value in index:
                        rows.append(place)
                        columns.append(index[value])
        weights: dict[int, npt.NDArray[np.float64]] = {}
        for number, rows in sets.items():
            weight = weights[number] = np.ones((len(pins), len(self.program.values[number])))
            weight[rows] = 0.0
            weight[allowed[number]] = 1.0
        return weights

    def pinned(self, pins: Pins) -> Compiled:
        """The problem under pins, compiled by itself: often small enough to need no rejection."""
        weights = self.weights(pins) or {}
        domain = [
            weights[variable] > 0 if variable in weights else np.ones(len(values), dtype=bool)
            for variable, values in enumerate(self.program.values)
        ]
        try:
            return compile_program(self.program, self.limits.rows, domain)
        except TooLargeError:
            raise self.limits.too_large(self._what) from None

    def require_found(self, pins: Pins) -> None:
        """Raises a HeronError where no sample was found, and that is no proof that there is no program."""
        compiled = self.pinned(pins)
        if not compiled.exact and compiled.bound() > 0:
            raise self._too_rare()

    def _too_rare(self) -> HeronError:
        left = ", ".join(one.name for one in self.compiled.rejecting)
        return HeronError(
            f"the space of sketch '{self.name}' is too large to compile, and none of its samples satisfies {left}",
            f"--space-memory (now {self.limits.memory} MiB) allows more",
        )

    def best(self, score: Weighting, pins: Pins | None = None) -> tuple[Candidate, float] | None:
        """The program with the largest sum of scores, one a variable and value (0 where not named); None if none.

        Raises:
            HeronError: the space is not exact.
        """
        if not self.exact:
            raise HeronError(f"the space of sketch '{self.name}' is not compiled exactly, so its optimum is unknown")
        weights = self.weights(pins or {})
        if weights is None or self.circuit is None:
            return None
        scores = {
            self._number(variable): np.array(
                [float(by_value.get(value, 0.0)) for value in self.program.values[self._number(variable)]]
            )
            for variable, by_value in score.items()
        }
        found = self.circuit.best(scores, weights)
        return None if found is None else (self.candidate_of(found[0]), found[1])

    def marginals(self, pins: Pins | None = None) -> dict[Value, dict[Value, float]]:
        """For each variable of the circuit the share of its programs that have each value, those with none left out."""
        weights = self.weights(pins or {})
        if weights is None or self.circuit is None:
            return {}
        shares = self.circuit.marginals(weights)
        return {
            variable: {
                value: float(share)
                for value, share in zip(self.program.values[number], shares[number], strict=True)
                if share > 0
            }
            for variable, number in self.variables.items()
            if number in shares and number not in self.compiled.outside
        }

    def candidate(self, knobs: Mapping[Value, Value]) -> Candidate:
        """The program with these knobs.

        Raises:
            HeronError: the knobs do not make exactly one program.
        """
        pins = {knob: frozenset({value}) for knob, value in knobs.items()}
        programs = self.count(pins)
        if programs != 1:
            raise HeronError(f"sketch '{self.name}' has {programs} programs with these values, not one")
        return self.sample(1, np.random.default_rng(0), pins)[0]

    def candidate_of(self, row: npt.NDArray[np.intp]) -> Candidate:
        """The program of a row of value indices."""
        return Candidate(self.meaning, row)

    @cached_property
    def meaning(self) -> Meaning:
        """What value indices stand for. Named numbers and fixed knobs do not identify a program."""
        values = self.program.values
        chosen = [knob for knob in self.sketch.knobs if is_shown(knob) and len(values[self.variables[knob]]) > 1]
        return Meaning(self.name, self.variables, values, chosen)


def _lifted(sketch: Sketch, own: OwnRules, named: set[str]) -> tuple[str, ...]:
    """Names of the constraints to lift; of a rule those that only forbid."""
    found = [name for name in own.names if name in named or name.partition(":")[0] in named]
    for constraint in sketch.constraints:
        if constraint.defines is None:
            if constraint.name in named or constraint.rule in named:
                found.append(constraint.name)
        elif constraint.name in named:
            raise HeronError(
                f"{constraint.name} defines {text(constraint.defines)}: without it there is no value",
                "constraints that only forbid can be lifted",
            )
    return tuple(found)


def _raise_own(messages: list[str], own: OwnRules) -> None:
    """Messages of clingo's about the user's rules are errors."""
    files = {str(one.file) for one in (*own.definitions, *own.constraints)}
    about = [message for message in messages if any(message.startswith(f"{file}:") for file in files)]
    if about:
        raise HeronError("the rules give warnings, which are errors here:\n" + "\n".join(about))
