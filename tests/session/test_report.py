"""A session read back: finished, cut off, continued, and of cases that fail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from heron_asp.cli.app import run
from heron_asp.errors import ExitCode, HeronError
from heron_asp.measure.device import Device
from heron_asp.measure.replay import ReplayDevice
from heron_asp.measure.result import Measurement, Status
from heron_asp.session.cases import Member
from heron_asp.session.report import SessionReport, read_session
from heron_asp.session.summary import State
from heron_asp.space import Candidate
from tests.session.recorded import WEIGHTS, Killed, asking, killing, start


def states(report: SessionReport) -> dict[str, State]:
    return {one.case: one.state for one in report.cases}


def test_a_finished_session_reads_as_it_ended(
    members: list[Member], devices: Mapping[str, Device], tmp_path: Path
) -> None:
    outcome = start(members, devices, tmp_path / "s")
    report = read_session(tmp_path / "s")
    assert (report.state, report.trials, report.target) == ("finished", outcome.trials, outcome.target)
    assert report.weighted_seconds == outcome.after
    for one, said in zip(report.cases, outcome.cases, strict=True):
        assert (one.case, one.trials, one.seconds, one.state) == (said.name, said.trials, said.seconds, said.state)
        assert one.share == pytest.approx(WEIGHTS[one.case] * (one.seconds or 0) / outcome.after)
    assert sum(one.share or 0 for one in report.cases) == pytest.approx(1)


def test_a_session_that_was_cut_off(members: list[Member], devices: Mapping[str, Device], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, 17)
        with pytest.raises(Killed):
            start(members, devices, tmp_path / "s")
    report = read_session(tmp_path / "s")
    assert report.state == "unfinished"
    assert set(states(report).values()) == {State.TUNED, State.WAITING}
    waiting = next(one for one in report.cases if one.state is State.WAITING)
    assert (waiting.trials, waiting.seconds, waiting.share) == (0, None, None)
    assert 0 < report.trials < 90


def test_what_was_confirmed_is_only_tuned_once_more_was_measured(
    members: list[Member], devices: Mapping[str, Device], tmp_path: Path
) -> None:
    start(members, devices, tmp_path / "s", asking(trials=30, seed=3))
    assert set(states(read_session(tmp_path / "s")).values()) == {State.CONFIRMED}
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, 25)
        with pytest.raises(Killed):
            start(members, devices, tmp_path / "s", asking(trials=90, seed=3), resume=True)
    report = read_session(tmp_path / "s")
    assert report.state == "unfinished"
    assert State.TUNED in states(report).values()


def test_the_command_says_what_failed(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fails(ReplayDevice):
        def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
            return Measurement(Status.COMPILE, error="no such instruction")

    start(members, {**devices, "one": Fails(devices["one"].table, "made up")}, tmp_path / "s")
    assert run(["report", str(tmp_path / "s"), "--json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    one, two, tiny = found["cases"]
    assert (one["state"], one["seconds"], one["share"]) == ("failed", None, None)
    assert "no such instruction" in one["error"]
    assert two["share"] + tiny["share"] == pytest.approx(1)
    assert found["weighted_seconds"] == pytest.approx(5 * two["seconds"] + tiny["seconds"])
    assert run(["report", str(tmp_path / "s")]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["case", "weight", "trials", "best", "share", "status"]
    (row,) = [line for line in lines if line.split()[:1] == ["two"]]
    assert f"{100 * two['share']:.1f} %" in row
    assert row.split()[-1] == "confirmed"
    assert any(line.startswith("one: ") and "no such instruction" in line for line in lines)
    assert run(["report", two["run"], "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["operator"] == two["operator"]


def test_a_broken_header_is_named(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text("{}")
    with pytest.raises(HeronError, match=r"session\.json: key 'target' is missing"):
        read_session(tmp_path)
