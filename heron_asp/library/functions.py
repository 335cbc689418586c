"""Compiles scheduled programs into plain C functions: pointers and leading dimensions in, 0 or an error out.

TVM's own calling convention passes tensors as descriptors, which take time to make and to check in every call, and
needs functions of TVM's to report errors. The functions made here are what that convention wraps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heron_asp.errors import InternalError
from heron_asp.measure.kernel import tvm_target
from heron_asp.schedule.replay import ALIGNMENT
from heron_asp.target import Target

_READY_TO_CALL = 1  # TVM's CallingConv::kCPackedFunc: MakePackedAPI leaves the function as it is
_CPU = 1  # DLPack's number of the device
_RUNTIME = {b"__TVMBackendParallelLaunch", b"__TVMBackendAllocWorkspace", b"__TVMBackendFreeWorkspace"}


def with_leading(function: Any, strided: Sequence[bool]) -> Any:
    """A scheduled PrimFunc with leading dimensions that are known at run time only.

    Only the parameters change, after scheduling: copies that the schedule made keep their compact layout.

    Args:
        function: a PrimFunc from a `Program`.
        strided: for each parameter, whether its rows may be any distance apart. The matrices of a larger tensor follow
            each other row by row.
    """
    import tvm_ffi
    from tvm import tirx

    views: list[tuple[Any, Any]] = []
    for parameter, is_strided in zip(function.params, strided, strict=True):
        if is_strided:
            strides = _strides([int(extent) for extent in parameter.shape], tirx.Var(f"ld{parameter.name}", "int32"))
            view = tirx.decl_buffer(parameter.shape, parameter.dtype, name=parameter.name, strides=strides)
            views.append((parameter, view))

    def replace(variable: Any) -> Any:
        return next((view for parameter, view in views if variable.same_as(parameter)), variable)

    body = tvm_ffi.structural_map(function.body, [(tirx.Var, replace)])
    return tirx.PrimFunc([replace(one) for one in function.params], body, function.ret_type, function.attrs)


def _strides(shape: list[int], leading: Any) -> list[Any]:
    strides: list[Any] = [leading, 1]
    for extent in reversed(shape[1:-1]):
        strides.insert(0, strides[0] * extent)
    return strides


def c_function(function: Any, name: str, strided: Sequence[bool]) -> Any:
    """A scheduled PrimFunc over buffers as one over pointers, for `compile_object`.

    Args:
        function: a PrimFunc from a `Program`.
        name: the symbol.
        strided: for each parameter, whether its leading dimension is a run-time argument. These are 32-bit integers,
            in elements, and follow the pointers in the order of the parameters.
    """
    from tvm import tirx
    from tvm.ir import PointerType, PrimType

    function = with_leading(function, strided)
    pointers = [tirx.Var(one.name, PointerType(PrimType(str(one.dtype)))) for one in function.params]
    leading = [one.ty.strides[-2] for one, is_strided in zip(function.params, strided, strict=True) if is_strided]
    views = [tirx.DeclBuffer(one, data=pointer) for one, pointer in zip(function.params, pointers, strict=True)]
    body = tirx.SeqStmt([*views, function.body])
    made = tirx.PrimFunc([*pointers, *leading], body, function.ret_type, function.attrs)
    return made.with_attr("global_symbol", name).with_attr("calling_conv", _READY_TO_CALL)


def copy_function(shape: Sequence[int], storage: str) -> Any:
    """A PrimFunc that copies a plain tensor into compact rows: packs what a kernel takes as it is."""
    from tvm import te

    plain = te.placeholder(tuple(shape), storage, name="plain")
    return te.create_prim_func([plain, te.compute(plain.shape, lambda *i: plain[i], name="packed")])


def compile_object(functions: Mapping[str, Any], target: Target, path: Path) -> None:
    """Compiles functions of `c_function` into one object file.

    They call the run time (threads, scratch memory) through the pointers named `__TVMBackend...`.

    Raises:
        InternalError: a function needs more of TVM than that.
    """
    from tvm import IRModule, tirx
    from tvm.tirx.build import codegen_build

    machine = tvm_target(target, 1)
    lower, finish, _ = tirx.get_tir_pipeline("default")
    module = tirx.transform.BindTarget(machine.with_host(machine))(IRModule(dict(functions)))
    module = lower(module)
    # What MakePackedAPI would have said; said before lowering, StorageRewrite would move allocations out of its reach.
    module = IRModule({name.name_hint: _on_cpu(function) for name, function in module.functions.items()})
    codegen_build(finish()(module), machine).write_to_file(str(path))
    more = set(re.findall(rb"__TVM\w+", path.read_bytes())) - _RUNTIME
    if more:
        raise InternalError(f"kernels need functions of TVM's run time that the library lacks: {sorted(more)}")


def _on_cpu(function: Any) -> Any:
    from tvm import tirx
    from tvm.ir import PointerType, PrimType
    from tvm.tirx.stmt import Return

    body = tirx.AttrStmt("default", "device_type", _CPU, function.body)
    body = tirx.AttrStmt("default", "device_id", 0, body)
    for parameter in function.params:
        if isinstance(parameter.ty, PointerType):
            body = tirx.AttrStmt(parameter, "storage_alignment", ALIGNMENT, body)
    # The return stands after the scope of all buffers: scratch memory is given back before it.
    body = tirx.SeqStmt([body, Return(tirx.const(0, "int32"))])
    return tirx.PrimFunc(function.params, body, PrimType("int32"), function.attrs)
