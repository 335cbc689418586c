"""From a candidate to its program: scheduled, lowered with shared memory as the rules count it, checked, CUDA C++."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from heron_asp.backends.cuda.lower import lowered, program_of, refusal
from heron_asp.errors import HeronError
from heron_asp.terms import Term, Value, text

if TYPE_CHECKING:
    from heron_asp.analysis import BlockFacts
    from heron_asp.backends.cuda.program import Program
    from heron_asp.sketch import Sketch
    from heron_asp.space import Candidate
    from heron_asp.task import Task


def build(task: Task, candidate: Candidate) -> Program:
    """A candidate's program.

    Raises:
        HeronError: TVM's check of GPU code refuses it: a hole in the constraints.
        tvm.error.TVMError: TVM refuses the schedule: likewise.
    """
    sizes = buffer_sizes(task.block, task.space[candidate.sketch].sketch, candidate.values)
    module = lowered(task.program(candidate).module, task.target, sizes)
    against = refusal(module, task.target)
    if against:
        raise HeronError(f"TVM's check of GPU code refuses the program: {against}")
    return program_of(module, task.target)


def buffer_sizes(block: BlockFacts, sketch: Sketch, values: Mapping[Value, Value]) -> Mapping[str, int]:
    """Bytes of each buffer in shared memory as the rules count them, by the name that it has in a schedule.

    Operands come from a block `T_pad`; the result has its own name until it is written.
    """
    operands = {tensor.name for tensor in block.operands}
    found = {}
    for copy, _, tensor, _ in sketch.of("copy"):
        size = values.get(Term("bytes", (copy,)))
        if isinstance(size, int):
            name = text(tensor)
            found[f"{name}_pad" if name in operands else name] = size
    return found


def fragment_registers(task: Task, candidate: Candidate) -> int:
    """Registers of a thread as the rules count them: those of its fragments, and those that they leave for the rest."""
    free = task.target.pays["registers"].value
    taken = task.space[candidate.sketch].sketch.of("takes")
    return free + sum(
        _number(each) * _number(candidate.values[Term("fragments", (block, slot))]) for block, slot, each in taken
    )


def shared_memory(task: Task, candidate: Candidate) -> int:
    """Dynamic shared memory of a block of threads as the rules count it, in bytes: that of the larger phase."""
    sketch = task.space[candidate.sketch].sketch
    phases: dict[str, int] = {}
    for copy, place in sketch.of("place"):
        phases[text(place)] = phases.get(text(place), 0) + _number(candidate.values[Term("bytes", (copy,))])
    return max(phases.values())


def _number(value: Value) -> int:
    assert isinstance(value, int), value
    return value
