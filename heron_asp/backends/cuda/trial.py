"""Does a program run? An assignment of a sketch's knobs through the whole pipeline, and the step that refuses it.

No constraint is asked, so that what the rules forbid can be tried as well as what they allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from math import prod
from typing import TYPE_CHECKING, Any

from heron_asp.backends.cuda.build import buffer_sizes
from heron_asp.backends.cuda.device import emulate
from heron_asp.backends.cuda.emulator import EmulationError
from heron_asp.backends.cuda.lower import lowered, program_of, refusal
from heron_asp.backends.cuda.nvcc import (
    CompileError,
    CompileTimeout,
    Multiprocessor,
    Resources,
    compile_cubin,
    occupancy,
)
from heron_asp.backends.cuda.nvcc import Step as Nvcc
from heron_asp.completeness.trial import telling
from heron_asp.errors import InternalError
from heron_asp.schedule.calls import Call
from heron_asp.schedule.plan import plan
from heron_asp.schedule.replay import begin, execute, split_prepared

if TYPE_CHECKING:
    from heron_asp.backends.cuda.program import Program
    from heron_asp.measure.data import Case
    from heron_asp.sketch import Sketch
    from heron_asp.target import Target
    from heron_asp.task import Task
    from heron_asp.terms import Value

_SECONDS = 60.0  # of nvcc, and of each run in the emulator


class Step(StrEnum):
    """What a program goes through, in this order."""

    SCHEDULE = "schedule"
    TENSORIZE = "tensorize"
    LOWERING = "lowering"
    CHECK = "TVM's check of GPU code"
    FRONT_END = "nvcc's front end"
    ASSEMBLER = "ptxas"
    LAUNCH = "launch limits"
    EMULATOR = "emulator"


_NVCC_STEPS = {Nvcc.ASSEMBLER: Step.ASSEMBLER}  # whatever else it refuses, its front end does


@dataclass(frozen=True)
class Trial:
    """What became of an assignment.

    Attributes:
        step: what refused it; None if nothing did.
        reason: in one line.
        source: a hash of the source and its launches; equal for the same program. Empty where there is none.
        dynamic_shared: bytes of dynamic shared memory of the kernel that multiplies.
        resources: of each kernel, as the assembler says, by its name; empty where nothing was compiled.
    """

    step: Step | None
    reason: str = ""
    source: str = ""
    dynamic_shared: int = 0
    resources: tuple[tuple[str, Resources], ...] = ()

    @property
    def valid(self) -> bool:
        """Whether nothing refused it."""
        return self.step is None


@dataclass(frozen=True)
class Pipeline:
    """How far assignments of a task are taken.

    Attributes:
        task: operator and GPU.
        case: inputs and what must come of them in the emulator; None: it is left out.
        compiles: whether nvcc compiles; limits of registers are only known then.
        counted: whether buffers in shared memory are as large as the rules count them, or as TVM allocates them.
    """

    task: Task
    case: Case | None
    compiles: bool = True
    counted: bool = True

    def trial(self, sketch: Sketch, values: Mapping[Value, Value]) -> Trial:
        """Tries an assignment.

        Args:
            sketch: whose steps are replayed.
            values: of its knobs, and of what follows from them.
        """
        made = self._scheduled(sketch, values)
        if isinstance(made, Trial):
            return made
        try:
            sizes = buffer_sizes(self.task.block, sketch, values) if self.counted else None
            program, against = self._lowered(made, sizes)
        except Exception as error:  # whatever TVM says, and where the rules count too much
            return Trial(Step.LOWERING, telling(error))
        if program is None:
            return Trial(Step.CHECK, against)
        return self._run(program)

    def _scheduled(self, sketch: Sketch, values: Mapping[Value, Value]) -> Any:
        """A scheduled module, or the trial that ended before there was one."""
        task = self.task
        at: Call | None = None
        try:
            calls = plan(task.block, sketch, values)
            schedule, made = begin(task.block, calls[0], error_render_level="fast"), dict[str, Any]()
            for call in calls[1:]:
                at = call
                schedule = execute(schedule, call, made, task.target.intrinsics)
            return split_prepared(schedule.mod).module
        except (InternalError, KeyError):  # the plan speaks of what is not there
            raise
        except Exception as error:
            tensorize = at is not None and at.primitive == "tensorize"
            return Trial(Step.TENSORIZE if tensorize else Step.SCHEDULE, telling(error))

    def _lowered(self, module: Any, sizes: Mapping[str, int] | None) -> tuple[Program | None, str]:
        """A program, or what TVM's check has against it."""
        target = self.task.target
        made = lowered(module, target, sizes)
        against = refusal(made, target)
        return (None, against) if against else (program_of(made, target), "")

    def _run(self, program: Program) -> Trial:
        known = {
            "source": sha256(repr((program.source, program.kernels)).encode()).hexdigest(),
            "dynamic_shared": program.kernels[0].dynamic_shared,
        }
        resources: dict[str, Resources] = {}
        if self.compiles:
            assert self.task.target.machine.compiler is not None
            try:
                resources = compile_cubin(program.source, self.task.target.machine.compiler.mcpu, _SECONDS).resources
            except CompileError as error:
                return Trial(_NVCC_STEPS.get(error.step, Step.FRONT_END), error.line, **known)  # type: ignore[arg-type]
            except CompileTimeout as error:  # of code that is unrolled without end, the assembler takes most
                return Trial(Step.ASSEMBLER, error.message, **known)  # type: ignore[arg-type]
        found = tuple(resources.items())
        over = launch_refusal(program, resources, self.task.target)
        if over:
            return Trial(Step.LAUNCH, over, resources=found, **known)  # type: ignore[arg-type]
        if self.case is not None:
            try:
                emulate(program, self.case, _SECONDS)
            except EmulationError as error:
                return Trial(Step.EMULATOR, str(error), resources=found, **known)  # type: ignore[arg-type]
        return Trial(None, resources=found, **known)  # type: ignore[arg-type]


def launch_refusal(program: Program, resources: Mapping[str, Resources], target: Target) -> str:
    """Why a launch of a program would fail on a GPU; empty if it would not.

    Args:
        program: its kernels.
        resources: of each kernel, by its name; those that are not named are taken to need no registers.
        target: the GPU.
    """
    limits, none = multiprocessor(target), Resources(0, 0, 0, 0, 0, 0)
    most = target.machine.limits["threads"]
    for kernel in program.kernels:
        own = resources.get(kernel.name, none)
        if prod(kernel.block) > most:
            return f"{kernel.name} has {prod(kernel.block)} threads a block, of {most}"
        if kernel.static_shared or own.static_shared:
            return f"{kernel.name} has {max(kernel.static_shared, own.static_shared)} bytes of static shared memory"
        if not occupancy(kernel, own, limits):
            said = f"{kernel.dynamic_shared} bytes of shared memory, {own.registers} registers a thread"
            return f"a block of {kernel.name} does not fit on a multiprocessor: {kernel.threads} threads, {said}"
    return ""


def multiprocessor(target: Target) -> Multiprocessor:
    """What the blocks on a multiprocessor of a GPU share."""
    limits = target.machine.limits
    return Multiprocessor(
        limits["register_file"],
        limits["shared_total"],
        limits["resident_threads"],
        limits["resident_blocks"],
        limits["shared_reserved"],
    )
