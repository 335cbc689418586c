"""What is read back from files that others may have changed: JSON, and the records of a run, checked on the way in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from heron_asp.errors import HeronError, MissingError
from heron_asp.measure.result import Status

_MOST_PROBLEMS = 3  # that a message names
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Values = Mapping[str, int | str]


class Record(BaseModel):
    """Keys that are read; further ones are those of another version."""

    model_config = ConfigDict(strict=True, extra="ignore")


class Sizes(Record):
    """Sizes of the search."""

    batch: Annotated[int, Field(ge=1)]
    first: Annotated[int, Field(ge=1)]
    population: Annotated[int, Field(ge=2)]
    generations: Annotated[int, Field(ge=1)]
    elites: Annotated[int, Field(ge=1)]
    history: Annotated[int, Field(ge=1)]
    keys: Annotated[float, Field(ge=0, le=1)]
    exploit: Annotated[float, Field(ge=0, le=1)]
    children: Annotated[int, Field(ge=1)]


class Header(Record):
    """`run.json`; the budget is the first one, a run may have been continued with another."""

    key: str
    operator: str
    shape: Mapping[str, int]
    dtype: str
    layout: str | None = None
    epilogue: str = ""
    target: str
    target_file: str
    threads: Annotated[int, Field(ge=1)]
    trials: int | None
    seed: int
    search: str
    sizes: Sizes | None = None
    extra_rules: list[str]
    versions: Mapping[str, str]


class Start(Record):
    """A row of `sessions.jsonl`."""

    trials: Annotated[int, Field(ge=1)] | None = None


class Best(Record):
    """The best program in `result.json`."""

    seconds: _Seconds
    sketch: str
    values: _Values
    cycles: int | None = None
    share_of_peak: float | None = None


class Result(Record):
    """`result.json`."""

    best: Best | None
    measured: str | None = None
    peak_gops: float | None = None
    exhausted: bool | None = None


class Started(Record):
    """A row of `trials.jsonl` before a candidate is measured; `finished` ones have the measurement too."""

    event: Literal["started", "finished"]
    trial: Annotated[int, Field(ge=1)]
    candidate: str
    sketch: str = ""
    values: _Values = {}


class Finished(Started):
    """A row of `trials.jsonl` with a measurement."""

    status: Annotated[Status, Field(strict=False)]
    seconds: _Seconds | None = None
    runs: list[float] = []
    error: str = ""
    early: bool = False
    build_seconds: float = 0.0
    run_seconds: float = 0.0


class _AuditVariable(Record):
    name: str
    values: list[int | str]


class _AuditConstraint(Record):
    id: str
    force: str
    text: str


class Audit(Record):
    """What `audit --json` prints."""

    operator: str
    target: str
    threads: int
    programs: int
    variables: list[_AuditVariable]
    constraints: list[_AuditConstraint]


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Failures of the file system become errors that name the file.

    Raises:
        HeronError: instead of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise HeronError(f"{error.filename or path}: {error.strerror}") from None


def parse_json(data: bytes, where: object) -> Any:
    """JSON from a file.

    Args:
        data: what the file holds.
        where: names it, and the line, in messages.

    Raises:
        HeronError: it is not JSON in UTF-8.
    """
    try:
        return json.loads(data.decode())
    except UnicodeDecodeError:
        raise HeronError(f"{where}: not text in UTF-8") from None
    except RecursionError:
        raise HeronError(f"{where}: not JSON of ours: nested too deeply") from None
    except ValueError as error:
        raise HeronError(f"{where}: not JSON: {error}") from None


def read_json(file: Path) -> Any:
    """A JSON file.

    Raises:
        MissingError: it does not exist.
        HeronError: it cannot be read, or is not JSON.
    """
    try:
        with naming(file):
            data = file.read_bytes()
    except HeronError:
        if not file.exists():
            raise MissingError(f"{file} does not exist") from None
        raise
    return parse_json(data, file)


def checked(data: Any, model: type[Record], where: object) -> dict[str, Any]:
    """Data that has the keys and types of a model.

    Raises:
        HeronError: it has not; says which.
    """
    try:
        model.model_validate(data)
    except ValidationError as error:
        said = [_problem(one["loc"], one["type"], one["msg"]) for one in error.errors()[:_MOST_PROBLEMS]]
        raise HeronError(f"{where}: {'; '.join(said)}") from None
    found: dict[str, Any] = data
    return found


def _problem(location: tuple[int | str, ...], kind: str, message: str) -> str:
    key = ".".join(map(str, location))
    if not location:
        return "not a JSON object"
    return f"key '{key}' is missing" if kind == "missing" else f"{key}: {message}"
