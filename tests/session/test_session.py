"""Sessions on recorded devices: deterministic, resumable at any row, within their budget; a failure is a row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from heron_asp.errors import HeronError, InternalError, MissingError
from heron_asp.measure.device import Device
from heron_asp.measure.replay import ReplayDevice
from heron_asp.measure.result import Measurement, Status
from heron_asp.runs import load_run, run_paths
from heron_asp.session import Session, SessionOptions, SessionOutcome
from heron_asp.session.cases import Member
from heron_asp.session.journal import SessionDirectory
from heron_asp.session.summary import State
from heron_asp.space import Candidate
from heron_asp.store import RunDirectory
from heron_asp.target import Target
from tests.conftest import make_task
from tests.search.devices import invented

SHAPES = {"one": {"m": 12, "n": 32, "k": 16}, "two": {"m": 16, "n": 32, "k": 8}, "tiny": {"m": 2, "n": 16, "k": 8}}
WEIGHTS = {"one": 1.0, "two": 5.0, "tiny": 1.0}
QUICK = {"population": 12, "generations": 1, "elites": 4, "history": 4}


def asking(**options: Any) -> SessionOptions:
    """Options of a search that is quick rather than good."""
    return SessionOptions(**{"sizes": QUICK, **options})


OPTIONS = asking(trials=90, seed=3)


@pytest.fixture(scope="module")
def members(zen4: Target) -> list[Member]:
    return [Member(name, make_task(zen4, **shape), WEIGHTS[name], (name,)) for name, shape in SHAPES.items()]


@pytest.fixture(scope="module")
def devices(members: list[Member]) -> dict[str, ReplayDevice]:
    return {one.name: invented(one.task) for one in members}


def start(
    members: list[Member],
    devices: Mapping[str, Device],
    path: Path,
    options: SessionOptions = OPTIONS,
    resume: bool = False,
    **more: Any,
) -> SessionOutcome:
    return Session(members, lambda one: devices[one.name], options, SessionDirectory(path), **more).run(resume)


def recorded(path: Path) -> dict[str, object]:
    """All that a session records but for times of the day."""
    rows = [json.loads(line) for line in (path / "session.jsonl").read_text().splitlines()]
    journal = [{key: row[key] for key in row if key != "elapsed"} for row in rows if row["event"] != "started"]
    result = json.loads((path / "result.json").read_text())
    cases = [{key: value for key, value in one.items() if key != "run"} for one in result["cases"]]
    trials = {one.parent.name: one.read_text() for one in sorted(path.glob("*/trials.jsonl"))}
    return {"journal": journal, "cases": cases, "totals": result["weighted_seconds"], "trials": trials}


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


# -- what comes out ----------------------------------------------------------------------------------------------------


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


# -- the budget --------------------------------------------------------------------------------------------------------


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


# -- resuming ----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Ends a session without a word, like a kill."""


