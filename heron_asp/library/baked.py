"""Operands with fixed contents, packed when the library is made: they are constant data of it, shared by processes.

So a call does not take them, nothing is computed when the library is loaded, and no thread can see them half made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heron_asp.child import Report, run_in_child
from heron_asp.errors import InternalError
from heron_asp.library.choice import Kernel, Layout
from heron_asp.library.words import identifier

_SECONDS = 120.0  # to compile and run a function that packs


@dataclass(frozen=True)
class Baked:
    """A packed operand.

    Attributes:
        data: its bytes.
        symbol: its name in the library; equal operands of a function have the same.
    """

    data: bytes
    symbol: str


def bake(kernels: Sequence[Kernel]) -> dict[str, dict[str, Baked]]:
    """The packed operands with fixed contents, by the kernel's symbol and the tensor's name.

    Raises:
        InternalError: a function that packs does not compile or run.
    """
    wanted = [(kernel, name, layout) for kernel in kernels for name, layout in kernel.inside.items()]

    def work(report: Report) -> None:
        for kernel, name, layout in wanted:
            report(layout.symbol, _packed(layout, kernel.operator.constants[name]))

    outcome = run_in_child(work, [_SECONDS])
    found: dict[str, dict[str, Baked]] = {kernel.symbol: {} for kernel in kernels}
    for kernel, name, layout in wanted:
        data = outcome.value(layout.symbol)
        if data is None:
            how = f"signal {outcome.signal}: {outcome.stderr}"
            raise InternalError(f"{layout.symbol}: cannot be packed: {outcome.value('error') or how}")
        digest = hashlib.sha256(data).hexdigest()[:12]
        found[kernel.symbol][name] = Baked(data, f"{kernel.interface.function}_{identifier(name)}_{digest}")
    return found


def _packed(layout: Layout, contents: Any) -> bytes:
    """Packs on this machine, whatever the target: packing only moves elements, or adds up integers."""
    import numpy as np
    import tvm

    function = layout.function
    module = tvm.IRModule({"pack": function.with_attr("global_symbol", "pack")})
    executable = tvm.compile(module, target={"kind": "llvm"})
    plain = np.ascontiguousarray(layout.tensor.dtype.stored(contents))
    packed = tvm.runtime.empty(layout.packed, layout.tensor.dtype.storage)
    executable["pack"](tvm.runtime.tensor(plain.reshape([int(extent) for extent in function.params[0].shape])), packed)
    return bytes(packed.numpy().tobytes())
