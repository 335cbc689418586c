"""Sessions over three small cases whose measurements are recorded, and what such a session records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heron_asp.measure.device import Device
from heron_asp.session import Session, SessionOptions, SessionOutcome
from heron_asp.session.cases import Member
from heron_asp.session.journal import SessionDirectory

SHAPES = {"one": {"m": 12, "n": 32, "k": 16}, "two": {"m": 16, "n": 32, "k": 8}, "tiny": {"m": 2, "n": 16, "k": 8}}
WEIGHTS = {"one": 1.0, "two": 5.0, "tiny": 1.0}
QUICK = {"population": 12, "generations": 1, "elites": 4, "history": 4}


def asking(**options: Any) -> SessionOptions:
    """Options of a search that is quick rather than good."""
    return SessionOptions(**{"sizes": QUICK, **options})


OPTIONS = asking(trials=90, seed=3)


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
