"""The backend for NVIDIA GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heron_asp.backends import LOCAL, View
from heron_asp.errors import HeronError, MissingError

if TYPE_CHECKING:
    from heron_asp.backends.cuda.device import GpuDevice
    from heron_asp.backends.cuda.library import Manifest
    from heron_asp.measure.result import Limits
    from heron_asp.space import Candidate
    from heron_asp.target import Target
    from heron_asp.task import Task

MODEL = "model"


_NEEDS = {"int8": 72, "bf16": 80}  # compute capability that a feature needs
_ASYNC = 80  # that asynchronous copies need


class Cuda:
    """See `heron_asp.backends.Backend`."""

    verifies = MODEL

    def check(self, target: Target) -> None:
        """The GPU says what to compile for, and how much shared memory a block can have."""
        compiler = target.machine.compiler
        found = re.fullmatch(r"sm_(\d{2,3})[af]?", compiler.mcpu) if compiler and compiler.kind == "cuda" else None
        if found is None:
            raise HeronError(f'{target.path}: [compiler]: kind = "cuda" and mcpu = "sm_.." are needed', "e.g. sm_80")
        _require_capability(target, int(found[1]))
        shared = next((memory.capacity for memory in target.machine.memories if memory.name == "shared"), None)
        if shared is None:
            raise HeronError(f"{target.path}: there is no memory 'shared'", "bytes that a block can have of it")
        total = target.machine.limits["shared_total"]
        if shared > total:
            raise HeronError(
                f"{target.path}: memory 'shared' has {shared} bytes, more than limits.shared_total = {total}",
                "a block has part of a multiprocessor's shared memory",
            )

    def here(self, target: Target) -> tuple[bool, str]:
        """A C++ compiler emulates, nvcc compiles, and a driver runs; without the last one times are modelled."""
        from heron_asp.backends.cuda.emulator.build import compiler
        from heron_asp.backends.cuda.nvcc import find_nvcc

        del target
        found = []
        for needed, what in ((compiler, "emulates with"), (find_nvcc, "compiles with")):
            try:
                found.append(f"{what} {needed()}")
            except MissingError as error:
                if needed is compiler:
                    return False, f"{error}: {error.hint}"
                found.append(f"compiles nothing: {error.hint}")
        try:
            require_driver()
            found.append("runs on this machine's GPU")
        except MissingError:
            found.append("no GPU here: --device model, or --device worker:HOST")
        return True, "; ".join(found)

    def clock(self, target: Target) -> None:
        """Time is measured, or modelled."""
        del target

    def bound(self, task: Task) -> None:
        """Not known."""
        del task

    def require_device(self, said: str) -> None:
        """A GPU of this machine or of another one, or the model of it."""
        kind, _, host = said.partition(":")
        reached = kind == "worker" and host and not host.startswith("-")  # which ssh would take for an option
        if said not in (LOCAL, MODEL) and not reached:
            raise HeronError(
                f"--device {said}: no such device",
                "local: a GPU of this machine; worker:HOST: of one that ssh reaches; model: no GPU at all; replay:RUN",
            )

    def device(self, task: Task, limits: Limits, said: str = LOCAL) -> GpuDevice:
        """See `require_device`; all of them compile and emulate first."""
        from heron_asp.backends.cuda.device import GpuDevice
        from heron_asp.backends.cuda.measured import Host, Local

        self.require_device(said)
        if said == MODEL:
            return GpuDevice(task, limits)
        if said == LOCAL:
            require_driver()
            return GpuDevice(task, limits, Local())
        return GpuDevice(task, limits, Host(said.partition(":")[2]))

    def show(self, task: Task, candidate: Candidate, view: View) -> str:
        """The schedule as Python that runs, or CUDA C++."""
        from heron_asp.backends.cuda.build import build
        from heron_asp.schedule.script import script_of

        if view is View.CODE:
            return build(task, candidate).source
        return script_of(task, candidate)

    def export(self, runs: Sequence[Path], out: Path, name: str, prefix: str) -> Manifest:
        """CUDA C++, machine code and a launcher in C."""
        from heron_asp.backends.cuda.library import export

        return export(runs, out, name, prefix)


def _require_capability(target: Target, capability: int) -> None:
    """Makes sure that what a target says it has is what code for its compute capability can use.

    Raises:
        HeronError: it says more. The numbers are those of the PTX ISA for wmma and cp.async.
    """
    machine = target.machine
    needs = {"matrix instructions": 70}
    needs |= {f"features = '{name}'": least for name, least in _NEEDS.items() if name in machine.features}
    needs |= {"limits.async_stages > 1": _ASYNC} if machine.limits["async_stages"] > 1 else {}
    for what, least in needs.items():
        if capability < least:
            raise HeronError(
                f"{target.path}: compiler.mcpu = 'sm_{capability}' is too old for {what}, which sm_{least} brought",
                "mcpu is the compute capability of the GPU that the file describes",
            )


def require_driver() -> None:
    """Makes sure that this machine has a driver of a GPU.

    Raises:
        MissingError: it has not.
    """
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise MissingError(
            "this machine has no CUDA driver (libcuda.so.1), so nothing can be timed on it",
            "--device model ranks programs by a model; --device worker:HOST times them on another machine",
        ) from None


BACKEND = Cuda()
