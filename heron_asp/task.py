"""An operator on a target with a number of threads: the space of its programs, and the program of a candidate."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from heron_asp.analysis import BlockFacts, analyse
from heron_asp.derivation import Derivation, derive
from heron_asp.errors import HeronError
from heron_asp.operators import Operator
from heron_asp.resources import digest, rule_files, rules_folder, suggestion
from heron_asp.rulefile import require_safe
from heron_asp.schedule.calls import Call
from heron_asp.schedule.plan import plan
from heron_asp.schedule.replay import Program, replay
from heron_asp.sketch import Sketch
from heron_asp.space import Candidate, OwnRules, SketchSpace, Space, SpaceLimits, own_rules
from heron_asp.target import Target


def available_threads() -> int:
    """Threads that this process may run on."""
    return len(os.sched_getaffinity(0))


class Task:
    """Everything that follows from an operator, a target and a number of threads.

    Args:
        operator: what to compute.
        target: the machine.
        threads: how many threads a kernel may use.
        extra_rules: further rule files.
        relaxed: what to lift: a rule of thumb by its name in the target, a constraint by its name in the audit, a rule.
        limits: what compiling the space of a sketch may take.
        trusted: the user answers for the rule files: they may run scripts and include from anywhere.
        padding: whether axes may be padded; without, to look at what fits as it is.
    """

    def __init__(
        self,
        operator: Operator,
        target: Target,
        threads: int = 1,
        extra_rules: Sequence[Path] = (),
        relaxed: Sequence[str] = (),
        *,
        limits: SpaceLimits | None = None,
        trusted: bool = False,
        padding: bool = True,
    ) -> None:
        self.operator = operator
        self.target = target
        self.threads = threads
        self.extra_rules = tuple(extra_rules)
        self.relaxed = tuple(relaxed)
        self.limits = limits or SpaceLimits()
        self.trusted = trusted
        self.padding = padding
        for path in (*self.extra_rules, *(rule_files(target.rules[1]) if target.brings_rules else ())):
            require_safe(path, rules_folder(), trusted)

    @cached_property
    def block(self) -> BlockFacts:
        """Operator facts."""
        return analyse(self.operator, **self.target.seen_as)

    @cached_property
    def derivation(self) -> Derivation:
        """All sketches and refusals.

        Raises:
            HeronError: something to relax does not exist.
        """
        derivation = derive(
            self.block, self.target, self.threads, self.extra_rules, self.relaxed, self.padding, self.limits
        )
        constraints = [constraint for sketch in derivation.sketches for constraint in sketch.constraints]
        constraints += self.own.as_constraints()
        known = {*self.target.pays, *(name for one in constraints for name in (one.name, one.rule))}
        for name in self.relaxed:
            if name not in known:
                raise HeronError(
                    f"--relax {name}: no rule of thumb, constraint or rule has that name", suggestion(name, known)
                )
        return derivation

    @cached_property
    def useful_operations(self) -> float:
        """Arithmetic operations of a call without those on zero padding, which a program may skip."""
        return self.operator.operations * self.block.useful_share

    @property
    def sketches(self) -> tuple[Sketch, ...]:
        """The sketches that are searched."""
        return tuple(sketch for sketch in self.derivation.sketches if sketch.aside is None)

    @cached_property
    def space(self) -> Space:
        """The programs of the sketches that are searched."""
        return Space(self.sketches, self.space_relaxed, self.own, self.limits)

    def space_of(self, sketch: Sketch) -> SketchSpace:
        """The programs of a sketch, also of one that is set aside."""
        return SketchSpace(sketch, self.space_relaxed, self.own, self.limits)

    def relaxing(self, names: Sequence[str]) -> Task:
        """The same task with more lifted."""
        lifted = (*self.relaxed, *names)
        return Task(
            self.operator,
            self.target,
            self.threads,
            self.extra_rules,
            lifted,
            limits=self.limits,
            trusted=self.trusted,
            padding=self.padding,
        )

    @cached_property
    def own(self) -> OwnRules:
        """Constraints of the user's own on the programs."""
        return own_rules(self.extra_rules)

    @property
    def space_relaxed(self) -> tuple[str, ...]:
        """What the circuits lift: rules of thumb are lifted in the derivation already."""
        return tuple(name for name in self.relaxed if name not in self.target.pays)

    @cached_property
    def rules_digest(self) -> str:
        """A hash of all rules that make the space."""
        return digest([*rule_files(*self.target.rules, rules_folder() / "csp"), *self.extra_rules])

    @cached_property
    def key(self) -> str:
        """Identifies the task in a record: operator, target, threads, rules and versions that decide its result."""
        from importlib.metadata import version

        said = {
            "operator": self.operator.label + self.operator.kind.digest,
            "target": self.target.digest,
            "threads": self.threads,
            "rules": self.rules_digest,
            "relaxed": sorted(self.relaxed),
            "padding": self.padding,
            "tvm": version("apache-tvm"),
            "clingo": version("clingo"),
        }
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def calls(self, candidate: Candidate) -> list[Call]:
        """The schedule of a candidate."""
        return plan(self.block, self.space[candidate.sketch].sketch, candidate.values)

    def program(self, candidate: Candidate) -> Program:
        """A candidate's scheduled program."""
        return replay(self.block, self.calls(candidate), self.target.intrinsics)
