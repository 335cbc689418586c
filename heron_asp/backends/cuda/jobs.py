"""A folder of compiled candidates of one problem, as the worker measures it.

jobs.json              what `Jobs` describes
cubins/<hash>.cubin    candidates with equal code share a file
data/<case>.<tensor>.npy, data/<case>.<tensor>.{expected,tolerance,places}.npy
results.jsonl          is added by the worker, see `measured.py`
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from heron_asp.backends.cuda.program import Buffer, Program, Use
from heron_asp.backends.cuda.worker import JOBS, RESULTS
from heron_asp.backends.cuda.worker.data import element
from heron_asp.errors import HeronError, InternalError
from heron_asp.measure.data import Case

Array = npt.NDArray[Any]


# --- what the caller gives ---


@dataclass(frozen=True)
class Drawn:
    """Whole numbers from `low` to `high` that the worker draws itself: `worker.data.drawn` makes the same here."""

    seed: int
    low: int
    high: int


@dataclass(frozen=True)
class Expected:
    """What a case must come to.

    Attributes:
        values: of all elements, or of those at `places`.
        tolerance: largest allowed error, of each element or of all; None where the result must be equal.
        places: flat positions of the elements that are compared; None: all, in the order of memory.
    """

    values: Array
    tolerance: Array | float | None = None
    places: Array | None = None


@dataclass(frozen=True)
class Data:
    """Inputs, by the name of their buffer, and what each output must be."""

    name: str
    inputs: Mapping[str, Array | Drawn]
    results: Mapping[str, Expected]


@dataclass(frozen=True)
class Problem:
    """What all candidates of a folder compute.

    Attributes:
        name: to read, e.g. an operator's label.
        architecture: for which the candidates are compiled, e.g. `sm_80`.
        buffers: the inputs and outputs; every candidate has the same.
        cases: on which candidates are checked; they are timed on the first.
    """

    name: str
    architecture: str
    buffers: Sequence[Buffer]
    cases: Sequence[Data]


@dataclass(frozen=True)
class Entry:
    """A compiled candidate.

    Attributes:
        name: unique in its folder.
        program: kernels and buffers; the source is not needed.
        cubin: what the program was compiled to.
        registers: of a thread, by kernel, as the compiler says.
        notes: whatever the caller wants to find beside the result, as JSON.
    """

    name: str
    program: Program
    cubin: bytes
    registers: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


def data_of(case: Case, output: str) -> Data:
    """The data that candidates of all backends are checked on, for a program whose buffers are named as the tensors."""
    return Data(case.name, case.inputs, {output: Expected(case.expected, case.tolerance)})


# --- what is in jobs.json ---


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorSaid(_Strict):
    """A buffer."""

    name: str
    storage: str
    shape: tuple[PositiveInt, ...]
    use: Use


class DrawSaid(_Strict):
    """An input that the worker draws."""

    seed: NonNegativeInt
    low: int
    high: int


class InputSaid(_Strict):
    """An input: a file or drawn."""

    file: str | None = None
    draw: DrawSaid | None = None

    @model_validator(mode="after")
    def _one(self) -> InputSaid:
        if (self.file is None) == (self.draw is None):
            raise ValueError("an input is either a file or drawn")
        return self


class ExpectedSaid(_Strict):
    """What an output must be: files, or one tolerance for all elements."""

    file: str
    tolerance: str | float | None = None
    places: str | None = None


class CaseSaid(_Strict):
    """Inputs and results by the name of their buffer."""

    name: str
    inputs: dict[str, InputSaid]
    results: dict[str, ExpectedSaid] = Field(min_length=1)


class KernelSaid(_Strict):
    """A launch; `registers` as the compiler says, None where that is not known."""

    name: str
    grid: tuple[PositiveInt, PositiveInt, PositiveInt]
    block: tuple[PositiveInt, PositiveInt, PositiveInt]
    dynamic_shared: NonNegativeInt
    static_shared: NonNegativeInt
    arguments: tuple[str, ...]
    registers: PositiveInt | None = None


class Job(_Strict):
    """A candidate."""

    id: str
    cubin: str
    sha256: str
    kernels: tuple[KernelSaid, ...] = Field(min_length=1)
    scratch: tuple[TensorSaid, ...] = ()
    notes: dict[str, Any] = {}


class Jobs(_Strict):
    """A folder's contents."""

    version: Literal[1]  # worker.VERSION
    problem: str
    architecture: str = Field(pattern=r"^sm_\d{2,3}[af]?$")
    buffers: tuple[TensorSaid, ...]
    cases: tuple[CaseSaid, ...] = Field(min_length=1)
    candidates: tuple[Job, ...]

    @model_validator(mode="after")
    def _names(self) -> Jobs:
        uses = {one.name: one.use for one in self.buffers}
        for case in self.cases:
            if set(case.inputs) != {name for name, use in uses.items() if use is Use.INPUT}:
                raise ValueError(f"case {case.name}: its inputs are not the buffers that are inputs")
            if set(case.results) != {name for name, use in uses.items() if use is Use.OUTPUT}:
                raise ValueError(f"case {case.name}: its results are not the buffers that are outputs")
        if len({job.id for job in self.candidates}) < len(self.candidates):
            raise ValueError("two candidates have the same id")
        for job in self.candidates:
            known = {*uses, *(one.name for one in job.scratch)}
            for kernel in job.kernels:
                if missing := set(kernel.arguments) - known:
                    raise ValueError(f"candidate {job.id}: no buffer is called {', '.join(sorted(missing))}")
        return self


# --- writing and reading ---


