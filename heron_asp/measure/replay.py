"""A device that answers from a recorded table, so that searches are tested without hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from heron_asp.errors import HeronError, MissingError
from heron_asp.measure.device import WALL_TIME
from heron_asp.measure.result import Measurement
from heron_asp.space import Candidate
from heron_asp.store import RunDirectory, read_trials


class ReplayDevice:
    """Answers with what was measured once.

    Args:
        table: measurements by the key of the candidate.
        source: where the table is from, for messages.
        peak: operations a second, None if there is none.
        measures: what was measured, in words.
    """

    width = 1
    held = 0

    def __init__(
        self, table: Mapping[str, Measurement], source: str, peak: float | None = None, measures: str = WALL_TIME
    ) -> None:
        self.measures = measures
        self.table = table
        self.source = source
        self._peak = peak

    @staticmethod
    def load(run: Path) -> ReplayDevice:
        """A run directory as a device: it knows the candidates that the run measured.

        Raises:
            MissingError: there are no recorded trials.
        """
        table = {trial.candidate: trial.measurement for trial in read_trials(run).values() if trial.measurement}
        if not table:
            raise MissingError(f"--device replay:{run}: no recorded trials", "give the directory of a tuning run")
        recorded = RunDirectory(run).recorded() or {}
        return ReplayDevice(table, str(run), measures=recorded.get("measured", WALL_TIME))

    def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
        """What was recorded.

        Raises:
            HeronError: the candidate is not in the table.
        """
        del best
        found = self.table.get(candidate.key)
        if found is None:
            raise HeronError(
                f"{self.source} has no measurement of {candidate.key}",
                "a replayed search needs a table of the whole space",
            )
        return found

    def compare(self, candidates: Sequence[Candidate], rounds: int = 5) -> list[list[float]]:
        """The recorded times, as often as asked."""
        return [[self.measure(candidate).seconds or 0.0] * rounds for candidate in candidates]

    def build_ahead(self, candidates: Sequence[Candidate]) -> None:
        """There is nothing to build."""

    def rest(self) -> None:
        """There is nothing to give back."""

    def peak(self) -> float | None:
        """The recorded peak."""
        return self._peak

    def fingerprint(self, candidate: Candidate) -> str | None:
        """Not known: every candidate is taken for a program of its own."""
        del candidate
        return None
