"""An operator of one's own as a TIR PrimFunc: a 1x1 convolution from channels-first to channels-last, rectified.

heron-asp tune examples/pointwise_permuted.py:pointwise -t zen4
"""

from __future__ import annotations

import numpy as np
from tvm import te

from heron_asp.operators import from_prim_func

HEIGHT, WIDTH, INPUTS, OUTPUTS = 28, 28, 64, 96

x = te.placeholder((INPUTS, HEIGHT, WIDTH), "uint8", name="x")
weight = te.placeholder((OUTPUTS, INPUTS), "int8", name="weight")
channel = te.reduce_axis((0, INPUTS), name="ci")
total = te.compute(
    (HEIGHT, WIDTH, OUTPUTS),
    lambda row, column, co: te.sum(
        x[channel, row, column].astype("int32") * weight[co, channel].astype("int32"), axis=channel
    ),
    name="total",
)
y = te.compute(total.shape, lambda row, column, co: te.max(total[row, column, co], 0), name="y")

pointwise = from_prim_func(
    "pointwise",
    te.create_prim_func([x, weight, y]),
    constant={"weight"},
    reference=lambda x, weight: np.maximum(np.einsum("khw,ck->hwc", x, weight, optimize=True), 0),
)