def write_jobs(folder: Path, problem: Problem, entries: Iterable[Entry]) -> Jobs:
    """Writes a folder; `jobs.json` comes last, so that a folder that has it is whole.

    Raises:
        HeronError: there are results in the folder.
        InternalError: the data or the candidates do not fit the problem.
    """
    if (folder / RESULTS).exists():
        raise HeronError(f"{folder} holds results of other candidates", "choose another folder, or move them away")
    for place in (folder / "cubins", folder / "data"):
        place.mkdir(parents=True, exist_ok=True)
    try:
        jobs = Jobs(
            version=1,
            problem=problem.name,
            architecture=problem.architecture,
            buffers=tuple(_tensor(one) for one in problem.buffers),
            cases=tuple(_case(folder, at, data, problem) for at, data in enumerate(problem.cases)),
            candidates=tuple(_job(folder, entry, problem) for entry in entries),
        )
    except ValidationError as error:
        raise InternalError(f"{problem.name}: {error.errors()[0]['msg']}") from error
    new = folder / f"{JOBS}.new"
    new.write_text(json.dumps(jobs.model_dump(mode="json"), indent=1))
    new.replace(folder / JOBS)
    return jobs


def read_jobs(folder: Path) -> Jobs:
    """Reads a folder.

    Raises:
        HeronError: it has no `jobs.json`, or one that is damaged, or one that names files outside of the folder.
    """
    path = folder / JOBS
    try:
        jobs = Jobs.model_validate_json(path.read_bytes())
    except OSError as error:
        raise HeronError(f"{path}: {error.strerror}", "a folder of compiled candidates has one") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise HeronError(f"{path}: {where + ': ' if where else ''}{first['msg']}", "write the folder again") from None
    for name in _files(jobs):
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise HeronError(f"{path}: {name} is not in the folder", "write the folder again")
    return jobs


def _files(jobs: Jobs) -> Iterable[str]:
    for case in jobs.cases:
        yield from (one.file for one in case.inputs.values() if one.file)
        for expected in case.results.values():
            yield from (one for one in (expected.file, expected.tolerance, expected.places) if isinstance(one, str))
    yield from (job.cubin for job in jobs.candidates)


def _tensor(buffer: Buffer) -> TensorSaid:
    return TensorSaid(name=buffer.name, storage=buffer.storage, shape=buffer.shape, use=buffer.use)


def _job(folder: Path, entry: Entry, problem: Problem) -> Job:
    shared = [one for one in entry.program.buffers if one.use is not Use.SCRATCH]
    if sorted(shared, key=lambda one: one.name) != sorted(problem.buffers, key=lambda one: one.name):
        raise InternalError(f"candidate {entry.name} does not have the buffers of {problem.name}")
    digest = hashlib.sha256(entry.cubin).hexdigest()
    cubin = f"cubins/{digest[:16]}.cubin"
    (folder / cubin).write_bytes(entry.cubin)
    kernels = tuple(
        KernelSaid(
            name=kernel.name,
            grid=kernel.grid,
            block=kernel.block,
            dynamic_shared=kernel.dynamic_shared,
            static_shared=kernel.static_shared,
            arguments=kernel.arguments,
            registers=entry.registers.get(kernel.name),
        )
        for kernel in entry.program.kernels
    )
    scratch = tuple(_tensor(one) for one in entry.program.buffers if one.use is Use.SCRATCH)
    return Job(id=entry.name, cubin=cubin, sha256=digest, kernels=kernels, scratch=scratch, notes=dict(entry.notes))


def _case(folder: Path, at: int, data: Data, problem: Problem) -> CaseSaid:
    buffers = {one.name: one for one in problem.buffers}
    inputs = {}
    for name, given in data.inputs.items():
        if isinstance(given, Drawn):
            inputs[name] = InputSaid(draw=DrawSaid(seed=given.seed, low=given.low, high=given.high))
        else:
            inputs[name] = InputSaid(file=_save(folder, f"{at}.{name}", _elements(given, buffers[name])))
    results = {name: _expected(folder, f"{at}.{name}", one, buffers[name]) for name, one in data.results.items()}
    return CaseSaid(name=data.name, inputs=inputs, results=results)


def _elements(array: Array, buffer: Buffer) -> Array:
    """An input as it lies in memory, flat; numpy saves no bfloat16 of ml_dtypes."""
    kind = element(buffer.storage)
    if array.nbytes != buffer.nbytes or array.dtype.itemsize != kind.itemsize:
        raise InternalError(f"input {buffer.name} has {array.nbytes} bytes of {array.dtype}, not {buffer.nbytes}")
    return np.ascontiguousarray(array).view(kind).reshape(-1)


def _expected(folder: Path, name: str, given: Expected, buffer: Buffer) -> ExpectedSaid:
    """Floats are saved in float32; what that rounds off is allowed on top of the tolerance."""
    count = prod(buffer.shape) if given.places is None else given.places.size
    if given.values.size != count:
        raise InternalError(f"{given.values.size} elements of {buffer.name} are expected, not {count}")
    values, tolerance = given.values.reshape(-1), given.tolerance
    if values.dtype == np.float64:
        values = values.astype(np.float32)
        if tolerance is not None:
            rounded = np.abs(given.values.reshape(-1) - values)
            tolerance = np.broadcast_to(tolerance, given.values.shape).reshape(-1) + rounded
            tolerance = np.nextafter(tolerance.astype(np.float32), np.float32(np.inf))
    places = None if given.places is None else _save(folder, f"{name}.places", given.places.astype(np.int64))
    allowed = _save(folder, f"{name}.tolerance", tolerance) if isinstance(tolerance, np.ndarray) else tolerance
    return ExpectedSaid(file=_save(folder, f"{name}.expected", values), tolerance=allowed, places=places)


def _save(folder: Path, name: str, array: Array) -> str:
    file = f"data/{name}.npy"
    np.save(folder / file, array)
    return file
