"""A built program: compiled by TVM, with its constants packed, ready to be called."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.operators import Operator
from heron_asp.schedule.replay import KERNEL, Program
from heron_asp.target import Target

Array = npt.NDArray[Any]


def tvm_target(target: Target, threads: int) -> Any:
    """TVM's target; LLVM would take an unknown CPU for a generic one, so it is asked first.

    Raises:
        HeronError: LLVM does not know the CPU.
    """
    from tvm.target import Target as TvmTarget
    from tvm.target import codegen

    from heron_asp.errors import HeronError
    from heron_asp.resources import suggestion

    compiler = target.machine.compiler
    if not codegen.llvm_is_valid_cpu(compiler.mcpu, codegen.llvm_get_system_triple()):
        raise HeronError(
            f"{target.path}: compiler.mcpu = '{compiler.mcpu}': LLVM {codegen.llvm_version_major()} does not know it",
            suggestion(compiler.mcpu, map(str, codegen.llvm_get_cpu_archlist(TvmTarget({"kind": compiler.kind})))),
        )
    return TvmTarget({"kind": compiler.kind, "mcpu": compiler.mcpu, "num-cores": threads})


@dataclass(frozen=True)
class Built:
    """An executable program.

    Attributes:
        operator: what it computes.
        program: the scheduled module.
        executable: what TVM compiled.
    """

    operator: Operator
    program: Program
    executable: Any

    def assembly(self) -> str:
        """Machine code as text."""
        return str(self.executable.mod.inspect_source("asm"))

    def arguments(self, inputs: Mapping[str, Array]) -> list[Any]:
        """Tensors for a call: constants packed by the program's own functions, and a result filled with garbage."""
        import tvm

        packings = {packing.tensor: packing for packing in self.program.packings}
        made = []
        *taken, written = self.program.module[KERNEL].params  # the same memory, perhaps under other extents
        for spec, parameter in zip(self.operator.inputs, taken, strict=True):
            packing = packings.get(spec.name)
            seen = parameter if packing is None else self.program.module[packing.function].params[0]
            elements = np.ascontiguousarray(spec.dtype.stored(inputs[spec.name]))
            plain = tvm.runtime.tensor(elements.reshape([int(extent) for extent in seen.shape]))
            if packing is not None:
                packed = tvm.runtime.empty(packing.shape, spec.dtype.storage)
                self.executable[packing.function](plain, packed)
                made.append(packed)
            else:
                made.append(plain)
        result = self.operator.result
        garbage = np.frombuffer(b"\x5a" * (int(np.prod(result.shape)) * result.dtype.bytes), result.dtype.storage)
        made.append(tvm.runtime.tensor(garbage.reshape([int(extent) for extent in written.shape])))
        return made

    def run(self, inputs: Mapping[str, Array]) -> Array:
        """Calls the kernel once and returns the result."""
        arguments = self.arguments(inputs)
        self.executable[KERNEL](*arguments)
        array: Array = arguments[-1].numpy()
        result = self.operator.result
        return array.view(result.dtype.numpy).reshape(result.shape)

    def time(self, arguments: Iterable[Any], repeats: int, repeat_ms: int) -> list[float]:
        """Seconds of a call, one number a repetition of at least so many milliseconds."""
        import tvm

        evaluator = self.executable.mod.time_evaluator(
            KERNEL, tvm.cpu(0), number=1, repeat=repeats, min_repeat_ms=repeat_ms
        )
        return [float(seconds) for seconds in evaluator(*arguments).results]


def build(operator: Operator, program: Program, target: Target, threads: int) -> Built:
    """Compiles a scheduled program."""
    import tvm

    executable = tvm.compile(program.module, target=tvm_target(target, threads))
    executable[KERNEL]
    return Built(operator, program, executable)


def use_threads(threads: int) -> None:
    """Sets the size of TVM's thread pool; to be called in a process that has not run a parallel kernel.

    TVM takes half of an x86 machine's processors for hyperthreads and leaves them out; the environment variable is the
    only thing that it believes more.
    """
    import tvm

    os.environ["TVM_NUM_THREADS"] = str(threads)
    tvm.get_global_func("runtime.config_threadpool")(1, threads)


def lowered_hash(program: Program) -> str:
    """A hash of the kernel after lowering: equal for schedules that differ in names and loops of one step only."""
    import tvm_ffi
    from tvm import IRModule, s_tir, tirx
    from tvm.ir.transform import Sequential

    lower = Sequential(
        [
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.CompactBufferAllocation(),
            s_tir.transform.LowerMatchBuffer(),
            s_tir.transform.LowerOpaqueBlock(),
            tirx.transform.FlattenBuffer(),
            tirx.transform.StmtSimplify(),
            tirx.transform.RemoveNoOp(),
        ]
    )
    lowered = lower(IRModule({KERNEL: program.module[KERNEL]}))[KERNEL]
    return str(tvm_ffi.structural_hash(lowered, map_free_vars=True))  # a pragma names its loop's variable outside of it
