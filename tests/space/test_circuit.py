"""The circuit against clingo's enumeration: counts, pinned counts, samples, marginals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import clingo
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_asp.resources import rules_folder
from heron_asp.space.circuit import Circuit
from heron_asp.space.compiled import compile_program
from heron_asp.space.ground import ground
from heron_asp.space.table import Table, TooLargeError, codes, table
from heron_asp.terms import Term, add_facts, fact, from_symbol

NAMES = ["u", "v", "w", "x"]


@st.composite
def problems(draw) -> list[Term]:
    """A random constraint problem of every kind of constraint."""
    facts = [fact("knob", name) for name in NAMES]
    for name in NAMES:
        facts += [fact("candidate", name, value) for value in draw(st.sets(st.integers(1, 6), min_size=1, max_size=4))]
    defined = list(NAMES)
    for number in range(draw(st.integers(0, 4))):
        target = f"t{number}"
        members = draw(st.lists(st.sampled_from(defined), min_size=1, max_size=3, unique=True))
        kind = draw(st.sampled_from(["product", "sum", "select"]))
        if kind == "product":
            facts.append(fact("constraint", number, fact("product", target)))
            facts += [fact("factor", number, member) for member in members]
        elif kind == "sum":
            facts.append(fact("constraint", number, fact("sum", target, draw(st.integers(-3, 3)))))
            facts += [fact("part", number, draw(st.sampled_from([-1, 1, 2])), member) for member in members]
        else:
            knob = draw(st.sampled_from(NAMES))
            facts.append(fact("constraint", number, fact("select", target, knob)))
            for value in range(1, 7):
                facts.append(fact("case", number, value, draw(st.sampled_from(members))))
        defined.append(target)
    for number in range(10, 10 + draw(st.integers(0, 3))):
        a, b = draw(st.lists(st.sampled_from(defined), min_size=2, max_size=2, unique=True))
        kind = draw(st.sampled_from(["at_most", "among", "equal", "balanced"]))
        if kind == "at_most":
            facts.append(fact("constraint", number, fact("at_most", draw(st.integers(-6, 20)))))
            facts += [fact("part", number, draw(st.sampled_from([-1, 1, 3])), one) for one in (a, b)]
        elif kind == "among":
            facts.append(fact("constraint", number, fact("among", a, draw(st.integers(1, 6)))))
            if draw(st.booleans()):
                facts.append(fact("only_if", number, draw(st.sampled_from(NAMES)), draw(st.integers(1, 6))))
        elif kind == "equal":
            facts.append(fact("constraint", number, fact("equal", a, b)))
        else:
            facts.append(fact("constraint", number, fact("balanced", a, draw(st.integers(2, 4)), 80)))
    return list(dict.fromkeys(facts))


def control(facts: list[Term]) -> clingo.Control:
    made = clingo.Control(["0"], logger=lambda *_: None)
    made.load(str(rules_folder() / "csp" / "csp.lp"))
    add_facts(made, facts)
    return made


def enumerate_all(facts: list[Term]) -> list[dict]:
    made = control(facts)
    made.ground([("base", [])])
    found = []
    with made.solve(yield_=True) as handle:
        for model in handle:
            found.append({from_symbol(a.arguments[0]): from_symbol(a.arguments[1]) for a in model.symbols(shown=True)})
    return found


@given(problems(), st.data())
@settings(max_examples=120, deadline=None)
def test_counts_equal_enumeration(facts: list[Term], data) -> None:
    models = enumerate_all(facts)
    program = ground(control(facts))
    if program.unsatisfiable:
        assert not models
        return
    compiled = compile_program(program, 100_000)
    circuit = compiled.circuit
    assert compiled.exact
    assert circuit.count() == len(models)
    variables = {family[1]: number for number, family in enumerate(program.families) if family[0] == "value"}
    pinned = data.draw(st.sampled_from(sorted(variables, key=str)))
    number = variables[pinned]
    for index, value in enumerate(program.values[number]):
        weight = np.zeros(len(program.values[number]))
        weight[index] = 1
        expected = [model for model in models if model[pinned] == value]
        assert circuit.count({number: weight}) == len(expected)
        for row in circuit.sample(3, np.random.default_rng(0), {number: weight}):
            assert {name: program.values[n][row[n]] for name, n in variables.items()} in expected
    if models:
        share = circuit.marginals()[number]
        counted = Counter(model[pinned] for model in models)
        for value, got in zip(program.values[number], share, strict=True):
            assert got == pytest.approx(counted[value] / len(models))
        scores = {n: np.arange(len(program.values[n])) * (1.5 if n == number else -1.0) for n in variables.values()}
        row, best = circuit.best(scores)
        assert best == pytest.approx(sum(scores[n][row[n]] for n in scores))
        positions = {name: {v: i for i, v in enumerate(program.values[n])} for name, n in variables.items()}
        assert best == pytest.approx(
            max(sum(scores[variables[name]][positions[name][v]] for name, v in one.items()) for one in models)
        )


@given(problems(), st.data())
@settings(max_examples=60, deadline=None)
def test_what_a_small_circuit_leaves_out_is_rejected(facts: list[Term], data) -> None:
    """Any set of restrictions may be left out: what is drawn are solutions, and all of them can be drawn."""
    program = ground(control(facts))
    if program.unsatisfiable:
        return
    full = compile_program(program, 100_000)
    tabled = [one for one in program.restrictions if one.tables]
    outside = data.draw(st.lists(st.sampled_from(tabled), unique_by=id)) if tabled else []
    left = [one if one not in outside else replace(one, tables=()) for one in program.restrictions]
    loose = compile_program(replace(program, restrictions=left), 100_000)
    assert loose.exact or outside
    assert loose.bound() >= full.bound()
    auxiliary = {variable for one in outside for variable in one.auxiliary}
    kept = [v for v in range(len(program.values)) if v not in auxiliary]
    drawn = {tuple(row[kept]) for row in loose.draw(400, np.random.default_rng(0))}
    every = {tuple(row[kept]) for row in full.draw(4000, np.random.default_rng(1))} if full.bound() else set()
    assert drawn <= every if full.bound() <= 100 else True
    if full.bound():
        assert loose.acceptance == pytest.approx(full.bound() / loose.bound(), abs=0.02)


def test_samples_are_uniform() -> None:
    facts = [fact("knob", n) for n in ("whole", "a", "b", "c")] + [fact("candidate", "whole", 24)]
    facts += [fact("candidate", "whole", 36), fact("constraint", 1, fact("product", "whole"))]
    facts += [fact("factor", 1, name) for name in ("a", "b", "c")]
    program = ground(control(facts))
    circuit = compile_program(program, 100_000).circuit
    count = circuit.count()
    assert count == len(enumerate_all(facts)) == 30 + 36
    draws = 40 * count
    rows = circuit.sample(draws, np.random.default_rng(1))
    seen = Counter(map(tuple, rows))
    chi = sum((seen.get(key, 0) - 40) ** 2 / 40 for key in seen) + 40 * (count - len(seen))
    assert len(seen) == count
    assert chi / (count - 1) < 1.6  # three standard deviations and a half above 1
    single = Counter(tuple(circuit.sample(1, rng)[0]) for rng in map(np.random.default_rng, range(600)))
    assert len(single) == count  # drawn one at a time, by the other branch of the code


def test_exact_above_the_floats() -> None:
    variables = 40
    circuit = Circuit([7] * variables, [])
    assert circuit.count() == 7**variables


def test_unsatisfiable_tables() -> None:
    circuit = Circuit([2, 2], [table([0], [[0]]), table([0], [[1]])])
    assert circuit.count() == 0
    assert len(circuit.sample(5, np.random.default_rng(0))) == 0


def test_a_repeated_variable_has_one_value() -> None:
    assert table([3, 3], [[0, 1], [1, 1]]).rows.tolist() == [[1]]


def test_codes_stay_exact_where_the_product_of_sizes_overflows() -> None:
    rows = np.random.default_rng(0).integers(0, 1000, (500, 9)).astype(np.int32)
    code = codes(rows, range(9), [1000] * 9)
    assert len(np.unique(code)) == len(np.unique(rows, axis=0))


def test_the_limit_is_kept() -> None:
    rows = np.argwhere(np.ones((30, 30))).astype(np.int32)
    cycle = [Table((i, (i + 1) % 5), rows) for i in range(5)]
    with pytest.raises(TooLargeError):
        Circuit([30] * 5, cycle, limit=1000)
