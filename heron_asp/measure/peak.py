"""The peak of an intrinsic: a kernel of independent accumulators in registers, made by the builder of all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from heron_asp.dtypes import DTYPES
from heron_asp.intrinsics import Intrinsic, IntrinsicOperand
from heron_asp.operators.expressions import widen
from heron_asp.schedule.replay import KERNEL
from heron_asp.schedule.tensor_intrin import register
from heron_asp.target import Target

# Of each kernel. Many are more than latency times throughput of any such instruction, and stay in registers with their
# operands; where an intrinsic is several instructions that contend for units, few of them may get on better.
ACCUMULATORS = (14, 2)
_STEPS = 100_000
_ROWS = 64  # of the first operand, taken in turn: in the nearest cache, and too many for the registers


@dataclass(frozen=True)
class PeakProgram:
    """A scheduled peak kernel.

    Attributes:
        module: the IRModule.
        operations: of one call.
        operands: storage type and shape of each argument.
        target: TVM's target.
    """

    module: Any
    operations: int
    operands: tuple[tuple[str, tuple[int, ...]], ...]
    target: Any

    def measure(self, repeats: int = 100) -> float:
        """Operations a second: the best of several repetitions."""
        import tvm

        executable = tvm.compile(self.module, target=self.target)
        tensors = [tvm.runtime.tensor(np.zeros(shape, storage)) for storage, shape in self.operands]
        executable[KERNEL](*tensors)
        evaluator = executable.mod.time_evaluator(KERNEL, tvm.cpu(0), number=1, repeat=repeats, min_repeat_ms=1)
        return float(self.operations / min(evaluator(*tensors).results))


def peak_program(intrinsic: Intrinsic, target: Target, threads: int, sums: int = ACCUMULATORS[0]) -> PeakProgram:
    """A kernel that executes an intrinsic on registers, but for one load a step.

    No two products are equal: of an intrinsic that multiplies and adds apart, LLVM would multiply once and for all.
    """
    from tvm import te
    from tvm.s_tir import Schedule

    from heron_asp.measure.kernel import tvm_target

    extents = intrinsic.extents
    shapes = [
        (many, *(extents[role] for role in operand.index))
        for many, operand in zip((_ROWS, sums), intrinsic.operands, strict=True)
    ]
    first, second = (
        te.placeholder(shape, DTYPES[operand.dtype].storage, name=name)
        for name, shape, operand in zip("ab", shapes, intrinsic.operands, strict=True)
    )
    accumulator = DTYPES[intrinsic.result.dtype]
    reduced = {
        axis.role: te.reduce_axis((0, axis.extent), name=axis.role) for axis in intrinsic.axes if axis.kind == "reduce"
    }
    step = te.reduce_axis((0, _STEPS), name="step")

    def element(tensor: Any, which: Any, operand: IntrinsicOperand, place: dict[str, Any]) -> Any:
        return widen(tensor[(which, *(place[role] for role in operand.index))], DTYPES[operand.dtype], accumulator)

    def compute(*indices: Any) -> Any:
        place = {**dict(zip(intrinsic.result.index, indices[2:], strict=True)), **reduced}
        row, panel = intrinsic.operands
        product = element(first, step % _ROWS, row, place) * element(second, indices[1], panel, place)
        return te.sum(product, axis=[step, *reduced.values()])

    shape = (threads, sums, *(extents[role] for role in intrinsic.result.index))
    # te.compute reads the number of indices off the function's signature
    compute_fixed = {3: lambda t, i, x: compute(t, i, x), 4: lambda t, i, x, y: compute(t, i, x, y)}[len(shape)]
    output = te.compute(shape, compute_fixed, name="c")
    schedule = Schedule(te.create_prim_func([first, second, output]))
    block = schedule.get_sblock("c")
    loops = schedule.get_loops(block)
    thread, accumulators, *rest = loops
    spatial, (steps, *inside) = rest[: len(intrinsic.result.index)], rest[len(intrinsic.result.index) :]
    schedule.reorder(thread, steps, accumulators, *spatial, *inside)
    if threads > 1:
        schedule.parallel(thread)
    schedule.decompose_reduction(block, steps)
    schedule.unroll(accumulators)
    if intrinsic.reached.ir is not None:
        schedule.annotate(steps, "pragma_import_llvm", intrinsic.reached.ir)
    schedule.tensorize(spatial[0], register(intrinsic, "straight"))
    storages = [DTYPES[operand.dtype].storage for operand in intrinsic.operands]
    operands = (*zip(storages, shapes, strict=True), (accumulator.storage, shape))
    operations = intrinsic.operations * sums * _STEPS * threads
    return PeakProgram(schedule.mod, operations, operands, tvm_target(target, threads))
