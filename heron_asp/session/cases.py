"""The cases of a session: read from a TOML file, equal ones taken together."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from heron_asp.errors import HeronError
from heron_asp.intrinsics import Strict
from heron_asp.record import naming
from heron_asp.resources import suggestion
from heron_asp.task import Task


class Case(Strict):
    """A table of the file.

    Attributes:
        operator: operator family, or one of the user's own.
        shape: an extent for each of its shape keys.
        dtype: types of activation, weight and accumulator; None for those of the family.
        layout: order of the axes in memory; None for the family's first.
        epilogue: done to each element of the sum.
        case: its name; made of the task where it is left out.
        weight: how much its time matters, beside others'.
        count: how often it occurs: another word for the weight.
    """

    operator: str
    shape: dict[str, Annotated[int, Field(strict=True)]]
    dtype: str | None = None
    layout: str | None = None
    epilogue: str | None = None
    case: str | None = None
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    count: Annotated[int, Field(gt=0, strict=True)] | None = None

    @property
    def importance(self) -> float:
        """How much its time matters."""
        return self.weight or self.count or 1.0

    @property
    def options(self) -> dict[str, str]:
        """Operator, shape, types and so on, by the name of the option that says the same on the command line."""
        shape = ",".join(f"{key}={extent}" for key, extent in self.shape.items())
        further = {"dtype": self.dtype, "layout": self.layout, "epilogue": self.epilogue}
        return {"operator": self.operator, "shape": shape, **{name: said for name, said in further.items() if said}}


@dataclass(frozen=True)
class Member:
    """A task of a session.

    Attributes:
        name: of its run directory; unique.
        task: what to tune.
        weight: of all cases that are this task.
        cases: their names, in the order of the file; a case without a name is called like its task.
    """

    name: str
    task: Task
    weight: float
    cases: tuple[str, ...]


def read_cases(path: Path, table: str = "cases") -> list[tuple[str, Case]]:
    """The cases of a file, each with the place where it stands, for messages.

    Args:
        path: a TOML file; other arrays of tables than the one asked for are not looked at.
        table: the array of tables.

    Raises:
        HeronError: no such file, array or key, or a value that is none; says where it stands and what would be right.
    """
    with naming(path):
        data = path.read_bytes()
    try:
        text = data.decode()
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HeronError(f"{path}: not TOML: {error}") from None
    tables = found.get(table)
    if not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
        known = [name for name, value in found.items() if isinstance(value, list)]
        raise HeronError(
            f"{path}: no [[{table}]]", suggestion(table, known) + ("; --list NAME chooses one" if known else "")
        )
    lines = _Lines(text, table, len(tables))
    return [(lines.place(path, number), _case(path, lines, number, one)) for number, one in enumerate(tables)]


def _case(path: Path, lines: _Lines, number: int, table: dict[str, Any]) -> Case:
    try:
        case = Case.model_validate(table)
    except ValidationError as error:
        said, hints = [], []
        for problem in error.errors():
            key = ".".join(map(str, problem["loc"]))
            where = lines.place(path, number, str(problem["loc"][0]))
            if problem["type"] == "extra_forbidden":
                said.append(f"{where}: unknown key '{key}'")
                hints.append(suggestion(key, Case.model_fields))
            elif problem["type"] == "missing":
                said.append(f"{where}: key '{key}' is missing")
            else:
                said.append(f"{where}: {key}: {problem['msg'].removeprefix('Value error, ')}")
        raise HeronError("\n".join(said), "\n".join(hints)) from None
    if case.weight is not None and case.count is not None:
        raise HeronError(f"{lines.place(path, number, 'count')}: both weight and count", "they mean the same: give one")
    return case


class _Lines:
    """Where tables and keys of an array stand, which the TOML reader does not tell."""

    def __init__(self, text: str, table: str, number: int) -> None:
        self.table = table
        self.lines = text.splitlines()
        header = re.compile(rf"\s*\[\[\s*[\"']?{re.escape(table)}[\"']?\s*\]\]")
        starts = [line for line, said in enumerate(self.lines) if header.match(said)]
        self.starts = starts if len(starts) == number else []  # written in another way: then keys are named only

    def place(self, path: Path, number: int, key: str = "") -> str:
        """E.g. `cases.toml:12: cases[3]`."""
        entry = f"{self.table}[{number}]"
        if not self.starts:
            return f"{path}: {entry}"
        start = self.starts[number]
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.lines)
        named = re.compile(rf"\s*(\[\s*{re.escape(self.table)}\s*\.\s*)?[\"']?{re.escape(key)}\b")
        line = next((line for line in range(start + 1, end) if key and named.match(self.lines[line])), start)
        return f"{path}:{line + 1}: {entry}"


def members(cases: Iterable[tuple[str, Case]], make: Callable[[Case], Task]) -> list[Member]:
    """Tasks with the cases that are theirs, in the order of the file.

    Args:
        cases: with the place where each stands.
        make: the task of a case.

    Raises:
        HeronError: a case is no task; says where it stands.
    """
    groups: dict[str, list[tuple[Case, Task]]] = {}
    for place, case in cases:
        try:
            task = make(case)
        except HeronError as error:
            raise HeronError(f"{place}: {error.message}", error.hint, error.code) from None
        groups.setdefault(task.operator.label, []).append((case, task))
    taken: set[str] = set()
    return [_member(group, taken) for group in groups.values()]


def _member(group: Sequence[tuple[Case, Task]], taken: set[str]) -> Member:
    case, task = group[0]
    name = base = _file_name(case.case or task.operator.label)
    number = 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    names = tuple(one.case or task.operator.label for one, _ in group)
    return Member(name, task, sum(one.importance for one, _ in group), names)


def _file_name(said: str) -> str:
    """A name that a directory can have anywhere; never one of the session's own files, nor hidden."""
    name = re.sub(r"[^A-Za-z0-9_=,.-]+", "-", said).strip("-.")[:100] or "case"
    return f"{name}-case" if "." in name and name.split(".")[0] in ("session", "result") else name
