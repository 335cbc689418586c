"""The directory of a session, and the rows of its journal.

session.json    what is tuned, and how: written once
session.jsonl   a row for each start, before each round and after it, and for each case that fails
result.json     the table: written when the session ends, and when Ctrl-C ends it
<case>/         the run directory of a case
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from heron_asp.errors import HeronError
from heron_asp.record import Record, Sizes, checked, read_json
from heron_asp.session.allocation import Round
from heron_asp.session.summary import State
from heron_asp.store import SESSION_HEADER, RecordDirectory, Row, rows_of

_Count = Annotated[int, Field(ge=0)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_MOST_NAMED = 5  # cases in a message


class _Case(Record):
    name: str
    operator: str
    weight: float


class _Header(Record):
    target: str
    threads: int
    sizes: Sizes
    cases: list[_Case]


class _Row(Record):
    event: Literal["started", "round", "ended", "failed"]
    elapsed: _Seconds


class _Round(_Row):
    number: Annotated[int, Field(ge=1)]
    case: str
    start: _Count
    trials: _Count


class _Ended(_Round):
    best: _Seconds | None
    seconds: _Seconds
    peak: _Seconds | None
    exhausted: bool
    confirmation: _Seconds


class _Failed(_Row):
    case: str
    state: Annotated[State, Field(strict=False)]
    error: str


_MODELS: Mapping[object, type[Record]] = {"round": _Round, "ended": _Ended, "failed": _Failed}


@dataclass(frozen=True)
class Planned:
    """A round that was started.

    Attributes:
        number: from 1.
        case: whose trials.
        start: trials of the case before it.
        trials: how many were planned.
    """

    number: int
    case: str
    start: int
    trials: int

    def to_json(self) -> Row:
        """As a row."""
        return {"number": self.number, "case": self.case, "start": self.start, "trials": self.trials}


@dataclass(frozen=True)
class Ended:
    """A round that has ended.

    Attributes:
        case: whose trials.
        round: what was done.
        peak: operations a second of the case's intrinsic, None where there is none.
        exhausted: the case has no further programs.
        confirmation: seconds that confirming its best program is expected to take.
    """

    case: str
    round: Round
    peak: float | None
    exhausted: bool
    confirmation: float


@dataclass
class Journal:
    """What a session has done so far.

    Attributes:
        ended: rounds, in order.
        open: a round that was started and has not ended.
        failed: cases that failed, with how and why, and were not tried again since.
        number: of the last round.
        elapsed: seconds of the session until its last row.
    """

    ended: list[Ended] = field(default_factory=list)
    open: Planned | None = None
    failed: dict[str, tuple[State, str]] = field(default_factory=dict)
    number: int = 0
    elapsed: float = 0.0


class SessionDirectory(RecordDirectory):
    """The directory of a session that is open for writing."""

    header_name = SESSION_HEADER
    rows_name = "session.jsonl"
    what = "session"

    def recorded_header(self) -> Row:
        """What is tuned, and how.

        Raises:
            MissingError: the directory holds no session.
            HeronError: the header is broken.
        """
        return checked(read_json(self.header_file), _Header, self.header_file)

    def recorded_sizes(self, cases: Iterable[Mapping[str, Any]]) -> Row | None:
        """The sizes of the search of the session that it holds; None if it holds none.

        Args:
            cases: what is to be tuned now.

        Raises:
            HeronError: the header is broken, or names other cases.
        """
        if not self.header_file.exists():
            return None
        found = self.recorded_header()
        before, now = ({one["name"]: one for one in rows} for rows in (found["cases"], cases))
        different = [
            f"{name}: recorded {_said(before.get(name))}, asked {_said(now.get(name))}"
            for name in dict.fromkeys([*before, *now])
            if before.get(name) != now.get(name)
        ]
        if different:
            more = [f"and {len(different) - _MOST_NAMED} more"] if len(different) > _MOST_NAMED else []
            said = "\n  ".join([*different[:_MOST_NAMED], *more])
            raise HeronError(f"{self.path} records other cases:\n  {said}", "give another --out DIR")
        sizes: Row = found["sizes"]
        return sizes

    def journal(self) -> Journal:
        """What is recorded.

        Raises:
            HeronError: a row is none of ours.
        """
        journal = Journal()
        for row in rows_of(self.rows_file, lambda row: _MODELS.get(row.get("event"), _Row)):
            journal.elapsed = row["elapsed"]
            if row["event"] == "round":
                journal.open = Planned(row["number"], row["case"], row["start"], row["trials"])
                journal.number = row["number"]
                journal.failed.pop(row["case"], None)
            elif row["event"] == "ended":
                done = Round(row["trials"], row["best"], row["seconds"])
                ended = Ended(row["case"], done, row["peak"], row["exhausted"], row["confirmation"])
                journal.ended.append(ended)
            elif row["event"] == "failed":
                journal.failed[row["case"]] = State(row["state"]), row["error"]
            if journal.open is not None and row["event"] in ("ended", "failed") and row["case"] == journal.open.case:
                journal.open = None
        return journal


def _said(case: Mapping[str, Any] | None) -> str:
    return f"{case['operator']} with weight {case['weight']:g}" if case else "nothing"
