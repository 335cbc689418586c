"""The run directory: the only state of a run. Append-only, so that a run can be killed at any time and continued.

run.json         what is tuned, and how: written once
trials.jsonl     a row before each candidate ('started') and one after it
sessions.jsonl   when the run was started and continued, on what machine, with how many trials
result.json      the outcome: written when the run ends
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heron_asp.errors import HeronError
from heron_asp.measure.result import Measurement
from heron_asp.record import Finished, Header, Record, Start, Started, checked, naming, parse_json, read_json

Row = dict[str, Any]
SESSION_HEADER = "session.json"  # in a directory that holds the run directories of many cases


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


class RecordDirectory:
    """A directory of records that one process writes; a second one that opens it is refused.

    Attributes:
        path: the directory.
        header_file: what is recorded, and how; written once.
        rows_file: what happened; appended to.
    """

    header_name = "run.json"
    rows_name = "trials.jsonl"
    what = "run"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header_file = path / self.header_name
        self.rows_file = path / self.rows_name
        self._lock = -1

    @property
    def result_file(self) -> Path:
        """The outcome."""
        return self.path / "result.json"

    def open(self, header: Mapping[str, Any], resume: bool) -> None:
        """Creates the directory, or continues it.

        Raises:
            HeronError: it exists and `resume` is not set; it records something else; another process has it open; it
                cannot be written.
        """
        with naming(self.path):
            self._open(header, resume)

    def _open(self, header: Mapping[str, Any], resume: bool) -> None:
        if self.header_file.exists():
            if not resume:
                raise HeronError(
                    f"{self.path} already holds a {self.what}", "continue it with --resume, or give another --out DIR"
                )
            self._compare(header)
        elif self.path.is_dir() and any(self.path.iterdir()):
            raise HeronError(f"{self.path} is not empty and holds no {self.what}", "give another --out DIR")
        self.path.mkdir(parents=True, exist_ok=True)
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
        if not isinstance(recorded, dict):
            raise HeronError(f"{self.header_file}: not a JSON object", "give another --out DIR")
        said = json.loads(json.dumps(header))
        missing = [key for key in said if key not in recorded]
        if missing:
            raise HeronError(f"{self.header_file}: no {', '.join(missing)}", "give another --out DIR")
        different = [key for key in said if key != "versions" and recorded[key] != said[key]]
        if different:
            lines = [f"{key}: recorded {recorded[key]}, asked {said[key]}" for key in different]
            raise HeronError(
                f"{self.path} records another {self.what}:\n  " + "\n  ".join(lines), "give another --out DIR"
            )

    def _cut_torn_line(self) -> None:
        """A kill in the middle of a write leaves half a line; what it spoke of is done again."""
        if not self.rows_file.exists():
            return
        data = self.rows_file.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with self.rows_file.open("r+b") as file:
                file.truncate(whole)

    def append(self, row: Mapping[str, Any], name: str | None = None, sync: bool = True) -> None:
        """Appends a row that survives a crash of the process.

        Args:
            row: a JSON object.
            name: of the file, if it is not that of the rows.
            sync: it survives a crash of the machine too; so do all rows before it.
        """
        line = json.dumps(row, separators=(",", ":")) + "\n"
        file = self.path / (name or self.rows_name)
        with naming(file), file.open("ab") as out:
            out.write(line.encode())
            out.flush()
            if sync:
                os.fsync(out.fileno())


class RunDirectory(RecordDirectory):
    """A run directory that is open for writing."""

    def recorded(self) -> Row | None:
        """The header of the run that it holds; None if it holds none.

        Raises:
            HeronError: the header is broken, or of a version of which runs cannot be continued.
        """
        if not self.header_file.exists():
            return None
        found = checked(read_json(self.header_file), Header, self.header_file)
        if not found.get("sizes"):
            raise HeronError(f"{self.header_file}: of an older version, which did not record the sizes of its search")
        return found

    def trials(self) -> dict[int, Trial]:
        """All recorded trials by number; a finished row replaces its started one."""
        return read_trials(self.path)


def read_trials(path: Path) -> dict[int, Trial]:
    """All recorded trials of a run by number.

    Raises:
        HeronError: a row is none of ours.
    """
    found: dict[int, Trial] = {}
    for row in rows(path / "trials.jsonl"):
        measurement = None if row["event"] == "started" else Measurement.from_json(row)
        found[row["trial"]] = replace(found.get(row["trial"]) or _started(row), measurement=measurement)
    return found


def _started(row: Row) -> Trial:
    sketch = row.get("sketch") or row["candidate"].partition(": ")[0]  # older runs name it in the key only
    return Trial(row["trial"], row["candidate"], None, sketch, row.get("values", {}))


def rows(file: Path) -> Iterator[Row]:
    """The whole rows of the trials; half a line at the end is a write that was interrupted.

    Raises:
        HeronError: a line in the middle is no row.
    """
    return rows_of(file, lambda row: Finished if row.get("event") == "finished" else Started)


def rows_of(file: Path, model: Callable[[Row], type[Record]]) -> Iterator[Row]:
    """The whole rows of a file that is appended to, none if it does not exist.

    Args:
        file: where.
        model: of a row.

    Raises:
        HeronError: a line in the middle is no row.
    """
    try:
        with naming(file):
            lines = file.read_bytes().split(b"\n")
    except HeronError:
        if not file.exists():
            return
        raise
    for number, line in enumerate(lines[:-1], start=1):
        where = f"{file}:{number}"
        row = parse_json(line, where)
        yield checked(row, model(row) if isinstance(row, dict) else Record, where)


def read_budget(path: Path, header: Row) -> int | None:
    """The trials that a run may make, by its last start; None if others decide."""
    starts = [row["trials"] for row in rows_of(path / "sessions.jsonl", lambda _: Start) if "trials" in row]
    budget: int | None = starts[-1] if starts else header["trials"]
    return budget


def write_whole(file: Path, data: Mapping[str, Any]) -> None:
    """Writes a file that is either whole or not there."""
    partial = file.with_suffix(".partial")
    with naming(file):
        partial.write_text(json.dumps(data, indent=2) + "\n")
        partial.replace(file)
