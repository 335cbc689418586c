"""Executes the calls of a plan on a TVM schedule, and takes what is known ahead out of the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heron_asp.analysis import BlockFacts
from heron_asp.errors import InternalError
from heron_asp.intrinsics import Intrinsic
from heron_asp.schedule.express import express, named
from heron_asp.schedule.plan import Argument, Call, Form, IndexMap, IntrinsicName, Ref, Skip, Source
from heron_asp.schedule.tensor_intrin import register
from heron_asp.schedule.zeros import skip_zeros

PREPARED = "meta_schedule.layout_rewrite_preproc"  # TVM's own mark of a block that packs what is known ahead
KERNEL = "main"


@dataclass(frozen=True)
class Packing:
    """A function that prepares a constant operand.

    Attributes:
        tensor: the operand.
        function: name of the function in the module; it takes the plain tensor and writes the packed one.
        shape: extents of the packed tensor.
        plain: extents under which the function takes the plain one.
    """

    tensor: str
    function: str
    shape: tuple[int, ...]
    plain: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A scheduled operator.

    Attributes:
        module: an IRModule with the kernel `main` and a function for each packing.
        packings: what the kernel expects to be packed.
    """

    module: Any
    packings: tuple[Packing, ...]

    @property
    def arguments(self) -> list[tuple[int, ...]]:
        """Extents under which the kernel takes its arguments."""
        return [_extents(parameter) for parameter in self.module[KERNEL].params]


def replay(block: BlockFacts, calls: Sequence[Call], intrinsics: Mapping[str, Intrinsic]) -> Program:
    """Schedules an operator.

    Args:
        block: the operator.
        calls: from `plan`.
        intrinsics: by name.
    """
    schedule = begin(block, calls[0])
    made: dict[str, Any] = {}
    for call in calls[1:]:
        schedule = execute(schedule, call, made, intrinsics)
    return split_prepared(schedule.mod)


def begin(block: BlockFacts, call: Call, **options: Any) -> Any:
    """A schedule of an operator over padded extents: what the first call of a plan, `express`, says."""
    from tvm.s_tir import Schedule

    (form,) = call.arguments
    assert isinstance(form, Form), call
    return Schedule(express(block, dict(form.padded), form.innermost), **options)


def execute(schedule: Any, call: Call, made: dict[str, Any], intrinsics: Mapping[str, Intrinsic]) -> Any:
    """Executes one call; `made` holds the blocks and loops by name, and takes those that the call makes.

    Returns:
        The schedule afterwards.
    """
    if call.primitive == "skip_zeros":
        block, *skips = call.arguments
        loops = [(made[skip.loop.name], skip.window) for skip in skips if isinstance(skip, Skip)]
        return skip_zeros(schedule, str(block), loops)
    arguments = [_value(argument, made, intrinsics) for argument in call.arguments]
    options = {name: _value(value, made, intrinsics) for name, value in call.options}
    result = getattr(schedule, call.primitive)(*arguments, **options)
    if call.several and call.results:
        made.update(zip(call.results, list(result)[-call.take :], strict=True))
    elif call.results:
        made[call.results[0]] = result
    return schedule


def _value(argument: Argument, made: Mapping[str, Any], intrinsics: Mapping[str, Intrinsic]) -> Any:
    if isinstance(argument, Ref):
        return made[argument.name]
    if isinstance(argument, tuple):
        values = [_value(one, made, intrinsics) for one in argument]
        return tuple(values) if isinstance(values[0], str) else values
    if isinstance(argument, IndexMap):
        return _index_function(argument)
    if isinstance(argument, Source):
        return intrinsics[argument.intrinsic].reached.ir
    if isinstance(argument, IntrinsicName):
        return register(intrinsics[argument.intrinsic], argument.seating)
    return argument


def _index_function(index_map: IndexMap) -> Any:
    """TVM counts the parameters of an index map, so it gets a function with just so many."""
    return named([f"i{dim}" for dim in range(index_map.rank)], lambda *indices: index_map.apply(indices))


def split_prepared(module: Any) -> Program:
    """Moves blocks that are marked as prepared ahead into functions of their own; the kernel takes what they write.

    Does for a single kernel what TVM's SplitLayoutRewritePreproc does for a Relax module.
    """
    from tvm import IRModule, tirx

    kernel = module[KERNEL]
    root = kernel.body.block
    statements = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    parameters, buffers = list(kernel.params), list(root.alloc_buffers)
    rest, functions, packings = [], {}, []
    for statement in statements:
        block = _prepared_block(statement)
        if block is None:
            rest.append(statement)
            continue
        plain, packed = block.reads[0].source, block.writes[0].source
        at = next(i for i, parameter in enumerate(parameters) if parameter.name == plain.name)
        name = f"pack_{parameters[at].name}"
        body = _root(root, kernel.body, [statement], [])
        functions[name] = tirx.PrimFunc([parameters[at], packed], body, kernel.ret_type, kernel.attrs).with_attr(
            "global_symbol", name
        )
        packings.append(Packing(parameters[at].name, name, _extents(packed), _extents(parameters[at])))
        parameters[at] = packed
        buffers = [buffer for buffer in buffers if not buffer.same_as(packed)]
    if not rest:
        raise InternalError("everything was prepared ahead; no kernel is left")
    body = _root(root, kernel.body, rest, buffers)
    functions[KERNEL] = tirx.PrimFunc(parameters, body, kernel.ret_type, kernel.attrs)
    return Program(IRModule(functions), tuple(packings))


def _extents(buffer: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in buffer.shape)


def _root(root: Any, realize: Any, statements: list[Any], buffers: list[Any]) -> Any:
    from tvm import s_tir, tirx

    body = tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]
    block = s_tir.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, body, root.init, buffers, root.match_buffers, {}
    )
    return s_tir.SBlockRealize(realize.iter_values, realize.predicate, block)


def _prepared_block(statement: Any) -> Any:
    from tvm import s_tir, tirx

    while isinstance(statement, tirx.For):
        statement = statement.body
    if isinstance(statement, s_tir.SBlockRealize) and PREPARED in statement.block.annotations:
        return statement.block
    return None
