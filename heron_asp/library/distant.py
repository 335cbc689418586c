"""The program for tensors whose rows are any distance apart: the tuned one, or a twin that copes better.

A program that adds up its result in place needs known strides: without them LLVM cannot tell that two rows do not
overlap, keeps no accumulator in a register, and the program runs two to four times slower (as measured for int8
products). Its twin in the space collects the result in a buffer. A tall register tile needs more addresses of rows
than there are registers; its twin copies the operand first. So a few twins are measured, with distant rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heron_asp.child import Report, run_in_child
from heron_asp.errors import InternalError
from heron_asp.library.call import spread
from heron_asp.library.functions import with_leading
from heron_asp.measure.kernel import build, use_threads
from heron_asp.schedule.replay import KERNEL, Program
from heron_asp.space import Candidate, SketchSpace
from heron_asp.task import Task
from heron_asp.terms import Term, Value

_GAP = 64  # elements between rows when twins are measured
_TIE = 0.03  # a difference below this is noise
_SECONDS = 120.0  # to build and measure a twin


@dataclass(frozen=True)
class Distant:
    """A program for distant rows.

    Attributes:
        candidate: the program.
        seconds: of a call with 64 elements between rows, measured at export; None if this machine cannot run it.
    """

    candidate: Candidate
    seconds: float | None


def distant(task: Task, candidate: Candidate, measured: bool) -> Distant:
    """The best program for distant rows among a candidate and its twins.

    Args:
        task: what the candidate computes.
        candidate: the tuned program.
        measured: whether this machine can run it; otherwise the twin is chosen that is best as a rule.
    """
    choices = _choices(task, candidate)
    if not measured:
        return Distant(choices[0], None)
    times = _times(task, choices)
    best = min(times)
    at = next(number for number, seconds in enumerate(times) if seconds <= best * (1 + _TIE))
    return Distant(choices[at], times[at])


def leading_flags(task: Task) -> list[bool]:
    """For each tensor of a task, whether it has a leading dimension in a call."""
    operator = task.operator
    return [operator.strided and len(one.shape) > 1 and one.name not in operator.constant for one in operator.tensors]


def _choices(task: Task, candidate: Candidate) -> list[Candidate]:
    """The candidate and its twins, the best as a rule first."""
    part = task.space[candidate.sketch]
    result = task.operator.result.name
    operands = [
        spec.name for spec, is_strided in zip(task.operator.inputs, leading_flags(task), strict=False) if is_strided
    ]
    start, found = candidate, []
    if adds_in_place(task.program(candidate)):
        buffered = _copied(part, candidate, [result])
        if buffered is not None and not adds_in_place(task.program(buffered)):
            start = buffered
            found.append(buffered)
    found.append(candidate)
    copied = _copied(part, start, operands)
    return [*found, copied] if copied is not None and copied not in found else found


def _copied(part: SketchSpace, candidate: Candidate, tensors: Sequence[str]) -> Candidate | None:
    """The twin that copies these tensors at the innermost level that has one; None if there is none."""
    sketch = part.sketch
    depth = {level.name: level.number for level in sketch.levels}
    pins: dict[Value, frozenset[Value]] = {knob: frozenset({candidate.values[knob]}) for knob in candidate.knobs}
    optional = {copy for (copy,) in sketch.of("optional")}
    changed = False
    for copy, _, tensor, _ in sketch.of("copy"):
        position = Term("position", (copy,))
        without = position in pins and str(candidate.values[position]) not in depth
        if tensor in tensors and copy in optional and without:
            levels = [level for one, level in sketch.of("at") if one == copy and level in depth]
            pins[position] = frozenset({max(levels, key=lambda level: depth[str(level)])})
            changed = True
    found = part.sample(1, np.random.default_rng(0), pins) if changed else []
    return found[0] if found else None


def adds_in_place(program: Program) -> bool:
    """Whether a kernel reads the tensor that it writes."""
    import tvm_ffi
    from tvm import s_tir

    kernel = program.module[KERNEL]
    found: list[Any] = []

    def visit(block: Any) -> None:
        found.extend(region for region in block.reads if region.source.same_as(kernel.params[-1]))

    tvm_ffi.structural_walk(kernel.body, [(s_tir.SBlock, visit)])
    return bool(found)


def _times(task: Task, candidates: Sequence[Candidate]) -> list[float]:
    """Seconds of a call of each candidate with distant rows."""

    def work(report: Report) -> None:
        use_threads(task.threads)
        for number, candidate in enumerate(candidates):
            report(str(number), _time(task, candidate))

    outcome = run_in_child(work, [_SECONDS])
    times = [outcome.value(str(number)) for number in range(len(candidates))]
    if None in times:
        why = outcome.value("error") or outcome.stderr or f"signal {outcome.signal}"
        raise InternalError(f"{task.operator.label}: a program with distant rows did not run: {why}")
    return [float(seconds) for seconds in times]


def _time(task: Task, candidate: Candidate) -> float:
    import tvm_ffi
    from tvm import IRModule

    kernel = with_leading(task.program(candidate).module[KERNEL], leading_flags(task))
    built = build(task.operator, Program(IRModule({KERNEL: kernel}), ()), task.target, task.threads)
    arguments = []
    for parameter, is_strided in zip(kernel.params, leading_flags(task), strict=True):
        zeros = np.zeros([int(extent) for extent in parameter.shape], str(parameter.dtype))
        arguments.append(tvm_ffi.from_dlpack(spread(zeros, _GAP if is_strided else 0)))
    return min(built.time(arguments, 5, 8))
