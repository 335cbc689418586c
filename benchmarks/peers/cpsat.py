"""A sketch's constraint problem as a CP-SAT model: the sampler of Heron, and a randomised one."""

from __future__ import annotations

import random
from typing import Any

from ortools.sat.python import cp_model

from heron_asp.sketch import Constraint
from heron_asp.space import SketchSpace
from heron_asp.terms import Value


class Problem:
    """What a model is built from.

    Args:
        part: the sketch's space; its grounding gives the domains.
    """

    def __init__(self, part: SketchSpace) -> None:
        self.part = part
        self.values = {variable: part.program.values[number] for variable, number in part.variables.items()}
        self.code: dict[Value, int] = {}
        for values in self.values.values():
            for value in values:
                if not isinstance(value, int):
                    self.code.setdefault(value, len(self.code))
        self.knobs = [knob for knob in part.sketch.knobs if len(self.values[knob]) > 1]

    def number(self, value: Value) -> int:
        """A value as an integer."""
        return value if isinstance(value, int) else self.code.get(value, -1)

    def model(self, rng: random.Random | None) -> tuple[cp_model.CpModel, dict[Value, Any]]:
        """A model; variables and constraints in random order if there is a generator."""
        made = cp_model.CpModel()
        names = list(self.values)
        constraints = list(self.part.sketch.constraints)
        if rng:
            rng.shuffle(names)
            rng.shuffle(constraints)
        variables = {
            name: made.new_int_var_from_domain(
                cp_model.Domain.from_values([self.number(value) for value in self.values[name]]), str(name)
            )
            for name in names
        }
        for constraint in constraints:
            self._add(made, variables, constraint)
        return made, variables

    def _add(self, made: cp_model.CpModel, variables: dict[Value, Any], constraint: Constraint) -> None:
        kind, members = constraint.kind, constraint.members
        name, first = kind.name, kind.arguments[0]
        if name == "product":
            made.add_multiplication_equality(variables[first], [variables[variable] for _, variable in members])
        elif name == "sum":
            made.add(variables[first] == sum(c * variables[v] for c, v in members) + self.number(kind.arguments[1]))
        elif name == "at_most":
            made.add(sum(c * variables[v] for c, v in members) <= self.number(first))
        elif name == "equal":
            made.add(variables[first] == variables[kind.arguments[1]])
        elif name == "select":
            for value, variable in constraint.cases:
                chosen = self._is(made, variables[kind.arguments[1]], self.number(value))
                made.add(variables[first] == variables[variable]).only_enforce_if(chosen)
        elif name == "among":
            allowed = cp_model.Domain.from_values([self.number(value) for value in kind.arguments[1:]])
            added = made.add_linear_expression_in_domain(variables[first], allowed)
            if constraint.only_if:
                knob, value = constraint.only_if
                added.only_enforce_if(self._is(made, variables[knob], self.number(value)))
        else:
            raise ValueError(f"{constraint.name}: no model of '{name}'")

    @staticmethod
    def _is(made: cp_model.CpModel, variable: Any, value: int) -> Any:
        """A literal that holds just where the variable has the value."""
        literal = made.new_bool_var("")
        made.add(variable == value).only_enforce_if(literal)
        made.add(variable != value).only_enforce_if(~literal)
        return literal

    def knob_values(self, solver: cp_model.CpSolver, variables: dict[Value, Any]) -> tuple[int, ...]:
        """The program of a solution."""
        return tuple(solver.value(variables[knob]) for knob in self.knobs)


class FreshModel:
    """As Heron samples: a new model each time, in random order, with random hints; the first solution is taken."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self.rng = random.Random(seed)

    def draw(self) -> tuple[int, ...]:
        """One sample."""
        made, variables = self.problem.model(self.rng)
        for knob in self.problem.knobs:
            made.add_hint(variables[knob], self.problem.number(self.rng.choice(self.problem.values[knob])))
        solver = cp_model.CpSolver()
        solver.parameters.cp_model_presolve = False
        solver.parameters.num_workers = 1
        solver.solve(made)
        return self.problem.knob_values(solver, variables)


class RandomSearch:
    """A model that is built once; knobs are set in order to random halves of their values, with another seed each time.

    Of the randomisations that CP-SAT offers this is the one that gives the most distinct samples.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self.rng = random.Random(seed)
        self.made, self.variables = problem.model(None)
        knobs = [self.variables[knob] for knob in problem.knobs]
        self.made.add_decision_strategy(knobs, cp_model.CHOOSE_FIRST, cp_model.SELECT_RANDOM_HALF)

    def draw(self) -> tuple[int, ...]:
        """One sample."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.cp_model_presolve = False
        solver.parameters.search_branching = cp_model.FIXED_SEARCH
        solver.parameters.randomize_search = True
        solver.parameters.random_seed = self.rng.randrange(1 << 30)
        solver.solve(self.made)
        return self.problem.knob_values(solver, self.variables)
