"""Calls of a schedule as runnable Python text: what `replay` executes, to be read, pasted and changed."""

from __future__ import annotations

from collections.abc import Sequence

from heron_asp.schedule.plan import Argument, Call, IndexMap, IntrinsicName, Ref, Source


def script(calls: Sequence[Call], heading: str = "") -> str:
    """Python text of a function `schedule(mod)` that returns the scheduled `Schedule`.

    Intrinsics are named as `heron_asp.schedule.tensor_intrin.register` registers them.
    """
    lines = [
        "from tvm.s_tir import Schedule",
        "",
        "",
        "def schedule(mod, sources):",
        f'    """{heading or "A program."}"""' if heading else "",
        "    sch = Schedule(mod)",
        *(f"    {_statement(call)}" for call in calls),
        "    return sch",
    ]
    return "\n".join(line for line in lines if line is not None) + "\n"


def _statement(call: Call) -> str:
    arguments = [_show(argument) for argument in call.arguments]
    arguments += [f"{name}={_show(value)}" for name, value in call.options]
    called = f"sch.{call.primitive}({', '.join(arguments)})"
    if call.take:
        called += f"[-{call.take}:]"
    if not call.results:
        return called
    several = call.primitive in ("get_loops", "split")
    targets = ", ".join(call.results) + ("," if several and len(call.results) == 1 else "")
    return f"{targets} = {called}"


def _show(argument: Argument) -> str:
    if isinstance(argument, Ref):
        return argument.name
    if isinstance(argument, Source):
        return f"sources[{argument.intrinsic!r}]"
    if isinstance(argument, IntrinsicName):
        return repr(registered_name(argument))
    if isinstance(argument, IndexMap):
        names = [f"i{dim}" for dim in range(argument.rank)]
        parts = [f"{names[dim]} {how} {unit}" for dim, how, unit in argument.parts if not (how == "//" and unit == 1)]
        parts = [names[d] if how == "//" and unit == 1 else f"{names[d]} {how} {unit}" for d, how, unit in argument.parts]
        return f"lambda {', '.join(names)}: [{', '.join(parts)}]"
    if isinstance(argument, tuple):
        return f"[{', '.join(map(_show, argument))}]" if not _is_buffer(argument) else repr(argument)
    return repr(argument)


def _is_buffer(argument: tuple[Argument, ...]) -> bool:
    return len(argument) == 2 and isinstance(argument[0], str)


def registered_name(intrinsic: IntrinsicName) -> str:
    """The name of an intrinsic in TVM's registry."""
    return f"heron_asp.{intrinsic.intrinsic}.{intrinsic.seating}"
