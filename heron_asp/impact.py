"""What a constraint costs, and what an edit of the rules changed: in numbers of programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heron_asp.task import Task


@dataclass(frozen=True)
class Impact:
    """The space without something.

    Attributes:
        lifted: a constraint, a rule of thumb or a rule.
        force: `must` or `pays`; both where a rule has both kinds.
        programs: number of programs without it.
    """

    lifted: str
    force: str
    programs: int


def impacts(task: Task) -> Iterator[Impact]:
    """The number of programs with each constraint that only forbids lifted, each rule of thumb, and each rule.

    What is lifted may not be needed alone: two constraints that forbid the same have no impact one by one.
    """
    constraints = {one.name: one for part in task.space for one in part.constraints if one.defines is None}
    rules: dict[str, set[str]] = {}
    for one in constraints.values():
        rules.setdefault(one.rule, set()).add(one.force)
    for name, one in sorted(constraints.items()):
        yield Impact(name, one.force, _size_without(task, name))
    for thumb in sorted(task.target.pays):  # may be more than a constraint: a candidate, or a sketch that is set aside
        yield Impact(thumb, "pays", task.relaxing([thumb]).space.size)
    for rule, forces in sorted(rules.items()):
        yield Impact(rule, " and ".join(sorted(forces)), _size_without(task, rule))


def _size_without(task: Task, name: str) -> int:
    return sum(part.lifting([name]).size for part in task.space)


@dataclass(frozen=True)
class Difference:
    """What differs between two audits of one operator.

    Attributes:
        programs: numbers of programs, before and after.
        added: constraints that are new. removed: those that are gone. changed: names with their text before and after.
        variables: names with the number of their values before and after, where the values differ; 0 where missing.
    """

    programs: tuple[int, int]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[tuple[str, str, str], ...]
    variables: tuple[tuple[str, int, int], ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.variables or len(set(self.programs)) > 1)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference:
    """Compares two JSON objects of `audit`."""
    old, new = _texts(before["constraints"]), _texts(after["constraints"])
    old_values = {one["name"]: one["values"] for one in before["variables"]}
    new_values = {one["name"]: one["values"] for one in after["variables"]}
    names = sorted(old_values.keys() | new_values.keys())
    values = [(name, old_values.get(name, []), new_values.get(name, [])) for name in names]
    return Difference(
        programs=(before["programs"], after["programs"]),
        added=tuple(f"{name} {new[name]}" for name in sorted(new.keys() - old.keys())),
        removed=tuple(f"{name} {old[name]}" for name in sorted(old.keys() - new.keys())),
        changed=tuple(
            (name, old[name], new[name]) for name in sorted(old.keys() & new.keys()) if old[name] != new[name]
        ),
        variables=tuple((name, len(was), len(now)) for name, was, now in values if was != now),
    )


def _texts(constraints: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The force and text of each constraint; one that differs between sketches has several texts."""
    found: dict[str, list[str]] = {}
    for one in constraints:
        found.setdefault(one["id"], []).append(f"({one['force']}): {one['text']}")
    return {name: "; ".join(sorted(texts)) for name, texts in found.items()}
