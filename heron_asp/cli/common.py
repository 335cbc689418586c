"""Options and helpers that several commands share."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args

import typer

from heron_asp.errors import HeronError, InfeasibleError
from heron_asp.resources import suggestion

if TYPE_CHECKING:
    from heron_asp.space import Pins, SketchSpace
    from heron_asp.task import Task as Task  # commands are annotated with it
    from heron_asp.terms import Value
else:
    Task = Any  # a command's signature is read when the program starts, and importing what makes a task takes its time

MOST_THREADS = 256  # of an exported library: HERON_MOST_THREADS
MOST_SECONDS = 1e6  # of a limit: neither inf nor nan
_MOST_MEMORY = 2**20  # MiB
_SHOWN_VALUES = 12
_LONGEST_TERM = 200  # characters
_LONGEST_SHAPE = 400  # characters

OperatorName = Annotated[
    str,
    typer.Argument(
        help="Operator: gemm, batch_matmul, gemv, conv1d, conv2d, conv3d, conv2d_dilated, depthwise_conv2d, "
        "conv2d_transposed, scan, mean or variance; or one of your own: FILE.py:NAME.",
        show_default=False,
    ),
]
Shape = Annotated[str, typer.Option("--shape", "-s", help="Extents, e.g. m=1024,n=1024,k=1024.", show_default=False)]
TargetName = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        help="A machine's name, a family (this host's machine of it) or a TOML file.",
        show_default=False,
    ),
]
DType = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="Types of activation, weight and accumulator, e.g. u8s8s32 [the operator's, or the target family's].",
        show_default=False,
    ),
]
Layout = Annotated[
    str | None,
    typer.Option("--layout", help="Order of the axes in memory, e.g. channels-first.", show_default=False),
]
Epilogue = Annotated[
    str,
    typer.Option(
        "--epilogue",
        help="Done to each element of the sum, e.g. bias,relu or bias,requantize=u8 [the target family's].",
        show_default=False,
    ),
]
Threads = Annotated[
    int,
    typer.Option("--threads", help="Threads of a kernel; 0: all that this process may use.", min=0, max=MOST_THREADS),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.", min=0)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Rules = Annotated[
    list[Path] | None,
    typer.Option("--rules", help="A further rule file; may be given several times.", exists=True, dir_okay=False),
]
Relax = Annotated[
    list[str] | None,
    typer.Option(
        "--relax", help="Lift a rule of thumb, a constraint or a rule (c5) by name, to look; may be repeated."
    ),
]
Pin = Annotated[
    list[str] | None, typer.Option("--pin", help="Fix a variable, e.g. --pin 'tile(c,m,register)=8'; may be repeated.")
]
Tensorized = Annotated[
    bool,
    typer.Option("--tensorized", help="Only programs that use an instruction of the target; exit 3 if there is none."),
]
NoPadding = Annotated[
    bool, typer.Option("--no-padding", help="Axes must fit as they are: to look what padding is needed for.")
]
Trust = Annotated[bool, typer.Option("--trust-rules", help="Let --rules run #script and include from anywhere.")]
SpaceMemory = Annotated[
    int, typer.Option("--space-memory", help="MiB that compiling a sketch may take.", min=16, max=_MOST_MEMORY)
]
SpaceSeconds = Annotated[
    float, typer.Option("--space-seconds", help="Seconds that it may take.", min=0.1, max=MOST_SECONDS)
]


Command: TypeAlias = Callable[..., int | None]


class TaskOptions:
    """The options that describe a task, as far as they were given."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = {name: value for name, value in given.items() if value not in (None, "")}

    def task(self, **more: Any) -> Task:
        """The task that they describe together with others; the options win.

        Raises:
            HeronError: there is no such task.
        """
        said = {**more, **self.given}
        for name, parameter in inspect.signature(_task).parameters.items():
            if parameter.default is parameter.empty and name not in said:
                raise HeronError(f"no {name} is given", "a task is an operator, -s and -t; -h lists the options")
        return _task(**said)


def over_a_task(*, looks: bool = True, partly: bool = False) -> Callable[[Command], Command]:
    """Makes a command of a function of a task: it takes the options that describe one besides its own.

    Args:
        looks: it only looks at the space, which may be another one than is searched: `--relax`, `--no-padding`.
        partly: the options may be left out; the function is given TaskOptions instead of a task.
    """

    def decorate(function: Command) -> Command:
        @wraps(function)
        def command(**options: Any) -> int | None:
            described = {name: options.pop(name) for name in described_by}
            return function(TaskOptions(described) if partly else _task(**described), **options)

        described_by = _described_by(looks)
        if partly:
            described_by = {name: _optional(one) for name, one in described_by.items()}
        own = inspect.signature(function, eval_str=True).parameters
        parameters = [*described_by.values(), *(one for name, one in own.items() if name != "task")]
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what typer reads
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        )
        command.__annotations__ = {}
        return command

    return decorate


def _described_by(looks: bool) -> dict[str, inspect.Parameter]:
    """The options that describe a task."""
    known = dict(inspect.signature(_task, eval_str=True).parameters)
    return known if looks else {name: one for name, one in known.items() if name not in ("relax", "no_padding")}


