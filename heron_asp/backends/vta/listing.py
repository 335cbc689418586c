"""Programs as text: the loop nest of a candidate, and its instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from math import prod

from heron_asp.backends.vta.isa import Instruction, Load, Memory, carries_only_tokens, opcode_of
from heron_asp.backends.vta.lowering import Lowered, Nest, Problem, lower, nest_of, problem_of
from heron_asp.backends.vta.machine import numbers_of
from heron_asp.space import Candidate
from heron_asp.task import Task

_TOKENS = {"pop_prev": "<prev", "pop_next": "<next", "push_prev": "prev>", "push_next": "next>"}


def _made(task: Task, candidate: Candidate) -> tuple[Problem, Nest, Lowered]:
    numbers, sketch = numbers_of(task.target), task.space[candidate.sketch].sketch
    problem = problem_of(task.block, sketch, task.target.intrinsics[numbers.intrinsic], numbers.config)
    nest = nest_of(task.block, sketch, candidate.values)
    return problem, nest, lower(problem, nest)


def nest(task: Task, candidate: Candidate) -> str:
    """The loop nest: where blocks are loaded, what one GEMM instruction runs over, what is done to sums.

    Extents are in units: blocks of channels along the roles of the instruction.
    """
    problem, loops, lowered = _made(task, candidate)
    lines = [f"# {task.operator.label} on {task.target.name}: {candidate.sketch}"]
    acc, _ = problem.copy("acc")
    for depth in range(len(loops.loops) + 1):
        indent = "  " * depth
        for name, place in loops.places.items():
            if place.depth == depth and name != acc:
                lines.append(f"{indent}{name} = load({_block(problem, loops, name)})")
        if loops.places[acc].depth == depth:
            lines.append(f"{indent}{acc} = clear({_block(problem, loops, acc)})")
        if depth < len(loops.loops):
            loop = loops.loops[depth]
            lines.append(f"{indent}for {loop.axis}_{loop.level} in range({loop.extent}):")
    inside = "  " * len(loops.loops)
    tile = ", ".join(f"{axis}={extent}" for axis, extent in loops.tile.items() if extent > 1)
    lines.append(f"{inside}{acc} += gemm({tile})")
    after = "  " * loops.places[acc].depth
    lines += [f"{after}{acc} = {done.operation}({done.tensor or done.number})" for done in problem.chain]
    lines.append(f"{after}store({acc})")
    lines.append(f"# {len(lowered.instructions)} instructions, {len(lowered.uops)} micro-ops")
    return "\n".join(lines) + "\n"


def _block(problem: Problem, loops: Nest, name: str) -> str:
    place, entries = loops.places[name], problem.copies[name]
    steps, first = loops.steps(place.depth), loops.first(())
    spans = [dim.span(first, steps) for dim in entries.dims]
    sizes = [high - low for low, high in spans]
    said = f"{entries.tensor}: {' x '.join(map(str, sizes))} = {prod(sizes)} entries"
    return said + (f", {place.slots} buffers" if place.slots > 1 else "")


def code(task: Task, candidate: Candidate) -> str:
    """The instructions, one a line, with the tokens that they take (<) and give (>)."""
    _, _, lowered = _made(task, candidate)
    lines = [f"# {task.operator.label} on {task.target.name}: {candidate.sketch}"]
    lines += [f"{number:6} {_line(one)}" for number, one in enumerate(lowered.instructions)]
    return "\n".join(lines) + "\n"


def _line(instruction: Instruction) -> str:
    name = opcode_of(instruction).name
    if isinstance(instruction, Load):
        name += f" {Memory(instruction.memory_type).name}"
    tokens = " ".join(sign for flag, sign in _TOKENS.items() if getattr(instruction, flag))
    values = "" if carries_only_tokens(instruction) else " ".join(_values(instruction))
    return f"{name:9} {tokens:23} {values}".rstrip()


def _values(instruction: Instruction) -> Iterator[str]:
    for field in fields(instruction):
        value = getattr(instruction, field.name)
        if field.name not in _TOKENS and field.name != "memory_type" and (value or field.name == "alu_opcode"):
            yield f"{field.name}={value.name if hasattr(value, 'name') else value}"
