"""What lint reports: a place, a code that stays the same, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """Kinds of findings."""

    SYNTAX = "syntax"  # clingo refuses the statement
    SCRIPT = "script"  # the file runs code
    INCLUDE = "include"  # the file includes one from elsewhere
    UNDEFINED = "undefined"  # a predicate is read or documented, and nothing derives it
    UNUSED = "unused"  # a predicate is derived, and nothing reads it
    ARITY = "arity"  # a known predicate with another number of arguments
    UNDOCUMENTED = "undocumented"  # a predicate crosses a file, and the vocabulary lacks it
    UNNAMED = "unnamed"  # a constraint that can be neither explained nor lifted
    OVERFLOW = "overflow"  # a product that may wrap at 32 bits
    SILENT = "silent"  # a rule that never fires on what is shipped; or a `% silent:` about rules that do
    SPACE = "space"  # what `#program space.` does not allow
    RUN = "run"  # the rules make no sketches of shipped operators


@dataclass(frozen=True, order=True)
class Finding:
    """Something to mend.

    Attributes:
        file: the rule file, as the user would name it.
        line: where the statement or the atom begins.
        code: the kind of finding.
        message: what is wrong, and what would be right where that is known.
    """

    file: str
    line: int
    code: Code
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message} [{self.code}]"
