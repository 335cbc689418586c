"""The two kinds of failure: a mistake of the user's, and one of ours."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command line returns."""

    OK = 0
    USAGE = 2
    INFEASIBLE = 3
    NO_SURVIVOR = 4
    MISSING = 5
    INTERNAL = 70
    INTERRUPTED = 130


class HeronError(Exception):
    """A failure that the user can mend.

    Args:
        message: what is wrong, and where (file, key, option).
        hint: what would be right; empty where nothing sensible can be said.
        code: the exit code of the command line.
    """

    def __init__(self, message: str, hint: str = "", code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class InfeasibleError(HeronError):
    """No program satisfies the constraints."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, ExitCode.INFEASIBLE)


class MissingError(HeronError):
    """Something that the command needs is not on this machine."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, ExitCode.MISSING)


class InternalError(Exception):
    """An invariant of ours does not hold: a defect of heron_asp or of a rule file, not of the user's input."""


def telling_line(said: object) -> str:
    """The line of a long message, such as TVM's, that says what is wrong; its first 500 characters."""
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "failed" in line]
    unsaid = type(said).__name__ if isinstance(said, BaseException) else "no message"
    return (telling or lines or [unsaid])[-1][:500]
