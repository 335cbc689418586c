"""Makes a session: candidates of some cases, compiled, with the data that they are checked on."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from gpu.there import SESSION, WORKER

from heron_asp.backends.cuda.jobs import Array, Data, Drawn, Entry, Expected, Problem, write_jobs
from heron_asp.backends.cuda.model import Work
from heron_asp.backends.cuda.program import Program, Use
from heron_asp.backends.cuda.worker import pack
from heron_asp.backends.cuda.worker.data import drawn
from heron_asp.errors import HeronError
from heron_asp.measure.data import case_of
from heron_asp.operators import Operator
from heron_asp.target import Target

_MOST_COMPARED = 2**20  # elements of a result; of larger ones a part is drawn
_COMPARED = 2**18
_EXACT = {"f16": 2**11, "bf16": 2**8, "f32": 2**24}  # whole numbers up to these have no rounding
_FEW_TERMS = 2**11  # products of -1, 0 and 1 whose partial sums float16 holds


@dataclass(frozen=True)
class Case:
    """A case of a session.

    Attributes:
        name: of its folder.
        operator: what is computed.
        target: on which GPU.
    """

    name: str
    operator: Operator
    target: Target

    @property
    def architecture(self) -> str:
        """For which it is compiled, e.g. `sm_90`."""
        compiler = self.target.machine.compiler
        if compiler is None or self.target.shared.backend != "cuda":
            raise HeronError(f"--target {self.target.name} is no GPU")
        return compiler.mcpu


@dataclass(frozen=True)
class Offer:
    """A candidate, before it is compiled.

    Attributes:
        name: unique among those of its case.
        program: its inputs are called as the operator's tensors; None where it cannot be made.
        work: what the model and the constraints say of it: registers, shared bytes.
        modelled: seconds.
        kind: where it comes from: `sample` or `modelled`; the share of valid ones and the model's correlation are
            those of samples.
        error: why there is no program.
    """

    name: str
    program: Program | None
    work: Work
    modelled: float
    kind: str = "sample"
    error: str = ""


class Resources(Protocol):
    """What the compiler says of a kernel."""

    @property
    def registers(self) -> int:
        """Of a thread."""


class Compiled(Protocol):
    """What the compiler makes."""

    @property
    def cubin(self) -> bytes:
        """The code."""

    @property
    def resources(self) -> Mapping[str, Resources]:
        """By kernel."""


Source = Callable[[Case], Iterable[Offer]]
Compiler = Callable[[str, str], Compiled]  # of CUDA C++ for an architecture


@dataclass
class Prepared:
    """A case that was prepared."""

    case: Case
    offered: int = 0
    compiled: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)

    def failed(self, offer: Offer, error: str) -> None:
        """Notes why there is no code of a candidate."""
        self.failures.append({"name": offer.name, "kind": offer.kind, "error": error})

    def to_json(self) -> dict[str, Any]:
        """Its entry in session.json."""
        operator = self.case.operator
        return {
            "case": self.case.name,
            "operator": operator.name,
            "label": operator.label,
            "shape": dict(operator.shape),
            "dtype": operator.dtype,
            "layout": operator.layout,
            "epilogue": operator.epilogue_text,
            "operations": operator.operations,
            "offered": self.offered,
            "compiled": self.compiled,
            "failures": self.failures,
        }


def prepare(
    session: Path,
    cases: list[Case],
    source: Source,
    compiler: Compiler,
    seconds: float,
    workers: int,
    say: Callable[[str], None],
) -> list[Prepared]:
    """Writes a session.

    Args:
        session: a folder that does not exist, or holds no session.
        cases: each gets an equal share of what time is left.
        source: makes candidates; as many are taken as there is time for.
        compiler: may be called from several threads.
        seconds: for all.
        workers: how many are compiled at once.
        say: is told of each case.

    Raises:
        HeronError: the folder holds a session, or a case has no candidate that compiles.
    """
    if (session / SESSION).exists():
        raise HeronError(f"{session} holds a session", "choose another folder")
    session.mkdir(parents=True, exist_ok=True)
    pack(session / WORKER)
    deadline = time.monotonic() + seconds
    architecture, done = cases[0].architecture, []
    for at, case in enumerate(cases):
        prepared = Prepared(case)
        end = time.monotonic() + max(0.0, deadline - time.monotonic()) / (len(cases) - at)
        made = dict(_entries(prepared, source(case), compiler, end, workers))
        entries = [made[number] for number in sorted(made)]
        if not entries:
            why = prepared.failures[0]["error"] if prepared.failures else "none is offered in time"
            raise HeronError(f"{case.name}: no candidate compiles: {why}")
        buffers = tuple(one for one in entries[0].program.buffers if one.use is not Use.SCRATCH)
        output = next(one.name for one in buffers if one.use is Use.OUTPUT)
        data = data_of(case.operator, output)
        problem = Problem(case.operator.label, architecture, buffers, [data])
        write_jobs(session / case.name, problem, entries)
        done.append(prepared)
        errors = Counter(one["error"] for one in prepared.failures)
        say(f"{case.name}: {prepared.compiled} of {prepared.offered} compiled {dict(errors) or ''}")
    version = {"version": 1, "architecture": architecture, "cases": [one.to_json() for one in done]}
    (session / SESSION).write_text(json.dumps(version, indent=1))
    return done


def _entries(
    prepared: Prepared, offers: Iterable[Offer], compiler: Compiler, end: float, workers: int
) -> Iterator[tuple[int, Entry]]:
    """Compiles candidates as they are offered, until the time is over; each with its number among those offered."""
    waiting = iter(offers)
    running: dict[Future[Compiled], tuple[int, Offer]] = {}
    with ThreadPoolExecutor(workers) as pool:
        more = True
        while more or running:
            while more and len(running) < workers:
                offer = next(waiting, None) if time.monotonic() < end else None
                if offer is None:
                    more = False
                elif offer.program is None:
                    prepared.failed(offer, offer.error)
                else:
                    future = pool.submit(compiler, offer.program.source, prepared.case.architecture)
                    running[future] = (prepared.offered, offer)
                prepared.offered += offer is not None
            for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                number, offer = running.pop(future)
                try:
                    compiled = future.result()
                except HeronError as error:
                    prepared.failed(offer, error.message)
                    continue
                prepared.compiled += 1
                yield number, _entry(offer, compiled)


def _entry(offer: Offer, compiled: Compiled) -> Entry:
    registers = {name: one.registers for name, one in compiled.resources.items()}
    notes = {
        "kind": offer.kind,
        "modelled": offer.modelled,
        "registers": offer.work.registers,
        "shared_bytes": offer.work.shared_bytes,
    }
    assert offer.program is not None, "what has none is not compiled"
    return Entry(offer.name, offer.program, compiled.cubin, registers, notes)


# --- data: small whole numbers, so that most results are exact in every order of summing, and take little room ---


def data_of(operator: Operator, output: str) -> Data:
    """Inputs that the worker draws, and the result in the buffer of that name, of large ones a part."""
    low, high = (-1, 1) if operator.dtype.endswith("f16") else (-2, 2)
    inputs: dict[str, Array | Drawn] = {}
    arrays: dict[str, Array] = {}
    for seed, spec in enumerate(operator.inputs):
        if spec.name in operator.constants:
            inputs[spec.name] = arrays[spec.name] = operator.constants[spec.name]
            continue
        least = 0 if spec.dtype.bounds and spec.dtype.bounds[0] == 0 else low
        inputs[spec.name] = Drawn(seed, least, high)
        count = int(np.prod(spec.shape))
        arrays[spec.name] = drawn(seed, count, least, high).reshape(spec.shape).astype(spec.dtype.numpy)
    made = case_of(operator, "drawn", arrays)
    places = None
    if made.expected.size > _MOST_COMPARED:
        generator = np.random.default_rng(0)
        places = np.sort(generator.choice(made.expected.size, _COMPARED, replace=False))
    picked = made.expected.reshape(-1) if places is None else made.expected.reshape(-1)[places]
    tolerance = None
    if made.tolerance is not None and not is_exact(operator, picked):
        tolerance = float(made.tolerance.max())
    return Data("drawn", inputs, {output: Expected(narrowed(picked), tolerance, places)})


def is_exact(operator: Operator, expected: Array) -> bool:
    """Whether no sum is rounded on the way, in whatever order, nor when it is stored."""
    accumulator, stored = operator.types[2].name, operator.result.dtype.name
    if not np.array_equal(expected, np.round(expected)) or operator.epilogue:
        return False
    fits = np.abs(expected).max(initial=0) <= _EXACT.get(stored, np.inf)
    return bool(fits) and (accumulator != "f16" or operator.terms <= _FEW_TERMS)


def narrowed(values: Array) -> Array:
    """Whole numbers in as few bytes as hold them."""
    if np.array_equal(values, np.round(values)):
        for kind in (np.int8, np.int16, np.int32):
            if np.abs(values).max(initial=0) <= np.iinfo(kind).max:
                return values.astype(kind)
    return values
