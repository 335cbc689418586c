"""Sessions on recorded devices: deterministic; a failure is a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heron_asp.errors import HeronError, InternalError, MissingError
from heron_asp.measure.device import Device
from heron_asp.measure.replay import ReplayDevice
from heron_asp.measure.result import Measurement, Status
from heron_asp.runs import load_run, run_paths
from heron_asp.session import Session
from heron_asp.session.cases import Member
from heron_asp.session.journal import SessionDirectory
from heron_asp.session.summary import State
from heron_asp.space import Candidate
from heron_asp.store import RunDirectory
from tests.session.recorded import OPTIONS, SHAPES, WEIGHTS, asking, recorded, start


def test_a_session_records_its_rounds_and_confirms_every_case(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    outcome = start(members, devices, tmp_path / "s")
    rows = [json.loads(line) for line in (tmp_path / "s" / "session.jsonl").read_text().splitlines()]
    rounds = [row for row in rows if row["event"] == "round"]
    assert [row["case"] for row in rounds[:3]] == ["one", "two", "tiny"]  # the warm-up
    assert [row["number"] for row in rounds] == list(range(1, len(rounds) + 1))
    assert outcome.trials == 90
    assert {one.state for one in outcome.cases} == {State.CONFIRMED}
    for one in outcome.cases:
        run = load_run(tmp_path / "s" / one.name)
        assert run.best()[2] == one.seconds
        assert len(run.trials) == one.trials
        assert run.budget is None
        ran = [trial.measurement.seconds for trial in run.trials.values() if trial.measurement.seconds]
        assert one.seconds == min(ran)
    assert outcome.after == pytest.approx(sum(WEIGHTS[one.name] * one.seconds for one in outcome.cases))
    assert outcome.after <= outcome.before
    by_name = {one.name: one for one in outcome.cases}
    assert by_name["two"].trials > by_name["one"].trials  # five times the weight
    assert json.loads((tmp_path / "s" / "result.json").read_text()) == outcome.to_json()


def test_a_session_is_a_function_of_its_seed(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        start(members, devices, tmp_path / name, asking(trials=60, seed=seed))
    assert recorded(tmp_path / "a") == recorded(tmp_path / "b")
    assert recorded(tmp_path / "a") != recorded(tmp_path / "c")


def test_spaces_that_are_exhausted_end_a_session(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    outcome = start(members[2:], devices, tmp_path / "s", asking(trials=10_000))
    assert outcome.trials == members[2].task.space.size
    assert outcome.cases[0].state is State.CONFIRMED


def test_few_trials_are_spread_over_all_cases(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    outcome = start(members, devices, tmp_path / "s", asking(trials=4))
    assert sorted(one.trials for one in outcome.cases) == [1, 1, 2]


def test_every_case_is_what_export_takes(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    start(members, devices, tmp_path / "s", asking(trials=30))
    every = [tmp_path / "s" / name for name in sorted(SHAPES)]
    assert run_paths([tmp_path / "s"]) == every
    with pytest.raises(MissingError, match=r"holds the runs of many cases: name one, such as .*/s/one, "):
        load_run(tmp_path / "s")
    assert sorted(run_paths(sorted((tmp_path / "s").iterdir()))) == every  # what a shell makes of DIR/*
    assert run_paths([tmp_path / "s" / "one", tmp_path / "no"]) == [tmp_path / "s" / "one", tmp_path / "no"]


class Fails(ReplayDevice):
    def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
        return Measurement(Status.COMPILE, error="no such instruction")


def test_a_case_that_fails_does_not_end_the_session(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    mixed = {**devices, "one": Fails(devices["one"].table, "made up")}
    outcome = start(members, mixed, tmp_path / "s")
    one, two, tiny = outcome.cases
    assert one.state is State.FAILED
    assert "no such instruction" in one.error
    assert [two.state, tiny.state] == [State.CONFIRMED] * 2
    assert outcome.without == [one]
    again = start(members, devices, tmp_path / "s", resume=True)  # mended meanwhile: but its trials are what they are
    assert again.cases[0].state is State.FAILED


def test_a_case_without_a_device_is_tried_again(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    def missing(one: Member) -> Device:
        if one.name == "two":
            raise HeronError("too large for the memory")
        return devices[one.name]

    outcome = Session(members, missing, OPTIONS, SessionDirectory(tmp_path / "s")).run()
    assert outcome.cases[1].error == "too large for the memory"
    assert outcome.trials == 90
    more = asking(trials=110, seed=3)
    assert start(members, devices, tmp_path / "s", more, resume=True).cases[1].state is State.CONFIRMED


def test_a_program_above_the_peak_is_our_error_after_all_is_recorded(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    mixed = {**devices, "one": ReplayDevice(devices["one"].table, "made up", 1e9)}
    with pytest.raises(InternalError, match=r"one: the best program .* above the measured peak"):
        start(members, mixed, tmp_path / "s")
    result = json.loads((tmp_path / "s" / "result.json").read_text())
    assert [one["state"] for one in result["cases"]] == ["failed", "confirmed", "confirmed"]


@pytest.mark.parametrize("after", [0, 5, 40, 89, 90])
def test_ctrl_c_keeps_the_best_of_each(
    members: list[Member], devices: dict[str, ReplayDevice], whole: dict[str, object], tmp_path: Path, after: int
) -> None:
    left = [after]

    class Interrupts(ReplayDevice):
        def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
            self._count()
            return self.table[candidate.key]

        def compare(self, candidates: Any, rounds: int = 5) -> list[list[float]]:
            self._count()
            return []

        def _count(self) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1

    broken = {name: Interrupts(device.table, "made up", 1e14) for name, device in devices.items()}
    outcome = start(members, broken, tmp_path / "s")
    assert outcome.interrupted
    assert json.loads((tmp_path / "s" / "result.json").read_text())["interrupted"]
    for one in outcome.cases:
        if (one.run / "trials.jsonl").exists() and one.seconds:
            assert load_run(one.run).best()[2] == one.seconds
    assert any(one.seconds for one in outcome.cases) == (after > 0)
    assert not start(members, devices, tmp_path / "s", resume=True).interrupted
    assert recorded(tmp_path / "s") == whole


def test_memory_of_cases_that_rest_is_given_back(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    awake: set[str] = set()
    most = 0

    def holding(name: str) -> ReplayDevice:
        class Holds(ReplayDevice):
            held = 2**30

            def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
                nonlocal most
                awake.add(name)
                most = max(most, len(awake))
                return super().measure(candidate, best)

            def rest(self) -> None:
                awake.discard(name)

        return Holds(devices[name].table, "made up", 1e14)

    monkeypatch.setattr("heron_asp.session.session.available_bytes", lambda: 2 * 2 * 2**30)
    start(members, {name: holding(name) for name in SHAPES}, tmp_path / "s")
    assert most == 2
    assert awake == set()


def test_a_run_of_a_session_is_continued_alone(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    from heron_asp.tuning import TuneOptions, tune

    outcome = start(members, devices, tmp_path / "s")
    path = tmp_path / "s" / "two"
    before = outcome.cases[1].trials
    tune(members[1].task, devices["two"], TuneOptions(before + 5, 3), RunDirectory(path), resume=True)
    again = start(members, devices, tmp_path / "s", resume=True)
    assert again.cases[1].seconds == load_run(path).best()[2]


def test_progress_is_told(members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def note(now: Any) -> None:
        seen.append((now.number, sum(one.trials for one in now.cases)))

    start(members, devices, tmp_path / "s", progress=note)
    assert len(seen) >= 90
    assert seen == sorted(seen)
    assert seen[-1][1] == 90
