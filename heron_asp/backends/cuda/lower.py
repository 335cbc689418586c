"""From a scheduled operator to CUDA C++ with TVM, its launches read off the lowered TIR, and TVM's own check."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from heron_asp.backends.cuda.gathers import scalar_gathers
from heron_asp.backends.cuda.program import Buffer, Dim3, Kernel, Program, Use
from heron_asp.backends.cuda.sharing import share_memory
from heron_asp.errors import HeronError, InternalError
from heron_asp.schedule.replay import KERNEL

if TYPE_CHECKING:
    from heron_asp.target import Target

# There is no StorageRewrite below: TVM 0.27's reuses a dead f16 tile for an f32 one and then refuses what it has made.
_CONFIG = {"tirx.use_async_copy": True}
_VECTOR_BYTES = 16
_SHARED = ("shared", "shared.dyn")


def tvm_target(target: Target) -> Any:
    """TVM's name of a GPU."""
    import tvm

    machine = target.machine
    assert machine.compiler is not None
    said = {
        "kind": "cuda",
        "arch": machine.compiler.mcpu,
        "max_threads_per_block": machine.limits["threads"],
        "max_shared_memory_per_block": shared_bytes(target),
        "thread_warp_size": machine.limits["lanes"],
    }
    return tvm.target.Target(said, host="llvm")


def shared_bytes(target: Target) -> int:
    """Shared memory that a block can have, in bytes."""
    return next(memory.capacity for memory in target.machine.memories if memory.name == "shared")


def lowered(module: Any, target: Target, sizes: Mapping[str, int] | None) -> Any:
    """A scheduled module as TVM's passes leave it before host and device are split: all that its kernels take is known.

    Args:
        module: from `heron_asp.schedule.replay`.
        target: the GPU.
        sizes: bytes of each buffer in shared memory, see `share_memory`; None for those that TVM allocates.

    Raises:
        tvm.error.TVMError: TVM refuses the schedule.
    """
    import tvm
    from tvm import s_tir, tirx

    whole, scheduled = tirx.transform, s_tir.transform
    passes = [
        whole.BindTarget(tvm_target(target)),
        scheduled.CanonicalizeLoop(),
        scheduled.LowerInitBlock(),
        scheduled.PlanAndUpdateBufferAllocationLocation(),
        scheduled.ConvertBlocksToOpaque(),
        scheduled.LiftThreadBinding(),
        scheduled.ManifestSharedMemoryLocalStage(),
        scheduled.CompactBufferAllocation(),
        scheduled.LowerAutoCopy(),
        scheduled.UnifyThreadBinding(),
        scheduled.LowerMatchBuffer(),
        scheduled.StmtSimplify(),
        scheduled.InjectPermutedLayout(),
        scheduled.InjectSoftwarePipeline(),
        scheduled.TransformMmaBufferLayout(),
        scheduled.LowerOpaqueBlock(),
        whole.FlattenBuffer(),
        whole.BF16ComputeLegalize(),
        whole.NarrowDataType(32),
        scalar_gathers(),
        whole.VectorizeLoop(True),
        scheduled.InjectDoubleBuffer(),
        scheduled.LowerAsyncDMA(),
        scheduled.HoistIfThenElse(),
        whole.UnrollLoop(),
        scheduled.RenormalizeSplitPattern(),
        whole.StmtSimplify(),
        whole.RemoveNoOp(),
        scheduled.RewriteUnsafeSelect(),
        whole.CommonSubexprElim(),
        whole.VerifyMemory(),
        whole.AnnotateEntryFunc(),
        scheduled.ThreadSync("shared"),
        scheduled.ThreadSync("shared.dyn"),
        scheduled.InferFragment(),
        scheduled.InjectPTXAsyncCopy(),
        share_memory(sizes),
    ]
    with tvm.transform.PassContext(opt_level=3, config=_CONFIG):
        return tvm.transform.Sequential(passes)(module)


def _rest() -> Any:
    """What is left of TVM's pipeline: host and device apart, and their conventions."""
    import tvm
    from tvm import tirx
    from tvm.s_tir.pipeline import finalize_device_passes, finalize_host_passes

    passes = [
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
        tirx.transform.BF16StorageLegalize(),
    ]
    return tvm.transform.Sequential(passes), finalize_host_passes, finalize_device_passes


def refusal(module: Any, target: Target) -> str:
    """What TVM's check of GPU code has against a lowered module; empty if nothing."""
    from tvm.s_tir.analysis import verify_gpu_code

    limits = {
        "max_shared_memory_per_block": shared_bytes(target),
        "max_threads_per_block": target.machine.limits["threads"],
        "max_vector_bytes": _VECTOR_BYTES,
    }
    against = [
        f"{name} = {value}" for name, value in limits.items() if not verify_gpu_code(module[KERNEL], {name: value})
    ]
    return ", ".join(against)


_PIPELINE = "heron_asp.cuda"


