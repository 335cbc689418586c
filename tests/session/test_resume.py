"""Sessions that end early, at any row: continued, they become what the undisturbed one is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

import pytest

from heron_asp.errors import HeronError
from heron_asp.measure.device import Device
from heron_asp.measure.replay import ReplayDevice
from heron_asp.session.cases import Member
from tests.session.recorded import OPTIONS, QUICK, SHAPES, WEIGHTS, Killed, asking, killing, recorded, start


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
