"""Bounds on what grounding and compiling may take: neither can be interrupted, so both run in a child."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from heron_asp.child import Report, run_in_child
from heron_asp.errors import ExitCode, HeronError, InternalError

_BYTES_A_ROW = 256  # of a circuit while it is compiled
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class SpaceLimits:
    """What grounding and compiling a sketch may take.

    Attributes:
        memory: MiB.
        seconds: of time; None to work in this process, where neither limit is enforced from outside.
    """

    memory: int = 2_048
    seconds: float | None = 120.0

    @property
    def rows(self) -> int:
        """Rows of a circuit."""
        return self.memory * 2**20 // _BYTES_A_ROW

    def too_large(self, what: str) -> HeronError:
        """The error for what needs more memory."""
        return HeronError(
            f"{what} needs more than {self.memory} MiB",
            "--space-memory allows more; fewer tile levels, or extents with fewer divisors, need less",
        )

    def call(self, what: str, work: Callable[[], _Result]) -> _Result:
        """The result of a function, which has to be picklable, within the limits.

        Args:
            what: names the work in messages.
            work: the function.

        Raises:
            HeronError: it takes more time or memory than it may, or raises this itself.
            InternalError: it fails otherwise.
        """
        if self.seconds is None:
            return work()

        def child(report: Report) -> None:
            _limit_memory(self.memory)
            try:
                report("result", work())
            except HeronError as error:
                report("refused", (error.message, error.hint, int(error.code)))

        outcome = run_in_child(child, [self.seconds])
        ended = {phase for phase, _, _ in outcome.reports}
        if "result" in ended:
            result: _Result = outcome.value("result")
            return result
        if "refused" in ended:
            message, hint, code = outcome.value("refused")
            raise HeronError(message, hint, ExitCode(code))
        if outcome.timed_out:
            raise HeronError(f"{what} is not done after {self.seconds:g} s", "--space-seconds allows more")
        error = str(outcome.value("error") or "")
        if not error or "MemoryError" in error or "bad_alloc" in error:
            raise self.too_large(what)
        raise InternalError(f"{what}: {error}")


def _limit_memory(mebibytes: int) -> None:
    """Lets this process take so much more memory than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + mebibytes * 2**20
    _, hard = resource.getrlimit(resource.RLIMIT_AS)  # by `ulimit -v`, say
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
