"""Turns bf16 that is stored as u16, as operators are written, into TVM's own bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np

from heron_asp.dtypes import DTYPES

_STORED, _OWN = DTYPES["bf16"].storage, "bfloat16"


def with_bfloat16(function: Any) -> Any:
    """A PrimFunc with every tensor of u16 as one of bfloat16: no operator has integers of that type.

    Bits that were shifted up to become a float32 are a conversion then.
    """
    import tvm_ffi
    from tvm import tirx
    from tvm.ir.expr import Call, TensorLoad, Var
    from tvm.ir.prim import expr as prim

    buffers: dict[str, Any] = {}

    def own(buffer: Any) -> Any:
        if str(getattr(buffer, "dtype", "")) != _STORED or not hasattr(buffer, "shape"):
            return buffer
        name = str(buffer.name)
        if name not in buffers:
            buffers[name] = tirx.decl_buffer(buffer.shape, _OWN, name=name)
        return buffers[name]

    def load(one: Any) -> Any:
        return own(one.source)[list(one.indices)]

    def call(one: Any) -> Any:
        name = str(getattr(one.op, "name", ""))
        if name == "prim.if_then_else" and str(one.ty) == _STORED:
            condition, *choices = one.args
            return tirx.if_then_else(condition, *(_number(choice) for choice in choices))
        if name == "tirx.reinterpret" and isinstance(one.args[0], prim.LShift):
            return tirx.Cast("float32", one.args[0].a.value)
        return one

    def _number(value: Any) -> Any:
        """A constant, whose bits were given, as the number that they are."""
        if not isinstance(value, prim.IntImm):
            return value
        bits = np.array([int(value.value) << 16], np.uint32)
        return tirx.const(float(bits.view(np.float32)[0]), _OWN)

    visitors = [(Var, own), (TensorLoad, load), (Call, call)]
    body = tvm_ffi.structural_map(function.body, visitors)
    return tirx.PrimFunc([own(one) for one in function.params], body, function.ret_type, function.attrs)
