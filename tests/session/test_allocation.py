"""Where the next trials go."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from heron_asp.session.allocation import BACKWARD, Round, Standing, choose, expected_gain


def standing(*best: float | None, weight: float = 1.0, peak: float | None = None, seconds: float = 1.0) -> Standing:
    """Rounds of ten trials with the best after each; 1e6 operations."""
    return Standing(weight, 10**6, "gemm", peak, [Round(10, one, seconds * 10) for one in best])


def gain(one: Standing, *others: Standing) -> float:
    return expected_gain(one, others)


def test_what_has_no_program_comes_first() -> None:
    assert gain(standing(None)) == gain(Standing(1.0, 1, "gemm")) == math.inf
    assert choose({"a": standing(1.0), "b": standing(None)}, "ab", 1, 1) == "b"


def test_the_gain_is_weighted_and_a_second_of_tuning() -> None:
    one = standing(2e-3, 1e-3)
    assert gain(replace(one, weight=3.0)) == pytest.approx(3 * gain(one))
    assert gain(standing(2e-3, 1e-3, seconds=2.0)) == pytest.approx(gain(one) * 1.1 / 2.1)


def test_who_improved_lately_goes_on() -> None:
    assert gain(standing(3e-3, 2e-3, 1e-3)) > gain(standing(1e-3, 1e-3, 1e-3))
    stopped = standing(3e-3, 1e-3, 1e-3, 1e-3, 1e-3)  # the improvement has left the window
    assert gain(stopped) == pytest.approx(gain(standing(1e-3, 1e-3, 1e-3, 1e-3, 1e-3)))
    first = standing(None, 2e-3, 1e-3)  # found its first program in the second round
    assert gain(first) == pytest.approx((BACKWARD * 1e-4 + (1 - BACKWARD) * 1e-3 / 30) / 1.1)


def test_nobody_is_expected_to_exceed_the_peak() -> None:
    """1e6 operations at 1e9 a second take 1 ms."""
    assert gain(standing(1.01e-3, 1.01e-3, peak=1e9)) < gain(standing(1.3e-3, 1.3e-3, peak=1e9))
    assert gain(standing(1e-3, 1e-3, peak=1e9)) == 0.0
    assert gain(standing(0.9e-3, 0.9e-3, peak=1e9)) == 0.0  # a peak that a busy machine hides


def test_similar_cases_say_what_can_be_reached() -> None:
    slow, fast = standing(4e-3, 4e-3), standing(1e-3, 1e-3)
    alone, beside = gain(standing(1e-5)), gain(standing(1e-5), replace(fast, kind="conv2d"))
    assert alone == beside  # of another kind
    few = Standing(1.0, 10**6, "gemm", None, [Round(1, 4e-3, 1.0)])
    assert gain(few, fast) == pytest.approx((4e-3 - 0.5e-3) / 1.1)  # twice as fast as the fast one, and no more
    assert gain(few, slow) == pytest.approx(2e-3 / 1.1)


def test_the_choice_is_a_function_of_seed_and_number() -> None:
    cases = {name: standing(1e-3 * place, 1e-3 * place) for place, name in enumerate("abc", start=1)}
    chosen = [choose(cases, "abc", 7, number) for number in range(400)]
    assert chosen == [choose(cases, "abc", 7, number) for number in range(400)]
    assert chosen != [choose(cases, "abc", 8, number) for number in range(400)]
    counts = Counter(chosen)
    assert counts["c"] > 0.9 * 400  # the greatest gain
    assert counts["a"] > 0  # and now and then another
    assert counts["b"] > 0


def test_only_open_cases_for_which_there_is_time_are_chosen() -> None:
    cases = {name: standing(1e-3) for name in "abc"}
    cases["a"].closed = True
    assert {choose(cases, "ab", 1, number) for number in range(100)} == {"b"}
    assert choose(cases, "a", 1, 1) is None


def test_allocation_beats_equal_shares() -> None:
    """Three made-up cases: one that matters, one that is done at once, one that nobody calls."""

    def best(trials: int, share: float, fall: float) -> float:
        return 1e-3 * (share + (1 - share) * math.exp(-trials / fall))

    shapes = {"matters": (10.0, 0.2, 80.0), "done": (1.0, 0.95, 5.0), "rare": (0.1, 0.2, 80.0)}
    cases = {name: Standing(weight, 10**6, name) for name, (weight, _, _) in shapes.items()}

    def run(name: str) -> None:
        one, (_, share, fall) = cases[name], shapes[name]
        one.rounds.append(Round(8, best(one.trials + 8, share, fall), 8.0))

    for name in cases:
        run(name)
    for number in range(27):
        run(choose(cases, cases, 0, number) or "")
    total = sum(weight * (cases[name].best or 0.0) for name, (weight, _, _) in shapes.items())
    equal = sum(weight * best(80, share, fall) for weight, share, fall in shapes.values())
    assert total < 0.8 * equal
    assert np.argmax([one.trials for one in cases.values()]) == 0
