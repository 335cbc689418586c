"""Lays out dynamic shared memory: buffers whose times do not overlap have the same bytes.

TVM's own pass shares bytes by the sizes of buffers, within a factor of 16 (MergeSharedMemoryAllocations), so that a
kernel may take more than its largest phase. Here a kernel takes just that, which is what the rules count. Barriers
stand between the phases already: TVM's ThreadSync takes all dynamic shared memory for one buffer.

Where threads share a buffer unevenly, TVM allocates what the last of them would touch if it were not kept from it; the
buffer itself is as large as the rules say. That nothing lies beyond is what the emulator shows, with guards around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from heron_asp.errors import InternalError

SCOPE = "shared.dyn"
_ALIGNMENT = 32  # bytes; what loads of fragments ask for (CUDA C++ Programming Guide, Warp Matrix Functions)


@dataclass
class _Placed:
    """A buffer, its size in bytes, the first and the last statement that uses it, and where it lies."""

    buffer: Any
    nbytes: int
    first: int
    last: int
    offset: int = 0


def share_memory(sizes: Mapping[str, int] | None) -> Any:
    """The pass: each kernel has one dynamic buffer afterwards, of which the others are views.

    Args:
        sizes: bytes of each buffer, by its name without the scope; None: as many as TVM allocates.
    """
    from tvm import tirx
    from tvm.tirx.transform import prim_func_pass

    def transform(function: Any, _module: Any, _context: Any) -> Any:
        body = _mapped(function.body, sizes)
        return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)

    return prim_func_pass(transform, opt_level=0, name="heron_asp.ShareMemory")


def _mapped(body: Any, sizes: Mapping[str, int] | None) -> Any:
    """The statement with the dynamic shared memory of each kernel laid out."""
    import tvm_ffi
    from tvm import tirx

    def kernel(statement: Any) -> Any:
        if not _binds(statement) or _binds(statement.body):  # the innermost binding surrounds the kernel
            return statement
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, _laid_out(statement.body, sizes))

    return tvm_ffi.structural_map(body, [(tirx.AttrStmt, kernel)])


def _binds(statement: Any) -> bool:
    from tvm import tirx

    return isinstance(statement, tirx.AttrStmt) and statement.attr_key == "thread_extent"


def _allocates(statement: Any) -> bool:
    from tvm import tirx

    return isinstance(statement, tirx.AllocBuffer) and str(statement.buffer.scope()) == SCOPE


def _laid_out(body: Any, sizes: Mapping[str, int] | None) -> Any:
    import tvm_ffi
    from tvm import tirx

    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    buffers: list[Any] = []
    tvm_ffi.structural_walk(
        body, [(tirx.AllocBuffer, lambda one: buffers.append(one.buffer) if _allocates(one) else None)]
    )
    if not buffers:
        return body
    used = [_used(one) for one in statements]
    placed: list[_Placed] = []
    for buffer in buffers:
        at = [number for number, names in enumerate(used) if str(buffer.name) in names]
        placed.append(_Placed(buffer, _size(buffer, sizes), min(at, default=0), max(at, default=0)))
    placed.sort(key=lambda one: one.first)
    for number, one in enumerate(placed):
        beside = [other for other in placed[:number] if other.last >= one.first]
        one.offset = max((other.offset + other.nbytes for other in beside), default=0)
    whole = tirx.decl_buffer((max(one.offset + one.nbytes for one in placed),), "uint8", name="shared", scope=SCOPE)
    offsets = {str(one.buffer.name): one.offset // _bytes(one.buffer) for one in placed}
    views = [tirx.DeclBuffer(one.buffer, data=whole.data) for one in placed]
    rest = [_shifted(one, offsets) for one in statements if not _allocates(one)]
    return tirx.SeqStmt([tirx.AllocBuffer(whole), *views, *rest])


def _size(buffer: Any, sizes: Mapping[str, int] | None) -> int:
    name = str(buffer.name).removesuffix(f"_{SCOPE}")
    allocated = prod(map(int, buffer.shape)) * _bytes(buffer)
    size = allocated if sizes is None else sizes.get(name)
    if size is None or size > allocated:
        counted = "none" if size is None else size
        raise InternalError(f"{name}: TVM allocates {allocated} bytes of shared memory, the rules count {counted}")
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _used(statement: Any) -> set[str]:
    """The names of the buffers that a statement reads or writes."""
    import tvm_ffi
    from tvm.ir.expr import Var

    found: set[str] = set()
    if not _allocates(statement):
        tvm_ffi.structural_walk(statement, [(Var, lambda variable: found.add(str(variable.name)))])
    return found


def _shifted(statement: Any, offsets: Mapping[str, int]) -> Any:
    """A statement in which each buffer begins so many elements further on."""
    import tvm_ffi
    from tvm import tirx
    from tvm.ir.expr import Call, TensorLoad

    def offset(data: Any) -> int:
        """Of a buffer, or of its address."""
        owner = data.args[0] if isinstance(data, Call) and len(data.args) == 1 else data
        return offsets.get(str(getattr(owner, "name", "")), 0)

    def load(one: Any) -> Any:
        by = offset(one.source)
        return one.source[[index + by for index in one.indices]] if by else one

    def store(one: Any) -> Any:
        by = offset(one.buffer)
        return tirx.BufferStore(one.buffer, one.value, [index + by for index in one.indices]) if by else one

    def call(one: Any) -> Any:
        name = str(getattr(one.op, "name", ""))
        arguments = list(one.args)
        places = {"tirx.tvm_access_ptr": (1,), "tirx.s_tir.cp_async_raw": (0, 2)}.get(name, ())
        for place in places:
            arguments[place + 1] = arguments[place + 1] + offset(arguments[place])
        others = [one for at, one in enumerate(arguments) if at not in places]
        if any(isinstance(other, Call) and offset(other) for other in others):
            raise InternalError(f"{name} takes the address of a buffer in shared memory, which was not expected")
        return (
            Call(one.op, arguments, one.attrs, ret_ty=one.ty)
            if any(map(offset, (arguments[at] for at in places)))
            else one
        )

    def sequence(one: Any) -> Any:
        kept = [inner for inner in one.seq if not _allocates(inner)]
        return one if len(kept) == len(one.seq) else tirx.SeqStmt(kept) if len(kept) > 1 else kept[0]

    visitors = [(TensorLoad, load), (tirx.BufferStore, store), (Call, call), (tirx.SeqStmt, sequence)]
    return tvm_ffi.structural_map(statement, visitors)


def _bytes(buffer: Any) -> int:
    import tvm

    return int(tvm.DataType(str(buffer.dtype)).bits) // 8
