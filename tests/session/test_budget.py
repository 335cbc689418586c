"""Sessions of limited time: trials and confirmations fit into it, and every case gets some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heron_asp.measure.replay import ReplayDevice
from heron_asp.measure.result import Measurement
from heron_asp.runs import load_run
from heron_asp.session.cases import Member
from heron_asp.session.summary import State
from heron_asp.space import Candidate
from tests.session.recorded import asking, start


class Clock:
    """A clock that devices set forward."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(ReplayDevice):
    """Every measurement and comparison takes its time."""

    def __init__(self, device: ReplayDevice, clock: Clock, trial: float, comparison: float) -> None:
        super().__init__(device.table, "made up", 1e14)
        self.clock, self.trial, self.comparison = clock, trial, comparison
        self.measured = 0

    def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
        self.clock.now += self.trial
        self.measured += 1
        found = super().measure(candidate, best)
        return Measurement(**{**found.__dict__, "build_seconds": self.trial})

    def compare(self, candidates: Any, rounds: int = 5) -> list[list[float]]:
        self.clock.now += self.comparison
        return [[self.table[one.key].seconds or 0.0] * rounds for one in candidates]


@pytest.mark.parametrize("seconds", [30.0, 60.0, 120.0])
def test_trials_and_confirmations_fit_into_the_time(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path, seconds: float
) -> None:
    clock = Clock()
    timed = {name: Timed(device, clock, 0.5, 3.0) for name, device in devices.items()}
    outcome = start(members, timed, tmp_path / "s", asking(seconds=seconds), clock=clock)
    assert outcome.elapsed == clock.now <= seconds
    assert {one.state for one in outcome.cases} == {State.CONFIRMED}
    spent = sum(one.measured for one in timed.values()) * 0.5 + 9.0
    assert spent == clock.now > 0.75 * seconds or outcome.trials == sum(len(one.table) for one in timed.values())


def test_the_warm_up_reaches_every_case_however_slow_one_is(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    clock = Clock()
    trials = {"one": 6.0, "two": 0.1, "tiny": 0.1}
    timed = {name: Timed(device, clock, trials[name], 1.0) for name, device in devices.items()}
    outcome = start(members, timed, tmp_path / "s", asking(seconds=60.0), clock=clock)
    assert min(one.trials for one in outcome.cases) > 0
    assert clock.now <= 60.0 + 6.0


def test_without_time_a_case_is_left_unconfirmed_and_says_so(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    clock = Clock()
    timed = {name: Timed(device, clock, 0.5, 50.0) for name, device in devices.items()}
    outcome = start(members, timed, tmp_path / "s", asking(seconds=60.0), clock=clock)
    states = [one.state for one in outcome.cases]
    assert State.CONFIRMED in states
    late = [one for one in outcome.cases if one.state is State.TUNED]
    assert late
    assert all("no time was left" in one.error for one in late)
    assert all(one.seconds == load_run(tmp_path / "s" / one.name).best()[2] for one in late)
    again = start(members, timed, tmp_path / "s", asking(seconds=600.0, trials=0), True, clock=clock)
    assert {one.state for one in again.cases} == {State.CONFIRMED}
    assert again.trials == outcome.trials