def _optional(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter that may be left out."""
    if parameter.default is not parameter.empty:
        return parameter
    kind, info = get_args(parameter.annotation)
    return parameter.replace(default=None, annotation=Annotated[kind | None, info])


def _task(
    *,
    operator: OperatorName,
    target: TargetName,
    shape: Shape = "",
    dtype: DType = None,
    layout: Layout = None,
    epilogue: Epilogue = "",
    threads: Threads = 1,
    rules: Rules = None,
    relax: Relax = None,
    no_padding: NoPadding = False,
    trust_rules: Trust = False,
    space_memory: SpaceMemory = 2_048,
    space_seconds: SpaceSeconds = 120.0,
) -> Task:
    from heron_asp.host import resolve_target
    from heron_asp.operators import operator as make_operator
    from heron_asp.operators import parse_shape
    from heron_asp.space import SpaceLimits
    from heron_asp.task import Task, available_threads

    if not shape.isascii() or len(shape) > _LONGEST_SHAPE:
        raise HeronError(f"-s {shape[:_LONGEST_SHAPE]}: not extents in plain digits", "e.g. -s m=64,n=64,k=64")
    machine = resolve_target(target)
    usual = machine.shared.defaults
    extents, types = parse_shape(shape), dtype or usual.dtype or None
    made = make_operator(operator, extents, types, layout, epilogue)
    if not epilogue and usual.epilogue and made.kind.channel and made.types[-1].is_integer:
        made = make_operator(operator, extents, types, layout, usual.epilogue)
    return Task(
        made,
        machine,
        threads or min(available_threads(), MOST_THREADS),
        tuple(rules or ()),
        tuple(relax or ()),
        limits=SpaceLimits(space_memory, space_seconds),
        trusted=trust_rules,
        padding=not no_padding,
    )


def parse_pins(said: Sequence[str] | None) -> Pins:
    """Pins from `variable=value` texts; several of one variable are alternatives.

    Raises:
        HeronError: a text is not `variable=value`.
    """
    pins: dict[Value, set[Value]] = {}
    for one in said or ():
        variable, separator, value = one.rpartition("=")
        if not separator or not variable or not value:
            raise HeronError(f"--pin {one}: not variable=value", "e.g. --pin 'tile(c,m,register)=8'")
        pins.setdefault(term(variable), set()).add(term(value))
    return {variable: frozenset(values) for variable, values in pins.items()}


def term(source: str) -> Value:
    """A variable or a value as the user writes it.

    Raises:
        HeronError: the text is not a ground term.
    """
    from heron_asp.terms import parse

    try:
        if len(source) <= _LONGEST_TERM:
            return parse(source)
    except ValueError:  # characters that no term can have
        pass
    raise HeronError(f"{source[:_LONGEST_TERM]!r} is not a term", "write it as `audit` prints it")


def require_variables(parts: Iterable[SketchSpace], pins: Pins) -> None:
    """Makes sure that every pinned variable is one of some sketch.

    Raises:
        HeronError: one is of none.
    """
    from heron_asp.space import is_shown
    from heron_asp.terms import text

    known = {variable for part in parts for variable in part.variables} if pins else set()
    for variable in pins:
        if variable not in known:
            names = (text(one) for one in known if is_shown(one))
            raise HeronError(
                f"--pin {text(variable)}: no sketch has such a variable", suggestion(text(variable), names)
            )


def foreign_values(parts: Iterable[SketchSpace], pins: Pins) -> list[str]:
    """A sentence for each pinned variable of which no sketch knows the value."""
    from heron_asp.terms import text

    said = []
    for variable, asked in pins.items():
        having = [part for part in parts if variable in part.variables]
        values = dict.fromkeys(v for part in having for v in part.program.values[part.variables[variable]])
        if asked.isdisjoint(values):
            some = ", ".join(map(text, list(values)[:_SHOWN_VALUES])) + (", ..." if len(values) > _SHOWN_VALUES else "")
            said.append(f"{text(variable)} = {' or '.join(map(text, asked))} is none of its values: {some}")
    return said


def require_programs(task: Task, pins: Pins | None = None) -> None:
    """Makes sure that a task has a program, under pins.

    Raises:
        HeronError: a pinned variable does not exist.
        InfeasibleError: it has none.
    """
    require_variables(task.space, pins or {})
    if task.space.count(pins or {}) == 0:
        why = "; ".join(["no program", *foreign_values(task.space.parts, pins or {})])
        raise InfeasibleError(f"{task.operator.label} on {task.target.name}: {why}", "heron-asp explain says why")


def print_json(data: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


def large(number: int, exact: bool = True) -> str:
    """A count to read: `234,144`, or with its order of magnitude where it is long; an estimate says so."""
    if not exact:
        return f"about {number:.3e}"
    return f"{number:,}" if number < 10**9 else f"{number:,} ({number:.2e})"


def duration(seconds: float | None) -> str:
    """A time to read: `1.234 ms`; nothing where there is none."""
    if not seconds:
        return ""
    unit, factor = next((unit for unit in (("s", 1.0), ("ms", 1e3)) if seconds * unit[1] >= 1), ("us", 1e6))
    return f"{seconds * factor:.4g} {unit}"
