"""The outcome of one candidate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """What became of a candidate. Only `correct` ones have a time."""

    CORRECT = "correct"
    CONSTRAINTS = "constraints"  # the schedule cannot be made: the constraints let through what they should not
    COMPILE = "compile"
    RUNTIME = "runtime"
    TIMEOUT = "timeout"
    CORRECTNESS = "correctness"


@dataclass(frozen=True)
class Measurement:
    """What was measured of a candidate.

    Attributes:
        status: what became of it.
        seconds: time of one call: the least of `runs`; None unless correct.
        runs: seconds of one call, one number a repetition.
        error: what went wrong, in one paragraph.
        early: the first run was so slow that no more were made.
        build_seconds: wall time of building.
        run_seconds: wall time of checking and timing.
    """

    status: Status
    seconds: float | None = None
    runs: tuple[float, ...] = ()
    error: str = ""
    early: bool = False
    build_seconds: float = 0.0
    run_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back."""
        return {key: value for key, value in asdict(self).items() if value not in ("", (), None, False)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Measurement:
        """Reads what `to_json` wrote."""
        known = {key: value for key, value in data.items() if key in Measurement.__dataclass_fields__}
        return Measurement(**{**known, "status": Status(known["status"]), "runs": tuple(known.get("runs", ()))})


@dataclass
class Limits:
    """How long things may take, in seconds, and how a candidate is timed.

    Attributes:
        build: wall time of building a candidate.
        run: wall time of checking and timing it; building does not count.
        repeats: repetitions of the timing, of the contenders for the best.
        repeat_ms: about how many milliseconds a repetition takes; one call if that is longer.
        timing: seconds after which long calls are not repeated more than the least number of times.
        early: a first repetition more than this many times slower than the best ends the timing.
        clearly: so does, after the least number of repetitions, a time so many times that of the best.
    """

    build: float = 60.0
    run: float = 30.0
    repeats: int = 16
    repeat_ms: float = 1.0
    timing: float = 0.05
    early: float = 3.0
    clearly: float = 1.1
