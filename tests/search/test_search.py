"""Searches and runs, on recorded devices: deterministic, resumable, exhaustive, never the same program twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from heron_asp.errors import ExitCode, HeronError, InternalError
from heron_asp.measure.replay import ReplayDevice
from heron_asp.measure.result import Measurement, Status
from heron_asp.model import Features
from heron_asp.runs import load_run
from heron_asp.search import ConstrainedGenetic, RandomSearch, SearchOptions
from heron_asp.search.cga import roulette
from heron_asp.space import Candidate
from heron_asp.store import RunDirectory, read_trials, rows
from heron_asp.target import Target
from heron_asp.task import Task
from heron_asp.terms import parse
from heron_asp.tuning import TuneOptions, tune
from tests.conftest import make_task
from tests.search.devices import Stops, finished, invented

SHAPE = {"m": 24, "n": 64, "k": 32}


@pytest.fixture(scope="module")
def task(zen4: Target) -> Task:
    return make_task(zen4, **SHAPE)


@pytest.fixture(scope="module")
def device(task: Task) -> ReplayDevice:
    return invented(task)


def test_a_run_is_a_function_of_its_seed(task: Task, device: ReplayDevice, tmp_path: Path) -> None:
    made = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        tune(task, device, TuneOptions(40, seed), RunDirectory(tmp_path / name))
        made.append((tmp_path / name / "trials.jsonl").read_text())
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_no_program_is_measured_twice_and_all_are_in_the_space(
    task: Task, device: ReplayDevice, tmp_path: Path
) -> None:
    tune(task, device, TuneOptions(120, 3), RunDirectory(tmp_path / "run"))
    asked = [row["candidate"] for row in finished(tmp_path / "run")]
    assert len(asked) == len(set(asked)) == 120
    assert set(asked) <= set(device.table)


def test_the_genetic_search_beats_sampling(task: Task, device: ReplayDevice, tmp_path: Path) -> None:
    def best(search: str, seed: int) -> float:
        outcome = tune(task, device, TuneOptions(48, seed, search), RunDirectory(tmp_path / f"{search}{seed}"))
        assert outcome.seconds is not None
        return outcome.seconds

    genetic = np.mean([best("cga", seed) for seed in range(6)])
    sampled = np.mean([best("random", seed) for seed in range(6)])
    assert genetic < sampled


def test_an_exhausted_space_ends_the_run_and_says_so(zen4: Target, tmp_path: Path) -> None:
    small = make_task(zen4, m=2, n=16, k=8)
    for search in ("cga", "random"):
        outcome = tune(small, invented(small), TuneOptions(10_000, 0, search), RunDirectory(tmp_path / search))
        assert outcome.exhausted
        assert sum(outcome.statuses.values()) == small.space.size
        assert load_run(tmp_path / search).result["exhausted"]


def test_children_lie_between_their_parents(task: Task) -> None:
    search = ConstrainedGenetic(task.space, 0, SearchOptions.scaled(64))
    part = task.space.parts[0]
    mother, father = part.sample(2, np.random.default_rng(4))
    keys = [parse("tile(c, m, register)"), parse("tile(c, n, register)"), parse("tile(c, k, strip)")]
    problems = [search._pins(mother, father, search._own(part, keys)) for _ in range(30)]
    for pins, children in zip(problems, part.sample_each(problems, 3, np.random.default_rng(5)), strict=True):
        assert len(pins) == len(keys) - 1  # mutation drops one pin
        assert len(children) == 3
        for child in children:
            assert all(child.values[key] in (mother.values[key], father.values[key]) for key in pins)


def test_features_are_the_values(task: Task, zen4: Target) -> None:
    features = Features(task.space)
    drawn = task.space.sample(60, np.random.default_rng(0))
    rows = features.rows(drawn)
    assert rows.shape == (60, len(features.variables) + 1)
    for row, one in zip(rows, drawn, strict=True):
        assert row[-1] == [part.name for part in task.space].index(one.sketch)
        for variable, number in zip(features.variables, row[:-1], strict=True):
            value = one.values.get(variable)
            assert np.isnan(number) if value is None else not isinstance(value, int) or number == value
    inner = features.variables.index(parse("inner(c, task)"))
    assert {(one.values[parse("inner(c, task)")], row[inner]) for row, one in zip(rows, drawn, strict=True)} == {
        ("m", 0.0),
        ("n", 1.0),
    }
    assert features.rows([]).shape == (0, len(features.variables) + 1)
    with pytest.raises(InternalError, match="another space"):
        features.rows(make_task(zen4, **SHAPE).space.sample(3, np.random.default_rng(0)))


def test_every_sketch_gets_a_floor_in_the_first_round(task: Task) -> None:
    search = ConstrainedGenetic(task.space, 0, SearchOptions.scaled(64))
    first = search.ask(64)
    for part in task.space:
        assert sum(one.sketch == part.name for one in first) >= 4


def test_the_model_learns_from_failures(task: Task, device: ReplayDevice) -> None:
    search = ConstrainedGenetic(task.space, 0, SearchOptions.scaled(200))
    for candidate in search.ask(200):
        search.tell(candidate, device.measure(candidate))
    search.ask(8)
    measured = [(c, m) for c, m in search.measured.values()]
    failed = search.model.predict([c for c, m in measured if m.seconds is None])
    ran = search.model.predict([c for c, m in measured if m.seconds is not None])
    assert failed.mean() < ran.mean()


def test_roulette_is_a_distribution() -> None:
    chances = roulette(np.array([0.0, -1.0, -800.0]))
    assert chances.sum() == pytest.approx(1)
    assert chances[0] > chances[1] > chances[2] >= 0


def test_random_search_does_not_repeat(task: Task) -> None:
    search = RandomSearch(task.space, 0)
    keys = [one.key for _ in range(20) for one in search.ask(16)]
    assert len(keys) == len(set(keys)) == 320


# -- resuming ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 7, 16, 33])
def test_a_run_that_was_cut_off_continues_row_for_row(
    task: Task, device: ReplayDevice, tmp_path: Path, after: int
) -> None:
    tune(task, device, TuneOptions(40, 5), RunDirectory(tmp_path / "whole"))
    broken = Stops(device.table, "made up", 1e14)
    broken.left = after
    with pytest.raises(SystemExit):
        tune(task, broken, TuneOptions(40, 5), RunDirectory(tmp_path / "cut"))
    assert read_trials(tmp_path / "cut")[after + 1].measurement is None  # visible as started
    tune(task, device, TuneOptions(40, 5), RunDirectory(tmp_path / "cut"), resume=True)
    assert (tmp_path / "cut" / "trials.jsonl").read_text() == (tmp_path / "whole" / "trials.jsonl").read_text()
    assert load_run(tmp_path / "cut").result["best"] == load_run(tmp_path / "whole").result["best"]


def test_half_a_line_is_cut_and_measured_again(task: Task, device: ReplayDevice, tmp_path: Path) -> None:
    tune(task, device, TuneOptions(20, 5), RunDirectory(tmp_path / "run"))
    file = tmp_path / "run" / "trials.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) * 2 // 3])
    tune(task, device, TuneOptions(20, 5), RunDirectory(tmp_path / "run"), resume=True)
    assert file.read_bytes() == whole


def test_kill_9_and_resume_equals_the_undisturbed_run(task: Task, device: ReplayDevice, tmp_path: Path) -> None:
    """A real process, killed for real, in the middle of its trials."""
    table = tmp_path / "table.json"
    table.write_text(json.dumps({key: one.to_json() for key, one in device.table.items()}))
    program = textwrap.dedent(f"""
        import json, sys, time
        from pathlib import Path
        from heron_asp import Task, TuneOptions, RunDirectory, operator, resolve_target, tune
        from heron_asp.measure.replay import ReplayDevice
        from heron_asp.measure.result import Measurement

        class Slow(ReplayDevice):
            def measure(self, candidate, best=None):
                time.sleep(float(sys.argv[2]))
                return super().measure(candidate, best)

        table = json.loads(Path({str(table)!r}).read_text())
        device = Slow({{key: Measurement.from_json(one) for key, one in table.items()}}, "table", 1e14)
        task = Task(operator("gemm", {SHAPE!r}), resolve_target("zen4"))
        tune(task, device, TuneOptions(40, 9), RunDirectory(Path(sys.argv[1])), resume="--resume" in sys.argv)
    """)

    def start(path: Path, pause: float, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", program, str(path), str(pause), *more])

    assert start(tmp_path / "whole", 0).wait() == 0
    process = start(tmp_path / "killed", 0.05)
    while not (tmp_path / "killed" / "trials.jsonl").exists() or len(finished(tmp_path / "killed")) < 9:
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 9 <= len(finished(tmp_path / "killed")) < 40
    assert start(tmp_path / "killed", 0, "--resume").wait() == 0
    assert (tmp_path / "killed" / "trials.jsonl").read_text() == (tmp_path / "whole" / "trials.jsonl").read_text()


def test_ctrl_c_keeps_the_best(task: Task, device: ReplayDevice, tmp_path: Path) -> None:
    class Interrupts(Stops):
        def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
            try:
                return super().measure(candidate, best)
            except SystemExit:
                raise KeyboardInterrupt from None

    broken = Interrupts(device.table, "made up", 1e14)
    broken.left = 12
    outcome = tune(task, broken, TuneOptions(40, 5), RunDirectory(tmp_path / "run"))
    assert outcome.interrupted
    assert outcome.seconds == min(
        m.seconds for m in (t.measurement for t in read_trials(tmp_path / "run").values()) if m and m.seconds
    )
    assert load_run(tmp_path / "run").best()[2] == outcome.seconds


def test_a_run_directory_is_not_overwritten_or_mixed(
    task: Task, device: ReplayDevice, zen4: Target, tmp_path: Path
) -> None:
    tune(task, device, TuneOptions(5, 5), RunDirectory(tmp_path / "run"))
    with pytest.raises(HeronError, match="already holds a run"):
        tune(task, device, TuneOptions(5, 5), RunDirectory(tmp_path / "run"))
    with pytest.raises(HeronError, match="seed: recorded 5, asked 6"):
        tune(task, device, TuneOptions(5, 6), RunDirectory(tmp_path / "run"), resume=True)
    other = make_task(zen4, m=8, n=16, k=8)
    with pytest.raises(HeronError, match="shape: recorded"):
        tune(other, device, TuneOptions(5, 5), RunDirectory(tmp_path / "run"), resume=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("")
    with pytest.raises(HeronError, match="not empty"):
        tune(task, device, TuneOptions(5, 5), RunDirectory(tmp_path / "full"))


def test_a_program_above_the_peak_is_an_error_that_keeps_the_run(
    task: Task, device: ReplayDevice, tmp_path: Path
) -> None:
    with pytest.raises(InternalError, match="above the measured peak"):
        tune(task, ReplayDevice(device.table, "made up", 1e9), TuneOptions(5, 5), RunDirectory(tmp_path / "run"))
    assert load_run(tmp_path / "run").result["best"]


def test_a_peak_that_a_busy_machine_hides_is_measured_again(task: Task, device: ReplayDevice, tmp_path: Path) -> None:
    class Busy(ReplayDevice):
        """Half the peak, until it was asked often enough."""

        asked = 0

        def peak(self) -> float:
            self.asked += 1
            return 1e14 if self.asked > self.patience else 1e9

    for patience, warned in ((6, False), (11, True)):
        busy = Busy(device.table, "made up", 1e9)
        busy.patience = patience
        outcome = tune(task, busy, TuneOptions(5, 5), RunDirectory(tmp_path / f"run{patience}"))
        assert (outcome.peak is None) == warned
        assert bool(outcome.warning) == warned


def test_runs_that_name_no_sketch_are_read(task: Task, device: ReplayDevice, tmp_path: Path) -> None:
    tune(task, device, TuneOptions(5, 5), RunDirectory(tmp_path / "run"))
    trials = read_trials(tmp_path / "run")
    file = tmp_path / "run" / "trials.jsonl"
    older = [{key: value for key, value in row.items() if key != "sketch"} for row in rows(file)]
    file.write_text("".join(json.dumps(row) + "\n" for row in older))
    assert read_trials(tmp_path / "run") == trials
    assert {trial.sketch for trial in trials.values()} <= {part.name for part in task.space}


def test_a_second_process_is_refused(task: Task, tmp_path: Path) -> None:
    first = RunDirectory(tmp_path / "run")
    first.open({"key": 1}, resume=False)
    with pytest.raises(HeronError, match="open in another process"):
        RunDirectory(tmp_path / "run").open({"key": 1}, resume=True)
    first.close()
    RunDirectory(tmp_path / "run").open({"key": 1}, resume=True)


def test_a_run_in_which_everything_fails_stops_early(task: Task, tmp_path: Path) -> None:
    failing = {
        one.key: Measurement(Status.COMPILE, error="no such instruction")
        for one in task.space.sample(4000, np.random.default_rng(0))
    }

    class Fails(ReplayDevice):
        def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
            return Measurement(Status.COMPILE, error="no such instruction")

    with pytest.raises(HeronError, match="all failed") as caught:
        tune(task, Fails(failing, "made up"), TuneOptions(500, 1), RunDirectory(tmp_path / "run"))
    assert caught.value.code is ExitCode.NO_SURVIVOR
    assert "no such instruction" in caught.value.hint
    assert len(finished(tmp_path / "run")) < 40