def killing(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Lets a session write so many rows, of whatever file."""
    from heron_asp.store import RecordDirectory

    append, left = RecordDirectory.append, [after]

    def write(self: RecordDirectory, row: Mapping[str, Any], name: str | None = None, sync: bool = True) -> None:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        append(self, row, name, sync)

    monkeypatch.setattr(RecordDirectory, "append", write)


@pytest.fixture(scope="module")
def whole(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, object]:
    path = tmp_path_factory.mktemp("whole") / "s"
    start(members, devices, path)
    return recorded(path)


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 17, 26, 28, 100, 187, 195])
def test_a_session_that_was_cut_off_at_any_row_continues_row_for_row(
    members: list[Member],
    devices: dict[str, ReplayDevice],
    whole: dict[str, object],
    tmp_path: Path,
    after: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, after)
        with pytest.raises(Killed):
            start(members, devices, tmp_path / "s")
    start(members, devices, tmp_path / "s", resume=True)
    assert recorded(tmp_path / "s") == whole


def test_a_finished_session_that_is_continued_measures_nothing(
    members: list[Member], devices: dict[str, ReplayDevice], whole: dict[str, object], tmp_path: Path
) -> None:
    start(members, devices, tmp_path / "s")
    nothing: dict[str, Device] = {}
    start(members, nothing, tmp_path / "s", resume=True)
    assert recorded(tmp_path / "s") == whole


def test_a_session_is_continued_with_more_trials(
    members: list[Member], devices: dict[str, ReplayDevice], whole: dict[str, object], tmp_path: Path
) -> None:
    sizes = asdict(OPTIONS.all_sizes(3))
    start(members, devices, tmp_path / "s", asking(trials=50, seed=3, sizes=sizes))
    start(members, devices, tmp_path / "s", OPTIONS, resume=True)
    ours, all_at_once = (found["trials"] for found in (recorded(tmp_path / "s"), whole))
    assert sum(text.count("finished") for text in ours.values()) == 90
    assert set(ours) == set(all_at_once)
    for name, text in ours.items():  # one may have got more trials than in one go, but the same ones
        assert text.startswith(all_at_once[name]) or all_at_once[name].startswith(text)


def test_kill_9_and_resume_equals_the_undisturbed_session(
    devices: dict[str, ReplayDevice], whole: dict[str, object], tmp_path: Path
) -> None:
    """A real process, killed for real, several times."""
    tables = {name: {key: one.to_json() for key, one in device.table.items()} for name, device in devices.items()}
    (tmp_path / "tables.json").write_text(json.dumps(tables))
    program = textwrap.dedent(f"""
        import json, sys, time
        from pathlib import Path
        from heron_asp import Task, operator, resolve_target
        from heron_asp.measure.replay import ReplayDevice
        from heron_asp.measure.result import Measurement
        from heron_asp.session import Session, SessionOptions
        from heron_asp.session.cases import Member
        from heron_asp.session.journal import SessionDirectory

        class Slow(ReplayDevice):
            def measure(self, candidate, best=None):
                time.sleep(float(sys.argv[2]))
                return super().measure(candidate, best)

        tables = json.loads(Path({str(tmp_path / "tables.json")!r}).read_text())
        devices = {{
            name: Slow({{key: Measurement.from_json(one) for key, one in table.items()}}, "table", 1e14)
            for name, table in tables.items()
        }}
        target, weights = resolve_target("zen4"), {WEIGHTS!r}
        members = [
            Member(name, Task(operator("gemm", shape), target), weights[name], (name,))
            for name, shape in {SHAPES!r}.items()
        ]
        options = SessionOptions(trials={OPTIONS.trials}, seed={OPTIONS.seed}, sizes={QUICK!r})
        Session(members, lambda one: devices[one.name], options, SessionDirectory(Path(sys.argv[1]))).run(resume=True)
    """)

    def run(pause: float) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "s"), str(pause)])

    def finished() -> int:
        return sum(file.read_text().count("finished") for file in (tmp_path / "s").glob("*/trials.jsonl"))

    for trials in (7, 55):
        process = run(0.05)
        while finished() < trials:
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert trials <= finished() < 90
    assert run(0).wait() == 0
    assert recorded(tmp_path / "s") == whole


def test_other_cases_are_no_continuation(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path
) -> None:
    start(members, devices, tmp_path / "s", asking(trials=6))
    other = Member("two", members[0].task, 1.0, ("two",))
    with pytest.raises(HeronError, match=r"records other cases:\n  two: recorded gemm .* weight 5, asked gemm"):
        start([members[0], other, members[2]], devices, tmp_path / "s", asking(trials=6), resume=True)
    with pytest.raises(HeronError, match=r"tiny: recorded .*, asked nothing"):
        start(members[:2], devices, tmp_path / "s", asking(trials=6), resume=True)
    with pytest.raises(HeronError, match="already holds a session"):
        start(members, devices, tmp_path / "s", asking(trials=6))
    with pytest.raises(HeronError, match="seed: recorded 0, asked 1"):
        start(members, devices, tmp_path / "s", asking(trials=6, seed=1), resume=True)
    with pytest.raises(HeronError, match="holds no session"):
        start(members, devices, tmp_path / "s" / "one", asking(trials=6))
    (tmp_path / "s" / "session.jsonl").write_text('{"event":"ended","elapsed":1}\n')
    with pytest.raises(HeronError, match=r"session.jsonl:1: key 'number' is missing"):
        start(members, devices, tmp_path / "s", asking(trials=6), resume=True)


# -- what may go wrong -------------------------------------------------------------------------------------------------


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
