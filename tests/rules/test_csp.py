"""The constraint stage: every kind of constraint, by enumerating tiny problems with clingo."""

from __future__ import annotations

import clingo

from heron_asp.resources import rules_folder


def solutions(facts: str) -> list[dict[str, str]]:
    control = clingo.Control(["0"], logger=lambda *_: None)
    control.load(str(rules_folder() / "csp" / "csp.lp"))
    control.add("base", [], facts)
    control.ground([("base", [])])
    found = []
    with control.solve(yield_=True) as handle:
        for model in handle:
            found.append({str(a.arguments[0]): str(a.arguments[1]) for a in model.symbols(shown=True)})
    return sorted(found, key=str)


def test_factors_of_a_known_product_choose_from_its_divisors():
    found = solutions("knob(whole; x; y). candidate(whole, 12). constraint(c, product(whole)). factor(c, (x; y)).")
    assert sorted((int(one["x"]), int(one["y"])) for one in found) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]


def test_a_known_product_with_several_candidates():
    found = solutions("knob(whole; x; y). candidate(whole, (4; 6)). constraint(c, product(whole)). factor(c, (x; y)).")
    assert sorted((int(s["whole"]), int(s["x"])) for s in found) == [
        (4, 1),
        (4, 2),
        (4, 4),
        (6, 1),
        (6, 2),
        (6, 3),
        (6, 6),
    ]


def test_a_product_without_factors_is_one():
    assert solutions("constraint(c, product(p)).") == [{"p": "1"}]


def test_sum_with_coefficients_and_a_negative_constant():
    facts = (
        "knob(x; y). candidate(x, (3; 5)). candidate(y, 2). constraint(c, sum(s, -4)). part(c, 2, x). part(c, -1, y)."
    )
    assert [(one["x"], one["s"]) for one in solutions(facts)] == [("3", "0"), ("5", "4")]


def test_select_takes_the_case_of_its_knob():
    facts = """
    knob(p; u; v). candidate(p, (here; there)). candidate(u, 7). candidate(v, (8; 9)).
    constraint(c, select(s, p)). case(c, here, u). case(c, there, v).
    """
    assert sorted((one["p"], one["v"], one["s"]) for one in solutions(facts)) == [
        ("here", "8", "7"), ("here", "9", "7"), ("there", "8", "8"), ("there", "9", "9"),
    ]  # fmt: skip


def test_a_selection_without_a_case_is_no_program():
    facts = "knob(p; u). candidate(p, (here; there)). candidate(u, 7). constraint(c, select(s, p)). case(c, here, u)."
    assert [one["p"] for one in solutions(facts)] == ["here"]


def test_at_most_and_at_least():
    base = "knob(x; y). candidate((x; y), (1; 2; 3)). constraint(c, at_most({})). part(c, {}, x). part(c, {}, y)."
    assert len(solutions(base.format(4, 1, 1))) == 6
    assert len(solutions(base.format(-5, -1, -1))) == 3
    assert len(solutions(base.format(0, 1, -1))) == 6  # x <= y


def test_among_holds_only_under_its_condition():
    facts = "knob(x; y). candidate((x; y), (1; 2)). constraint(c, among(x, 1)). only_if(c, y, 2)."
    assert sorted((one["x"], one["y"]) for one in solutions(facts)) == [("1", "1"), ("1", "2"), ("2", "1")]


def test_among_is_a_menu():
    facts = "knob(x; y). candidate((x; y), (1; 2; 3)). constraint(c, among(x, (1; 3))). only_if(c, y, 2)."
    assert {(one["x"], one["y"]) for one in solutions(facts)} == {
        (x, y) for x in "123" for y in "123" if y != "2" or x != "2"
    }


def test_equal():
    facts = "knob(x; y). candidate((x; y), (1; 2)). constraint(c, equal(x, y))."
    assert sorted((one["x"], one["y"]) for one in solutions(facts)) == [("1", "1"), ("2", "2")]


def test_balanced_lets_one_task_or_busy_workers_pass():
    facts = "knob(x). candidate(x, 1..12). constraint(c, balanced(x, 4, 80))."
    found = {int(one["x"]) for one in solutions(facts)}
    assert found == {x for x in range(1, 13) if x == 1 or 100 * x >= 80 * 4 * -(-x // 4)}


def test_two_constraints_that_define_one_variable_agree():
    facts = """
    knob(x; y). candidate((x; y), (2; 3)). constraint(a, product(t)). factor(a, x). constraint(b, product(t)).
    factor(b, y).
    """
    assert all(one["x"] == one["y"] == one["t"] for one in solutions(facts))
    assert len(solutions(facts)) == 2


def test_what_overflows_is_no_program_and_never_passes_a_capacity():
    facts = """
    knob(x; y; z). candidate((x; y; z), (1; 4096; 65536)).
    constraint(p, product(t)). factor(p, (x; y; z)). constraint(cap, at_most(65536)). part(cap, 1, t).
    """
    found = {tuple(int(one[v]) for v in "xyz") for one in solutions(facts)}
    values = (1, 4096, 65536)
    assert found == {(x, y, z) for x in values for y in values for z in values if x * y * z <= 65536}


def test_a_term_that_overflows_is_a_violation():
    facts = "knob(x; y). candidate(x, (1; 65536)). candidate(y, 1). constraint(c, at_most(5)). "
    assert [one["x"] for one in solutions(facts + "part(c, 65536, x). part(c, -65535, y).")] == ["1"]


def test_values_below_zero_count_below_zero():
    facts = "knob(x; y). candidate(x, (1; 2)). candidate(y, 2). constraint(c, sum(s, -2)). part(c, 1, x). "
    facts += "constraint(m, at_most(-3)). part(m, 1, s). part(m, -1, y)."
    assert [(one["x"], one["s"]) for one in solutions(facts)] == [("1", "-1")]


def test_many_workers_with_many_rounds_are_busy():
    facts = "knob(x). candidate(x, (1; 300000; 200000000)). constraint(c, balanced(x, 200000, 80))."
    assert [one["x"] for one in solutions(facts)] == ["1", "200000000"]
