"""Calls of a schedule as runnable Python text: what `replay` executes, to be read, pasted and changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heron_asp.schedule.calls import Argument, Call, Form, IndexMap, IntrinsicName, Ref, Skip, Source
from heron_asp.schedule.fragments import FragmentCall

if TYPE_CHECKING:
    from heron_asp.space import Candidate
    from heron_asp.task import Task


def script_of(task: Task, candidate: Candidate) -> str:
    """The schedule of a candidate as Python text that runs."""
    made = task.operator
    arguments = f"{made.name!r}, {dict(made.said)!r}, {made.dtype!r}, {made.layout!r}"
    arguments += f", {made.epilogue_text!r}" if made.epilogue else ""
    return script(task.calls(candidate), str(task.target.path), arguments, f"{made.label}: {candidate.sketch}.")


def script(calls: Sequence[Call], target: str, operator: str, heading: str = "") -> str:
    """Python text that schedules a program and prints it.

    Args:
        calls: from `plan`.
        target: what `resolve_target` takes.
        operator: the arguments of `heron_asp.operator`, as Python text.
        heading: the docstring of the function.
    """
    sources = {a.intrinsic for call in calls for a in call.arguments if isinstance(a, Source)}
    named = [a for call in calls for a in call.arguments if isinstance(a, IntrinsicName)]
    fragments = [a for call in calls for a in call.arguments if isinstance(a, FragmentCall)]
    used = {call.primitive for call in calls}
    lines = [
        "from heron_asp import operator, resolve_target",
        "from heron_asp.analysis import analyse",
        "from heron_asp.schedule.express import express",
        *(["from heron_asp.schedule.fragments import FragmentCall, register_fragment"] if fragments else []),
        *(["from heron_asp.schedule.start import Start, start_with"] if "start_with" in used else []),
        *(["from heron_asp.schedule.tensor_intrin import register"] if named else []),
        *(["from heron_asp.schedule.zeros import Window, skip_zeros"] if "skip_zeros" in used else []),
        "from tvm.s_tir import Schedule",
        "",
        f"target = resolve_target({target!r})",
        *(f"register(target.intrinsics[{one.intrinsic!r}], {one.seating!r}{_stored(one)})" for one in named),
        *(f"register_fragment(target.intrinsics[{one.intrinsic!r}], {one!r})" for one in dict.fromkeys(fragments)),
        *(f"{_source_name(name)} = target.intrinsics[{name!r}].call.ir" for name in sorted(sources)),
        "",
        "",
        "def schedule(block):",
        f'    """{heading or "A program."}"""',
        f"    sch = Schedule(express(block{_form(calls[0])}))",
        *(f"    {_statement(call)}" for call in calls[1:]),
        "    return sch",
        "",
        "",
        'if __name__ == "__main__":',
        f"    print(schedule(analyse(operator({operator}), **target.seen_as)).mod.script())",
    ]
    return "\n".join(lines) + "\n"


def _form(call: Call) -> str:
    (form,) = call.arguments
    assert isinstance(form, Form), call
    padded = f", {dict(form.padded)!r}" if form.padded else ""
    shifts = f", shifts={dict(form.shifts)!r}" if form.shifts else ""
    native = ", native=True" if form.native else ""
    return padded + (f", innermost={form.innermost!r}" if form.innermost else "") + shifts + native


def _stored(intrinsic: IntrinsicName) -> str:
    return f", {intrinsic.stored!r}" if intrinsic.stored else ""


def _source_name(intrinsic: str) -> str:
    return f"{intrinsic}_ir"


def _statement(call: Call) -> str:
    if call.primitive == "skip_zeros":
        block, *skips = call.arguments
        shown = ", ".join(f"({skip.loop.name}, {skip.window!r})" for skip in skips if isinstance(skip, Skip))
        return f"sch = skip_zeros(sch, {block!r}, [{shown}])"
    if call.primitive == "start_with":
        return f"sch = start_with(sch, {', '.join(map(repr, call.arguments))})"
    arguments = [_show(argument) for argument in call.arguments]
    arguments += [f"{name}={_show(value)}" for name, value in call.options]
    called = f"sch.{call.primitive}({', '.join(arguments)})"
    if call.take:
        called += f"[-{call.take}:]"
    if not call.results:
        return called
    targets = ", ".join(call.results) + ("," if call.several and len(call.results) == 1 else "")
    return f"{targets} = {called}"


def _show(argument: Argument) -> str:
    if isinstance(argument, Ref):
        return argument.name
    if isinstance(argument, Source):
        return _source_name(argument.intrinsic)
    if isinstance(argument, IntrinsicName):
        return repr(registered_name(argument))
    if isinstance(argument, FragmentCall):
        return repr(argument.name)
    if isinstance(argument, IndexMap):
        names = [f"i{dim}" for dim in range(argument.rank)]
        parts = [
            names[d] if (how, unit) == ("//", 1) else f"{names[d]} {how} {unit}" for d, how, unit in argument.parts
        ]
        return f"lambda {', '.join(names)}: [{', '.join(parts)}]"
    if isinstance(argument, tuple):
        return f"[{', '.join(map(_show, argument))}]" if not _is_buffer(argument) else repr(argument)
    return repr(argument)


def _is_buffer(argument: tuple[Argument, ...]) -> bool:
    return len(argument) == 2 and isinstance(argument[0], str)


def registered_name(intrinsic: IntrinsicName) -> str:
    """The name of an intrinsic in TVM's registry."""
    return ".".join(("heron_asp", intrinsic.intrinsic, intrinsic.seating, *intrinsic.stored))
