"""Minimal conflicts, remedies, and what a space costs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_asp.errors import HeronError
from heron_asp.explain import conflict, sentences, variable_state
from heron_asp.operators import operator
from heron_asp.resources import targets_folder
from heron_asp.space import Guarded, SpaceLimits
from heron_asp.target import Target, load_target
from heron_asp.task import Task
from heron_asp.terms import parse
from tests.conftest import make_task


def unpadded(target: Target, **shape: int) -> Task:
    return Task(operator("gemm", shape), target, padding=False)


@pytest.mark.parametrize(
    ("shape", "said", "remedy"),
    [
        (
            {"m": 64, "n": 9, "k": 2048},
            "s1:unpadded(c, n) (must): extent(c, n) = 9, but it can only be 16",
            "pad n from 9 to 16: 44 % of the work is padding (without --no-padding)",
        ),
        (
            {"m": 64, "n": 32, "k": 6},
            "s1:unpadded(c, k) (must): extent(c, k) = 6, but it can only be 8",
            "pad k from 6 to 8: 25 % of the work is padding (without --no-padding)",
        ),
        (
            {"m": 64, "n": 9, "k": 6},
            "s1:unpadded(c, k) (must): extent(c, k) = 6, but it can only be 8",
            "pad k from 6 to 8 and n from 9 to 16: 58 % of the work is padding (without --no-padding)",
        ),
    ],
)
def test_without_padding_the_conflict_names_the_axis_and_the_unit(
    zen4: Target, shape: dict[str, int], said: str, remedy: str
) -> None:
    task = unpadded(zen4, **shape)
    for part in task.space:
        found = conflict(part, {})
        assert found is not None
        assert sentences(found, task) == [said]
        assert found.remedies[0] == remedy


def test_a_pin_that_a_rule_of_thumb_excludes(zen4: Target) -> None:
    task = make_task(zen4, m=64, n=64, k=64)
    part = task.space.parts[0]
    register = parse("tile(c, m, register)")
    assert variable_state(part, register, 32) == "tile(c, m, register) = 32 is excluded by c6:registers(c)"
    assert variable_state(part, register, 7).startswith("tile(c, m, register) = 7 is unknown: its values are 1, 2, 4,")
    assert variable_state(part, register, 4).startswith("tile(c, m, register) = 4 is possible: ")
    found = conflict(part, {register: frozenset({32})})
    assert found is not None
    assert [one.name for one in found.constraints] == ["c6:registers(c)"]
    assert found.pins == (register,)
    assert found.remedies[0] == "tile(c, m, register) may be 1, 2, 4, 8, 16"
    admitted = Task(task.operator, zen4, relaxed=["registers"]).space[part.name].count({register: frozenset({32})})
    assert found.remedies[1].startswith(f"lifting c6:registers(c) (pays) would admit {admitted} programs: ")


def test_a_number_too_large_for_any_program_is_told() -> None:
    """No pin and no rule is to blame: the definition of the number is named, and cannot be lifted."""
    vta = load_target(targets_folder() / "vta-pynq.toml")
    task = Task(operator("gemm", {"m": 1_000_000, "n": 16, "k": 1_000}, "s8s8s32", epilogue="narrow=s8"), vta)
    found = conflict(task.space.parts[0], {})
    assert found is not None
    assert [one.defines for one in found.constraints] == [parse("footprint(a, start)")]
    (said,) = sentences(found, task)
    assert said.endswith("= footprint(a, start), but no number here may exceed 268,435,455")
    assert found.remedies == ("smaller extents",)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_conflicts_are_minimal(data) -> None:
    """Under random pins: a core exactly where the count is 0, and leaving any part of it out leaves programs."""
    made = operator("gemm", {"m": 24, "n": 96, "k": 32})
    task = Task(made, load_target(targets_folder() / "zen4.toml"), limits=SpaceLimits(seconds=None))
    part = task.space.parts[data.draw(st.integers(0, 1))]
    chosen = data.draw(st.lists(st.sampled_from(sorted(part.domains, key=str)), min_size=1, max_size=5, unique=True))
    pins = {}
    for variable in chosen:
        values = part.program.values[part.variables[variable]]
        pins[variable] = frozenset(data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=2)))
    core = Guarded(part).core(pins)
    assert (core is None) == (part.count(pins) > 0)
    if core is None:
        return
    kept = {variable: pins[variable] for variable in core.pins}
    others = [name for name in part.guards if name not in core.constraints]
    assert part.lifting(others).count(kept) == 0
    for name in core.constraints:
        assert part.lifting([*others, name]).count(kept) > 0
    for variable in core.pins:
        assert part.lifting(others).count({one: values for one, values in kept.items() if one != variable}) > 0


def test_a_deadline_and_a_memory_bound_end_in_a_clear_error(zen4: Target) -> None:
    made = operator("gemm", {"m": 5040, "n": 5040, "k": 5040})
    with pytest.raises(HeronError, match=r"compiling the space of sketch 'vpdpbusd' is not done after 0.01 s"):
        _ = Task(made, zen4, limits=SpaceLimits(seconds=0.01)).space.size
    with pytest.raises(HeronError, match=r"compiling the space of sketch '.*' needs more than 1 MiB"):
        _ = Task(made, zen4, limits=SpaceLimits(memory=1)).space.size


def test_rules_that_never_end_are_stopped(zen4: Target, tmp_path: Path) -> None:
    own = tmp_path / "own.lp"
    own.write_text("p(1).  p(X + 1) :- p(X).")
    task = Task(operator("gemm", {"m": 4, "n": 16, "k": 8}), zen4, extra_rules=[own], limits=SpaceLimits(64, 1.0))
    with pytest.raises(HeronError, match="deriving the sketches"):
        _ = task.space


def test_a_small_bound_on_memory_leaves_constraints_to_rejection(zen4: Target) -> None:
    """The sample stays uniform and inside; the count becomes an estimate and is called one."""
    made = operator("gemm", {"m": 1008, "n": 1008, "k": 1008})
    exact = Task(made, zen4)
    loose = Task(made, zen4, limits=SpaceLimits(memory=8, seconds=None))
    part = loose.space["vpdpbusd sliced"]
    assert not part.exact
    assert part.circuit.rows < exact.space[part.name].circuit.rows / 10
    assert 0.3 <= part.compiled.acceptance <= 1
    assert part.size == pytest.approx(exact.space[part.name].size, rel=0.02)


def test_impact_and_difference(zen4: Target, tmp_path: Path) -> None:
    from heron_asp.cli.audit import examine
    from heron_asp.impact import difference, impacts

    task = make_task(zen4, m=64, n=64, k=64)
    found = {one.lifted: one.programs for one in impacts(task)}
    assert found["c6:registers(c)"] == found["registers"] > task.space.size
    assert found["c6"] > found["registers"]
    assert min(found.values()) >= task.space.size
    own = tmp_path / "own.lp"
    own.write_text("#program space.\n:- value(tile(c, m, register), X), X > 4.\n")
    more = Task(task.operator, zen4, extra_rules=[own])
    changed = difference(examine(task), examine(more))
    assert changed.added == ("own.lp:2 (must): :- value(tile(c,m,register),X); X > 4.",)
    assert not changed.removed
    assert changed.programs == (task.space.size, more.space.size)
    assert ("tile(c, m, register)", 5, 3) in changed.variables
    assert not difference(examine(task), examine(task))
