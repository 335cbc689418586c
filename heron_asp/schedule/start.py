"""Lets sums begin with what was made ahead instead of zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heron_asp.errors import InternalError


@dataclass(frozen=True)
class Start:
    """What sums begin with.

    Attributes:
        tensor: name of the parameter that holds it.
        places: for each dimension of that, which of the sums' own it is.
    """

    tensor: str
    places: tuple[int, ...]


def start_with(schedule: Any, block: str, start: Start) -> Any:
    """A schedule in which the sums of a block begin with the elements of a tensor.

    Args:
        schedule: of an operator; it is finished: what is changed is no primitive of TVM's.
        block: name of the block that adds up; it is decomposed, so that a block of its own clears the sums.
        start: what they begin with.

    Raises:
        InternalError: no block clears the sums, or there is no such parameter.
    """
    import tvm_ffi
    from tvm import IRModule, s_tir, tirx
    from tvm.ir import Range
    from tvm.s_tir import Schedule

    function = schedule.mod["main"]
    tensor = next((one for one in function.params if one.name == start.tensor), None)
    replaced = []

    def begun(clearing: Any) -> Any:
        if clearing.name_hint != f"{block}_init" or tensor is None:
            return clearing
        at = [clearing.iter_vars[place].var for place in start.places]
        body = tirx.BufferStore(clearing.body.buffer, tensor[tuple(at)], clearing.body.indices)
        read = tirx.BufferRegion(tensor, [Range.from_min_extent(one, 1) for one in at])
        replaced.append(clearing)
        return s_tir.SBlock(
            clearing.iter_vars, [read], clearing.writes, clearing.name_hint, body, clearing.init,
            clearing.alloc_buffers, clearing.match_buffers, clearing.annotations,
        )  # fmt: skip

    body = tvm_ffi.structural_map(function.body, [(s_tir.SBlock, begun)])
    if not replaced:
        raise InternalError(f"no block clears the sums of '{block}', or there is no parameter '{start.tensor}'")
    made = tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
    functions = {name.name_hint: one for name, one in schedule.mod.functions.items()}
    return Schedule(IRModule({**functions, "main": made}))