def program_of(module: Any, target: Target) -> Program:
    """CUDA C++ of a module, with its launches.

    Args:
        module: from `lowered`.
        target: the GPU.

    Raises:
        HeronError: an operand has the name under which the result is written.
        tvm.error.TVMError: TVM makes no code of it.
    """
    import tvm
    from tvm.tirx.compilation_pipeline import register_tir_pipeline

    register_tir_pipeline(_PIPELINE, _rest)
    launches = _launches(module)
    with tvm.transform.PassContext(opt_level=3, config=_CONFIG):
        built = tvm.compile(module, target=tvm_target(target), tir_pipeline=_PIPELINE)
    source = _with_zeros(str(built.mod.imports[0].inspect_source()))
    signatures = _signatures(source)
    if len(signatures) != len(launches.kernels):
        raise InternalError(f"{len(launches.kernels)} kernels were lowered, {len(signatures)} are in the source")
    parameters = [(str(one.name), str(one.dtype), tuple(map(int, one.shape))) for one in module[KERNEL].params]
    twice = [name for at, (name, *_) in enumerate(parameters) if name in {other for other, *_ in parameters[:at]}]
    if twice:
        raise HeronError(f"an operand has the name under which the result is written, {twice[0]}", "rename the operand")
    buffers = {name: Buffer(name, storage, shape, Use.INPUT) for name, storage, shape in parameters[:-1]}
    last, storage, shape = parameters[-1]
    buffers[last] = Buffer(last, storage, shape, Use.OUTPUT)
    kernels = []
    for (name, arguments), launch in zip(signatures, launches.kernels, strict=True):
        own = tuple(_named(argument, [*buffers, *launches.scratch]) for argument in arguments)
        for argument in own:
            if argument not in buffers:
                buffers[argument] = launches.scratch[argument]
        grid, block = (launch.extent(f"{what}Idx") for what in ("block", "thread"))
        kernels.append(Kernel(name, grid, block, launch.dynamic, launch.static, own))
    return Program(source, tuple(kernels), tuple(buffers.values()))


def _with_zeros(source: str) -> str:
    """A source whose vectors of 8 or 16 zero bytes are made of words.

    TVM 0.27 keeps such vectors in an `int2` or `int4`, and makes padding of as many bytes, which nothing takes.
    """
    zeros = re.compile(r"make_int([24])\((?:\(signed char\)0(?:, |(?=\))))+\)")
    return zeros.sub(lambda found: f"make_int{found[1]}({', '.join('0' * int(found[1]))})", source)


def _named(argument: str, known: list[str]) -> str:
    """The buffer that a kernel's parameter points to: TVM adds `_ptr` to the names of arguments."""
    found = [name for name in (argument.removesuffix("_ptr"), argument) if name in known]
    if not found:
        raise InternalError(f"a kernel takes {argument}, which is none of {', '.join(known)}")
    return found[0]


def _signatures(source: str) -> list[tuple[str, list[str]]]:
    """The kernels of a source in their order, each with the names of its parameters."""
    found = {}
    for name, parameters in re.findall(
        r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(([^)]*)\)', source
    ):
        found[name] = [one.split()[-1].lstrip("*") for one in parameters.split(",")]
    return sorted(found.items(), key=lambda kernel: (len(kernel[0]), kernel[0]))


@dataclass
class _Launch:
    threads: dict[str, int] = field(default_factory=dict)
    static: int = 0
    dynamic: int = 0

    def extent(self, what: str) -> Dim3:
        x, y, z = (self.threads.get(f"{what}.{axis}", 1) for axis in "xyz")
        return x, y, z


@dataclass
class _Launches:
    kernels: list[_Launch]
    scratch: Mapping[str, Buffer]


def _launches(module: Any) -> _Launches:
    """The kernels of a lowered function, in their order, and what lies in global memory between them."""
    import tvm_ffi
    from tvm import tirx

    kernels: list[_Launch] = []
    scratch: dict[str, Buffer] = {}

    def visit(statement: Any) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for one in statement.seq:
                visit(one)
        elif isinstance(statement, tirx.AllocBuffer):
            scratch[str(statement.buffer.name)] = _scratch(statement.buffer)
        elif isinstance(statement, tirx.AttrStmt) and statement.attr_key == "thread_extent":
            kernels.append(_kernel(statement))
        elif isinstance(statement, tirx.DeclBuffer):
            pass  # another view of what is there
        elif hasattr(statement, "body"):
            visit(statement.body)
        else:
            raise InternalError(f"the lowered function has a statement outside of its kernels: {statement}")

    def _kernel(statement: Any) -> _Launch:
        launch = _Launch()

        def collect(node: Any) -> None:
            if isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent":
                launch.threads[str(node.node.thread_tag)] = int(node.value)
            elif isinstance(node, tirx.AllocBuffer) and str(node.buffer.scope()) in _SHARED:
                if str(node.buffer.scope()) == "shared.dyn":
                    launch.dynamic += _nbytes(node.buffer)
                else:
                    launch.static += _nbytes(node.buffer)

        tvm_ffi.structural_walk(statement, [(tirx.AttrStmt, collect), (tirx.AllocBuffer, collect)])
        return launch

    visit(module[KERNEL].body)
    return _Launches(kernels, scratch)


def _scratch(buffer: Any) -> Buffer:
    return Buffer(str(buffer.name), str(buffer.dtype), tuple(map(int, buffer.shape)), Use.SCRATCH)


def _nbytes(buffer: Any) -> int:
    import tvm

    dtype = tvm.DataType(str(buffer.dtype))
    return prod(map(int, buffer.shape)) * ((int(dtype.bits) * int(dtype.lanes) + 7) // 8)
