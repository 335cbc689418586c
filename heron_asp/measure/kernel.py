"""A built program: compiled by TVM, with its constants packed, ready to be called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.measure.stopwatch import Stopwatch
from heron_asp.operators import Operator, TensorSpec
from heron_asp.schedule.replay import KERNEL, Program
from heron_asp.target import Target

Array = npt.NDArray[Any]


def tvm_target(target: Target, threads: int) -> Any:
    """TVM's target; LLVM would take an unknown CPU for a generic one, so it is asked first.

    Raises:
        HeronError: LLVM does not know the CPU, or none is named.
    """
    from tvm.target import Target as TvmTarget
    from tvm.target import codegen

    from heron_asp.errors import HeronError
    from heron_asp.resources import suggestion

    compiler = target.machine.compiler
    if compiler is None:
        raise HeronError(f"{target.path}: key 'compiler' is missing", 'mcpu = "...": LLVM\'s name of the CPU')
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
        threads: that a call uses.
    """

    operator: Operator
    program: Program
    executable: Any
    threads: int

    def assembly(self) -> str:
        """Machine code as text."""
        return str(self.executable.mod.inspect_source("asm"))

    def arguments(self, inputs: Mapping[str, Array]) -> list[Any]:
        """Tensors for a call: constants packed by the program's own functions, and a result filled with garbage."""
        packed = self.packed(inputs)
        shapes = self.program.arguments[:-1]
        tensors = [
            packed.get(spec.name) or plain_tensor(spec, inputs[spec.name], shape)
            for spec, shape in zip(self.operator.inputs, shapes, strict=True)
        ]
        return [*tensors, self.garbage()]

    def packed(self, inputs: Mapping[str, Array]) -> dict[str, Any]:
        """The constants as the kernel takes them, by name."""
        import tvm

        specs = {spec.name: spec for spec in self.operator.inputs}
        made = {}
        for packing in self.program.packings:
            spec = specs[packing.tensor]
            made[spec.name] = tvm.runtime.empty(packing.shape, spec.dtype.storage)
            self.executable[packing.function](plain_tensor(spec, inputs[spec.name], packing.plain), made[spec.name])
        return made

    def garbage(self) -> Any:
        """A tensor for the result, filled with what no kernel writes by chance."""
        import tvm

        return spoilt(tvm.runtime.empty(self.program.arguments[-1], self.operator.result.dtype.storage))

    def run(self, inputs: Mapping[str, Array]) -> Array:
        """Calls the kernel once and returns the result."""
        return self.call(self.arguments(inputs))

    def call(self, arguments: Sequence[Any]) -> Array:
        """Calls the kernel once with tensors and returns the result: the memory of the last of them, not a copy."""
        self.executable[KERNEL](*arguments)
        array: Array = np.from_dlpack(arguments[-1])
        result = self.operator.result
        return array.view(result.dtype.numpy).reshape(result.shape)

    def time(self, arguments: Sequence[Any], repeats: int, repeat_ms: float) -> list[float]:
        """Seconds of a call, one number a repetition of about so many milliseconds."""
        stopwatch = Stopwatch(self.executable, arguments, self.threads, repeat_ms)
        return [stopwatch.seconds() for _ in range(repeats)]


def spoilt(tensor: Any) -> Any:
    """A tensor, filled with what no kernel writes by chance."""
    np.from_dlpack(tensor).view(np.uint8).fill(0x5A)
    return tensor


def plain_tensor(spec: TensorSpec, values: Array, shape: tuple[int, ...]) -> Any:
    """An operand as a kernel takes it that does not pack it: the same memory, perhaps under other extents."""
    import tvm

    return tvm.runtime.tensor(np.ascontiguousarray(spec.dtype.stored(values)).reshape(shape))


def build(operator: Operator, program: Program, target: Target, threads: int) -> Built:
    """Compiles a scheduled program."""
    import tvm

    executable = tvm.compile(program.module, target=tvm_target(target, threads))
    executable[KERNEL]  # TVM generates the code at the first access
    return Built(operator, program, executable, threads)


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
