"""Operators as TVM compiles them without any schedule, and what tests feed them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.operators import Operator

Array = npt.NDArray[Any]


def compiled(operator: Operator) -> Any:
    """The plain loop nest."""
    import tvm

    return tvm.compile(operator.prim_func(), target={"kind": "llvm"})


def run(operator: Operator, inputs: dict[str, Array], executable: Any = None) -> Array:
    """The result of the plain loop nest; `executable` is from `compiled`."""
    import tvm

    arguments = [
        tvm.runtime.tensor(np.ascontiguousarray(spec.dtype.stored(inputs[spec.name])).reshape(spec.kernel_shape))
        for spec in operator.inputs
    ]
    result = operator.result
    garbage = np.full(result.kernel_shape, 0x5A, result.dtype.storage)
    arguments.append(tvm.runtime.tensor(garbage))
    (executable or compiled(operator))["main"](*arguments)
    return arguments[-1].numpy().view(result.dtype.numpy).reshape(result.shape)


def integers(operator: Operator, seed: int = 0) -> dict[str, Array]:
    """Integers of the whole range of each tensor's type."""
    generator = np.random.default_rng(seed)
    found = {}
    for spec in operator.inputs:
        low, high = spec.dtype.bounds or (-8, 8)
        found[spec.name] = generator.integers(low, high + 1, spec.shape).astype(spec.dtype.numpy)
    return found | operator.constants


def stages(operator: Operator) -> list[str]:
    """The names of the blocks, in order."""
    import re

    return re.findall(r'T\.sblock\("(\w+)"\)', operator.prim_func().script().replace('T.sblock("root")', ""))
