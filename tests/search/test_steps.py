"""Runs in steps: how a run is cut into steps, or its budget raised, does not change what it measures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from heron_asp.errors import HeronError
from heron_asp.measure.replay import ReplayDevice
from heron_asp.measure.result import Measurement, Status
from heron_asp.runs import load_run
from heron_asp.search import SearchOptions
from heron_asp.space import Candidate
from heron_asp.store import RunDirectory
from heron_asp.target import Target
from heron_asp.task import Task
from heron_asp.tuning import TuneOptions, TuningRun, tune
from tests.conftest import make_task
from tests.search.devices import finished, hash_of, invented

SIZES = asdict(SearchOptions.scaled(40))


@pytest.fixture(scope="module")
def task(zen4: Target) -> Task:
    return make_task(zen4, m=24, n=64, k=32)


@pytest.fixture(scope="module")
def device(task: Task) -> ReplayDevice:
    return invented(task)


class Wide(ReplayDevice):
    """Builds several at once, and takes some candidates for the same program."""

    width = 3

    def __init__(self, device: ReplayDevice) -> None:
        super().__init__(device.table, "made up", 1e14)
        self.built: list[str] = []
        self.measured: list[str] = []

    def build_ahead(self, candidates: Sequence[Candidate]) -> None:
        assert self.measured == self.built  # nothing is measured beside a build, and nothing is built in vain
        assert 0 < len(candidates) <= self.width
        self.built += [one.key for one in candidates]

    def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
        self.measured.append(candidate.key)
        return super().measure(candidate, best)

    def fingerprint(self, candidate: Candidate) -> str | None:
        return str(hash_of(candidate.key) % 150)


@pytest.mark.parametrize("steps", [[40], [1] * 40, [7, 1, 9, 23], [16, 8, 8, 8]])
@pytest.mark.parametrize("wide", [False, True])
def test_steps_do_not_change_a_run(
    task: Task, device: ReplayDevice, tmp_path: Path, steps: list[int], wide: bool
) -> None:
    def make(name: str) -> TuningRun:
        return TuningRun(task, Wide(device) if wide else device, TuneOptions(40, 3), RunDirectory(tmp_path / name))

    whole, cut = make("whole"), make("cut")
    whole.open(resume=False)
    whole.advance(40)
    cut.open(resume=False)
    for step in steps:
        assert cut.advance(step) == step
    assert [key for key, _ in cut.done] == [key for key, _ in whole.done]
    assert cut.conclude(5).to_json()["best"] == whole.conclude(5).to_json()["best"]


def test_twins_are_measured_once(task: Task, device: ReplayDevice, tmp_path: Path) -> None:
    wide = Wide(device)
    outcome = tune(task, wide, TuneOptions(100, 3), RunDirectory(tmp_path / "run"))
    fingerprints = [hash_of(row["candidate"]) % 150 for row in finished(tmp_path / "run")]
    assert len(set(fingerprints)) == len(fingerprints) == 100
    assert sum(outcome.statuses.values()) == 100


def test_a_step_stops_when_asked(task: Task, device: ReplayDevice, tmp_path: Path) -> None:
    run = TuningRun(task, device, TuneOptions(40, 3), RunDirectory(tmp_path / "run"))
    run.open(resume=False)
    assert run.advance(40, lambda: len(run.done) >= 5) == 5
    run.close()


@pytest.mark.parametrize("before", [1, 7, 16, 23, 40])
def test_a_larger_budget_continues_with_the_sizes_of_the_first(
    task: Task, device: ReplayDevice, tmp_path: Path, before: int
) -> None:
    tune(task, device, TuneOptions(60, 5, sizes=SIZES), RunDirectory(tmp_path / "whole"))
    tune(task, device, TuneOptions(before, 5, sizes=SIZES), RunDirectory(tmp_path / "more"))
    assert load_run(tmp_path / "more").budget == before
    outcome = tune(task, device, TuneOptions(60, 5), RunDirectory(tmp_path / "more"), resume=True)
    assert (tmp_path / "more" / "trials.jsonl").read_text() == (tmp_path / "whole" / "trials.jsonl").read_text()
    assert outcome.to_json()["best"] == load_run(tmp_path / "whole").result["best"]
    assert load_run(tmp_path / "more").budget == 60
    assert json.loads((tmp_path / "more" / "run.json").read_text())["trials"] == before


def test_other_sizes_or_fewer_trials_are_no_continuation(task: Task, device: ReplayDevice, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    tune(task, device, TuneOptions(20, 5), run)
    with pytest.raises(HeronError, match="records 20 trials, more than --trials 19"):
        tune(task, device, TuneOptions(19, 5), run, resume=True)
    with pytest.raises(HeronError, match=r"sizes: recorded .*'batch': 4.*asked .*'batch': 9"):
        tune(task, device, TuneOptions(20, 5, sizes={"batch": 9}), run, resume=True)
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**recorded, "sizes": None}))
    with pytest.raises(HeronError, match="of an older version"):
        tune(task, device, TuneOptions(20, 5), run, resume=True)


# -- confirmation ------------------------------------------------------------------------------------------------------


class Confirms(ReplayDevice):
    """Confirms with other times than those of the trials."""

    def __init__(self, device: ReplayDevice, factors: Sequence[float]) -> None:
        super().__init__(device.table, "made up", 1e14)
        self.factors = factors

    def compare(self, candidates: Sequence[Candidate], rounds: int = 5) -> list[list[float]]:
        found = zip(super().compare(candidates, rounds), self.factors, strict=False)
        return [[seconds * factor for seconds in times] if factor else [] for times, factor in found]


@pytest.mark.parametrize(
    ("factors", "winner", "seconds"),
    [
        ((1, 1, 1, 1, 1), 0, 1.0),
        ((9, 1, 1, 1, 1), 0, 1.0),  # disturbed now, but fast in its trial
        ((9, 9, 9, 9, 9), 0, 1.0),
        ((1, 1, 0.1, 1, 1), 2, 0.1),  # disturbed in its trial, fast now
        ((0, 1, 1, 1, 1), 1, 1.0),  # its machine code lacks the instruction
    ],
)
def test_the_least_of_all_measurements_decides(
    task: Task, device: ReplayDevice, tmp_path: Path, factors: tuple[float, ...], winner: int, seconds: float
) -> None:
    outcome = tune(task, Confirms(device, factors), TuneOptions(30, 5), RunDirectory(tmp_path / "run"))
    rows = [row for row in finished(tmp_path / "run") if row["status"] == Status.CORRECT]
    ranked = sorted(rows, key=lambda row: row["seconds"])
    assert outcome.best is not None
    assert outcome.best.key == ranked[winner]["candidate"]
    assert outcome.seconds == pytest.approx(ranked[winner]["seconds"] * seconds)
