"""Executes the calls of a plan on a TVM schedule, and takes what is known ahead out of the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from heron_asp.analysis import BlockFacts
from heron_asp.errors import InternalError
from heron_asp.intrinsics import Intrinsic
from heron_asp.schedule.calls import Argument, Call, Form, IndexMap, IntrinsicName, Ref, Skip, Source
from heron_asp.schedule.express import express, named
from heron_asp.schedule.fragments import FragmentCall, register_fragment
from heron_asp.schedule.start import Start, start_with
from heron_asp.schedule.tensor_intrin import register
from heron_asp.schedule.zeros import skip_zeros

PREPARED = "meta_schedule.layout_rewrite_preproc"  # TVM's own mark of a block that packs what is known ahead
KERNEL = "main"
ALIGNMENT = 64  # bytes; what TVM's code assumes of every tensor


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
    return Schedule(express(block, dict(form.padded), form.innermost, dict(form.shifts), form.native), **options)


def execute(schedule: Any, call: Call, made: dict[str, Any], intrinsics: Mapping[str, Intrinsic]) -> Any:
    """Executes one call; `made` holds the blocks and loops by name, and takes those that the call makes.

    Returns:
        The schedule afterwards.
    """
    if call.primitive == "skip_zeros":
        block, *skips = call.arguments
        loops = [(made[skip.loop.name], skip.window) for skip in skips if isinstance(skip, Skip)]
        return skip_zeros(schedule, str(block), loops)
    if call.primitive == "start_with":
        block, start = call.arguments
        assert isinstance(start, Start), call
        return start_with(schedule, str(block), start)
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
        return register(intrinsics[argument.intrinsic], argument.seating, argument.stored)
    if isinstance(argument, FragmentCall):
        return register_fragment(intrinsics[argument.intrinsic], argument)
    return argument


def _index_function(index_map: IndexMap) -> Any:
    """TVM counts the parameters of an index map, so it gets a function with just so many."""
    return named([f"i{dim}" for dim in range(index_map.rank)], lambda *indices: index_map.apply(indices))


def split_prepared(module: Any) -> Program:
    """Moves blocks that are marked as prepared ahead into functions of their own; the kernel takes what they write.

    Does for a single kernel what TVM's SplitLayoutRewritePreproc does for a Relax module. What several blocks make of
    one operand lies in one tensor: of the operand's element type, each part beginning where a tensor may.
    """
    from tvm import IRModule, tirx

    kernel = module[KERNEL]
    root = kernel.body.block
    statements = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    prepared: dict[str, list[_Prepared]] = {}
    rest = []
    for statement in statements:
        block = _prepared_block(statement)
        if block is None:
            rest.append(statement)
        else:
            plain, made = block.reads[0].source, block.writes[0].source
            prepared.setdefault(str(plain.name), []).append(_Prepared(statement, made))
    if not rest:
        raise InternalError("everything was prepared ahead; no kernel is left")
    made = [one.tensor for several in prepared.values() for one in several]
    buffers = [buffer for buffer in root.alloc_buffers if not any(buffer.same_as(one) for one in made)]
    parameters = [one for one in kernel.params if not any(one.same_as(other) for other in made)]
    body = _root(root, kernel.body, rest, buffers)
    functions, packings = {}, []
    for tensor, several in prepared.items():
        at = next(i for i, parameter in enumerate(parameters) if parameter.name == tensor)
        plain, name = parameters[at], f"pack_{tensor}"
        packed, views = _together(plain, [one.tensor for one in several])
        packing = _over(views, packed, _root(root, kernel.body, [one.statement for one in several], []))
        functions[name] = tirx.PrimFunc([plain, packed], packing, kernel.ret_type, kernel.attrs).with_attr(
            "global_symbol", name
        )
        packings.append(Packing(tensor, name, _extents(packed), _extents(plain)))
        parameters[at] = packed
        body = _over(views, packed, body)
    functions[KERNEL] = tirx.PrimFunc(parameters, body, kernel.ret_type, kernel.attrs)
    return Program(IRModule(functions), tuple(packings))


@dataclass(frozen=True)
class _Prepared:
    """A statement that is executed ahead, and the tensor that it makes."""

    statement: Any
    tensor: Any


def _together(plain: Any, tensors: Sequence[Any]) -> tuple[Any, list[tuple[Any, Any]]]:
    """One tensor that holds several, and each of these with its view of it; one tensor by itself has none."""
    from tvm import tirx

    if len(tensors) == 1:
        return tensors[0], []
    end, views = 0, []  # in bytes
    for one in tensors:
        size = np.dtype(str(one.dtype)).itemsize
        view = tirx.decl_buffer(one.shape, one.dtype, name=one.name, elem_offset=end // size)
        views.append((one, view))
        end += -(-prod(_extents(one)) * size // ALIGNMENT) * ALIGNMENT
    shape = (end // np.dtype(str(plain.dtype)).itemsize,)
    return tirx.decl_buffer(shape, plain.dtype, name=f"{plain.name}_packed"), views


def _over(views: Sequence[tuple[Any, Any]], packed: Any, body: Any) -> Any:
    """A body that reads and writes the views of a tensor instead of tensors of their own."""
    import tvm_ffi
    from tvm import tirx

    if not views:
        return body

    def replace(variable: Any) -> Any:
        return next((view for one, view in views if variable.same_as(one)), variable)

    declared = [tirx.DeclBuffer(view, data=packed.data) for _, view in views]
    return tirx.SeqStmt([*declared, tvm_ffi.structural_map(body, [(tirx.Var, replace)])])


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
