"""A device for GPUs: each program is compiled and emulated on the CPU first, then timed by a worker, or modelled."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heron_asp.backends.cuda.build import build, fragment_registers
from heron_asp.backends.cuda.emulator import EmulationError, compile_program, dtype_of, prepare, unwritten, verify
from heron_asp.backends.cuda.jobs import Entry, Problem, data_of, write_jobs
from heron_asp.backends.cuda.measured import Host, Local, Measured, run_jobs
from heron_asp.backends.cuda.model import Gpu, estimate
from heron_asp.backends.cuda.modelled import element_bytes, gpu_of, peak, work_of
from heron_asp.backends.cuda.nvcc import CompileError, CompileTimeout, compile_cubin, find_nvcc
from heron_asp.backends.cuda.program import Program, Use
from heron_asp.backends.cuda.worker.options import Options
from heron_asp.child import Child, Outcome, Report
from heron_asp.errors import HeronError, InternalError, MissingError, telling_line
from heron_asp.measure.data import Case, cases
from heron_asp.measure.device import room_for
from heron_asp.measure.result import Limits, Measurement, Status
from heron_asp.task import Task, available_threads

if TYPE_CHECKING:
    from heron_asp.space import Candidate

_KEPT = 64  # programs
_MOST_AT_ONCE = 8
_BLOCKS = 6  # of a large grid are emulated in every order: the first, the last and random ones between
_MOST_OPERATIONS = 2**33  # of a call that is emulated as a whole: a second or two
_CHECKED = "checked"
MODELLED = "modelled, not measured"
_NVCC = "put nvcc on the PATH, or: pip install 'heron-asp[cuda]'"


@dataclass(frozen=True)
class Checked:
    """What is known of a program before it is timed.

    Attributes:
        status: `correct`, or what is wrong with it.
        error: in one paragraph.
        program: None where it cannot be made.
        cubin: machine code; empty where nothing is compiled.
        registers: of a thread, by kernel, as the assembler says, or as the rules count its fragments.
    """

    status: Status
    error: str = ""
    program: Program | None = None
    cubin: bytes = b""
    registers: dict[str, int] = field(default_factory=dict)


class GpuDevice:
    """Programs of a GPU; see `heron_asp.measure.device.Device`.

    Args:
        task: whose candidates are measured.
        limits: of building and checking.
        timed: where they are timed; None: their times are modelled.

    Attributes:
        width: how many candidates are compiled and emulated at once.
        held: bytes that the data take on which candidates are checked.
        measures: what the times are.
    """

    def __init__(self, task: Task, limits: Limits | None = None, timed: Local | Host | None = None) -> None:
        self.held = room_for(task.operator)
        self.task = task
        self.limits = limits or Limits()
        self.timed = timed
        self.compiles = _has_nvcc()
        if timed is not None and not self.compiles:
            raise MissingError("programs are compiled here before a worker gets them, and there is no nvcc", _NVCC)
        prepare()
        self.width = min(available_threads(), _MOST_AT_ONCE)
        where = "" if timed is None else f"on {timed.name}" if isinstance(timed, Host) else "on this machine's GPU"
        self.measures = f"time {where}, nothing in its caches" if where else MODELLED
        self._programs: dict[str, Program | Exception] = {}
        self._ahead: dict[str, Child] = {}
        self._known: dict[str, tuple[Checked, Outcome]] = {}  # compiled and emulated once, timed as often as asked
        self._done: dict[str, Measurement] = {}
        self._candidates: dict[str, Candidate] = {}

    @cached_property
    def _cases(self) -> list[Case]:
        return cases(self.task.operator, most=1 if self.timed is None else 3)

    def rest(self) -> None:
        """Ends what runs, and frees the data until they are needed again."""
        self.build_ahead([])
        self.__dict__.pop("_cases", None)
        self._programs.clear()
        self._known.clear()

    def fingerprint(self, candidate: Candidate) -> str | None:
        """The source and its launches; None where they cannot be made."""
        try:
            program = self._program(candidate)
        except InternalError:
            raise
        except Exception:  # told by `measure`
            return None
        return sha256(repr((program.source, program.kernels)).encode()).hexdigest()

    def _program(self, candidate: Candidate) -> Program:
        """The program of a candidate; the last ones are kept, since they are asked for in turn."""
        if candidate.key not in self._programs:
            if len(self._programs) >= _KEPT:
                self._programs.pop(next(iter(self._programs)))
            try:
                self._programs[candidate.key] = build(self.task, candidate)
            except InternalError:
                raise
            except Exception as error:  # TVM refuses the schedule: a hole in the constraints, and a row like any other
                self._programs[candidate.key] = error
        found = self._programs[candidate.key]
        if isinstance(found, Exception):
            raise found
        return found

    def build_ahead(self, candidates: Sequence[Candidate]) -> None:
        """Starts compiling and emulating candidates, each in a process of its own."""
        for started in self._ahead.values():
            started.kill()
        self._ahead, self._done = {}, {}
        self._candidates = {candidate.key: candidate for candidate in candidates}
        for key in [key for key in self._known if key not in self._candidates][:-_KEPT]:
            del self._known[key]
        case = self._cases[0] if candidates else None
        for candidate in self._candidates.values():  # each once
            if candidate.key in self._known:
                continue

            def work(report: Report, candidate: Candidate = candidate) -> None:
                assert case is not None
                try:
                    program = self._program(candidate)
                except InternalError:
                    raise
                except Exception as error:
                    report(_CHECKED, Checked(Status.CONSTRAINTS, telling_line(error)))
                    return
                report(_CHECKED, self._checked(candidate, program, case))

            self._ahead[candidate.key] = Child(work, [self.limits.build + self.limits.run])

    def _checked(self, candidate: Candidate, program: Program, case: Case) -> Checked:
        cubin, registers = b"", {program.kernels[0].name: fragment_registers(self.task, candidate)}
        if self.compiles:
            assert self.task.target.machine.compiler is not None
            try:
                compiled = compile_cubin(program.source, self.task.target.machine.compiler.mcpu, self.limits.build)
            except CompileError as error:
                return Checked(Status.COMPILE, str(error), program)
            except CompileTimeout as error:
                return Checked(Status.TIMEOUT, str(error), program)
            cubin, registers = compiled.cubin, {name: one.registers for name, one in compiled.resources.items()}
        try:
            emulate(program, case, self.limits.run, self.task.operator.operations)
        except EmulationError as error:
            return Checked(Status.CORRECTNESS, str(error), program, cubin, registers)
        return Checked(Status.CORRECT, "", program, cubin, registers)

    def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
        """What became of a candidate, and how long it takes."""
        del best
        if candidate.key not in self._candidates:
            self.build_ahead([candidate])
        if candidate.key not in self._done:
            self._measure_all() if self.timed is not None else self._model(candidate)
        return self._done[candidate.key]

    def _outcome(self, key: str) -> tuple[Checked, Outcome]:
        """What is known of a candidate, once its process has ended."""
        if key not in self._known:
            self._known[key] = self._ended(self._ahead.pop(key))
        return self._known[key]

    def _ended(self, child: Child) -> tuple[Checked, Outcome]:
        outcome = child.outcome()
        checked = outcome.value(_CHECKED)
        if isinstance(checked, Checked):
            return checked, outcome
        if outcome.timed_out:
            return Checked(Status.TIMEOUT, "compiling and emulating it took too long"), outcome
        said = str(outcome.value("error") or outcome.stderr or "the process ended without a result")
        return Checked(Status.RUNTIME, telling_line(said)), outcome

    def _model(self, candidate: Candidate) -> None:
        checked, outcome = self._outcome(candidate.key)
        self._done[candidate.key] = self._modelled(candidate, checked, outcome)

    def _modelled(self, candidate: Candidate, checked: Checked, outcome: Outcome) -> Measurement:
        took = outcome.seconds(_CHECKED)
        if checked.status is not Status.CORRECT or checked.program is None:
            return Measurement(checked.status, error=checked.error, build_seconds=took)
        first = checked.program.kernels[0]
        work = work_of(self.task, candidate, checked.registers[first.name], first.dynamic_shared + first.static_shared)
        gpu = gpu_of(self.task.target, element_bytes(self.task))
        seconds = estimate(gpu, work).seconds + further(gpu, checked.program)
        if not np.isfinite(seconds):
            return Measurement(
                Status.RUNTIME, error="a block of it does not fit on a multiprocessor", build_seconds=took
            )
        return Measurement(Status.CORRECT, seconds, (seconds,), build_seconds=took)

    def _measure_all(self) -> None:
        """Sends the correct ones of a round to the worker."""
        checked = {key: self._outcome(key) for key in self._candidates}
        entries = []
        for key, (one, outcome) in checked.items():
            if one.status is Status.CORRECT and one.program is not None:
                entries.append(Entry(key, one.program, one.cubin, one.registers))
            else:
                self._done[key] = Measurement(one.status, error=one.error, build_seconds=outcome.seconds(_CHECKED))
        for key, found in self._worked(entries).items():
            took = checked[key][1].seconds(_CHECKED)
            seconds = found.cold.median if found.cold is not None else None
            runs = (seconds,) if seconds is not None else ()
            self._done[key] = Measurement(found.status, seconds, runs, found.error, build_seconds=took)

    def _worked(self, entries: Sequence[Entry]) -> dict[str, Measured]:
        assert self.timed is not None
        if not entries:
            return {}
        assert self.task.target.machine.compiler is not None
        buffers = [one for one in entries[0].program.buffers if one.use is not Use.SCRATCH]
        output = next(one.name for one in buffers if one.use is Use.OUTPUT)
        data = [data_of(_shaped(case, entries[0].program), output) for case in self._cases]
        problem = Problem(self.task.operator.label, self.task.target.machine.compiler.mcpu, buffers, data)
        with tempfile.TemporaryDirectory() as folder:
            write_jobs(Path(folder), problem, entries)
            results = run_jobs(Path(folder), self.timed, Options())
        return {one.name: one for one in results.candidates}

    def compare(self, candidates: Sequence[Candidate], rounds: int) -> list[list[float]]:
        """Times candidates again; a model says the same each time."""
        times: list[list[float]] = [[] for _ in candidates]
        for _ in range(rounds if self.timed is not None else 1):
            self.build_ahead(candidates)
            for own, candidate in zip(times, candidates, strict=True):
                measured = self.measure(candidate)
                own += [measured.seconds] if measured.seconds is not None else []
        return times if self.timed is not None else [own * rounds for own in times]

    def peak(self) -> float | None:
        """Of all tensor cores, as their number and clock say."""
        return peak(self.task)


def further(gpu: Gpu, program: Program) -> float:
    """Seconds of the kernels after the first by the model: they move what they read and write, and compute little."""
    sizes = {buffer.name: buffer.nbytes for buffer in program.buffers}
    moved = sum(sizes[name] for kernel in program.kernels[1:] for name in kernel.arguments)
    return moved / gpu.dram_bytes_per_second + gpu.launch_seconds * (len(program.kernels) - 1)


def emulate(program: Program, case: Case, timeout: float, operations: int = 0) -> None:
    """Runs a program on the CPU, with threads and asynchronous copies in different orders.

    Of a large grid all blocks run once, and some of them in every order; where the whole takes too many operations,
    some of them only: then what is left out by these blocks is not noticed.

    Args:
        program: to run.
        case: inputs and what they come to.
        timeout: seconds for each run.
        operations: of a call.

    Raises:
        EmulationError: it is wrong.
    """
    emulated = compile_program(program)
    shaped = _shaped(case, program)
    last = program.kernels[-1]
    large = last.grid[0] * last.grid[1] * last.grid[2] > _BLOCKS

    def whole(outputs: dict[str, np.ndarray[Any, Any]]) -> str:
        (result,) = outputs.values()
        return case.error(result.reshape(case.expected.shape)) or ""

    def part(outputs: dict[str, np.ndarray[Any, Any]]) -> str:
        ((name, result),) = outputs.items()
        missing = unwritten(result)
        if missing.all():
            return "nothing is written"
        return whole({name: np.where(missing, case.expected.reshape(result.shape), result)})

    if large and operations <= _MOST_OPERATIONS and (wrong := whole(emulated.run(shaped.inputs, timeout=timeout))):
        raise EmulationError(f"wrong results: {wrong}")
    verify(emulated, shaped.inputs, part if large else whole, timeout, _BLOCKS if large else None)


def _shaped(case: Case, program: Program) -> Case:
    """A case with its inputs under the extents and the types that a program takes them."""
    inputs = {
        one.name: np.ascontiguousarray(case.inputs[one.name])
        .reshape(one.shape)
        .astype(dtype_of(one.storage), copy=False)
        for one in program.buffers
        if one.use is Use.INPUT
    }
    return Case(case.name, inputs, case.expected, case.tolerance)


def _has_nvcc() -> bool:
    try:
        find_nvcc()
    except HeronError:
        return False
    return True
