"""Where rules and targets are (in the wheel, in a checkout, or where the user says), and wordings for messages."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from heron_asp.errors import HeronError

_PACKAGE = Path(__file__).resolve().parent
_SUGGESTED = 16  # names in a hint


def _shipped(kind: str) -> Path:
    packaged = _PACKAGE / "data" / kind
    return packaged if packaged.is_dir() else _PACKAGE.parent / kind


def rules_folder() -> Path:
    """The folder with `core/`, `csp/` and a folder for each family; `HERON_ASP_RULES` overrides it."""
    return Path(os.environ.get("HERON_ASP_RULES") or _shipped("rules"))


def targets_folder() -> Path:
    """The folder with one TOML file for each machine; `HERON_ASP_TARGETS` overrides it."""
    return Path(os.environ.get("HERON_ASP_TARGETS") or _shipped("targets"))


def is_own_family(folder: Path) -> bool:
    """Whether a folder holds rules of a family of the user's own: `rules/mine` beside `targets/families/mine.toml`."""
    described = folder.parent.parent / "targets" / "families" / f"{folder.name}.toml"
    return folder.parent.name == "rules" and described.is_file() and folder.parent != rules_folder().resolve()


def rule_files(*folders: Path) -> list[Path]:
    """All rule files of some folders, in the order in which clingo loads them.

    Raises:
        HeronError: a folder does not exist or holds no rules.
    """
    files: list[Path] = []
    for folder in folders:
        found = sorted(folder.glob("*.lp"))
        if not found:
            known = sorted(path.name for path in folder.parent.glob("*/")) if folder.parent.is_dir() else []
            raise HeronError(f"no rule files (*.lp) in {folder}", suggestion(folder.name, known))
        files += found
    return files


def digest(files: Iterable[Path]) -> str:
    """A short hash of the names and contents of some files: what a record says of the rules it was made with."""
    value = hashlib.sha256()
    for path in files:
        value.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return value.hexdigest()[:16]


def counted(number: int, what: str) -> str:
    """A number of things, e.g. `1 thread` or `2 threads`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest known one, or those that there are, of many the first."""
    names = sorted(known)
    near = difflib.get_close_matches(wrong, names, n=3, cutoff=0.6)
    if near:
        ratio = difflib.SequenceMatcher(None, wrong, near[0]).ratio()
        alike = [name for name in near if difflib.SequenceMatcher(None, wrong, name).ratio() == ratio]
        return f"did you mean {' or '.join(repr(name) for name in sorted(alike))}?"
    more = f", ... ({len(names)} in all)" if len(names) > _SUGGESTED else ""
    return f"known: {', '.join(names[:_SUGGESTED])}{more}" if names else ""
