"""The run directory: the only state of a run. Append-only, so that a run can be killed at any time and continued.

run.json         what is tuned, and how: written once
trials.jsonl     a row before each candidate ('started') and one after it
sessions.jsonl   when the run was started and continued, on what machine
result.json      the outcome: written when the run ends
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heron_asp.errors import HeronError, MissingError
from heron_asp.measure.result import Measurement

Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """A recorded trial.

    Attributes:
        number: counted from 1.
        candidate: the candidate's key.
        measurement: None if it was started and never finished.
        sketch: the candidate's sketch.
        values: the candidate's values, by variable name.
    """

    number: int
    candidate: str
    measurement: Measurement | None
    sketch: str
    values: Mapping[str, int | str]


class RunDirectory:
    """A run directory that is open for writing; a second process that opens it is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1

    @property
    def header_file(self) -> Path:
        """What is tuned, and how."""
        return self.path / "run.json"

    @property
    def trials_file(self) -> Path:
        """The rows."""
        return self.path / "trials.jsonl"

    @property
    def result_file(self) -> Path:
        """The outcome."""
        return self.path / "result.json"

    def open(self, header: Mapping[str, Any], resume: bool) -> None:
        """Creates the directory, or continues it.

        Raises:
            HeronError: it exists and `resume` is not set; it records another task; another process has it open.
        """
        if self.header_file.exists():
            if not resume:
                raise HeronError(
                    f"{self.path} already holds a run", "continue it with --resume, or give another --out DIR"
                )
            self._compare(header)
        elif self.path.is_dir() and any(self.path.iterdir()):
            raise HeronError(f"{self.path} is not empty and holds no run", "give another --out DIR")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HeronError(f"--out {self.path}: {error.strerror}") from None
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise HeronError(f"{self.path} is open in another process") from None
        if not self.header_file.exists():
            write_whole(self.header_file, header)
        self._cut_torn_line()

    def close(self) -> None:
        """Releases the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _compare(self, header: Mapping[str, Any]) -> None:
        recorded = read_json(self.header_file)
        said = json.loads(json.dumps(header))
        different = [key for key in said if key != "versions" and recorded.get(key) != said[key]]
        if different:
            lines = [f"{key}: recorded {recorded.get(key)}, asked {said[key]}" for key in different]
            raise HeronError(f"{self.path} records another run:\n  " + "\n  ".join(lines), "give another --out DIR")

    def _cut_torn_line(self) -> None:
        """A kill in the middle of a write leaves half a line; the trial it spoke of is measured again."""
        if not self.trials_file.exists():
            return
        data = self.trials_file.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with self.trials_file.open("r+b") as file:
                file.truncate(whole)

    def append(self, row: Mapping[str, Any], file: str = "trials.jsonl") -> None:
        """Appends a row that survives a crash of the process (and, the file being synced, of the machine)."""
        line = json.dumps(row, separators=(",", ":")) + "\n"
        with (self.path / file).open("ab") as out:
            out.write(line.encode())
            out.flush()
            os.fsync(out.fileno())

    def trials(self) -> dict[int, Trial]:
        """All recorded trials by number; a finished row replaces its started one."""
        return read_trials(self.path)


def read_trials(path: Path) -> dict[int, Trial]:
    """All recorded trials of a run by number."""
    found: dict[int, Trial] = {}
    for row in rows(path / "trials.jsonl"):
        measurement = None if row["event"] == "started" else Measurement.from_json(row)
        found[row["trial"]] = replace(found.get(row["trial"]) or _started(row), measurement=measurement)
    return found


def _started(row: Row) -> Trial:
    sketch = row.get("sketch") or row["candidate"].partition(": ")[0]  # older runs name it in the key only
    return Trial(row["trial"], row["candidate"], None, sketch, row.get("values", {}))


def rows(file: Path) -> Iterator[Row]:
    """The whole rows of a JSON-lines file; half a line at its end is a write that was interrupted.

    Raises:
        HeronError: a line in the middle is not JSON.
    """
    if not file.exists():
        return
    lines = file.read_text().split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise HeronError(f"{file}:{number}: not JSON: {error.msg}") from None


def read_json(file: Path) -> Row:
    """A JSON file of a run directory.

    Raises:
        MissingError: it does not exist.
        HeronError: it is not JSON.
    """
    try:
        data: Row = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError(f"{file} does not exist", f"{file.parent} is no run directory of heron-asp tune") from None
    except json.JSONDecodeError as error:
        raise HeronError(f"{file}: not JSON: {error}") from None
    return data


def write_whole(file: Path, data: Mapping[str, Any]) -> None:
    """Writes a file that is either whole or not there."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(data, indent=2) + "\n")
    partial.replace(file)
