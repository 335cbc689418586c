"""Which programs go into a library: the fastest of each task, with packed layouts that agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from heron_asp.errors import HeronError
from heron_asp.library.functions import copy_function
from heron_asp.library.interface import Interface, Packed
from heron_asp.measure.kernel import lowered_hash
from heron_asp.operators import TensorSpec
from heron_asp.resources import counted
from heron_asp.schedule.replay import KERNEL, Program
from heron_asp.space import Candidate
from heron_asp.task import Task


@dataclass(frozen=True)
class Tuned:
    """A program that was found by tuning.

    Attributes:
        task: what it computes, and on what.
        candidate: the program.
        seconds: of one call, as measured.
        share_of_peak: useful operations as a share of the intrinsic's peak; None if there is none.
        run: the run directory; None if the program is from elsewhere.
        versions: the versions that it was tuned with.
    """

    task: Task
    candidate: Candidate
    seconds: float
    share_of_peak: float | None = None
    run: Path | None = None
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def origin(self) -> str:
        """Names it in a message."""
        where = f" ({self.run})" if self.run else ""
        return f"{self.task.operator.label} on {counted(self.task.threads, 'thread')}{where}"


@dataclass(frozen=True)
class Layout:
    """How a constant operand is packed for its kernels.

    Attributes:
        tensor: the plain operand.
        extents: the shape keys that the layout depends on.
        packed: extents of the packed tensor.
        function: the PrimFunc that packs.
        symbol: its name in the library.
    """

    tensor: TensorSpec
    extents: tuple[int, ...]
    packed: tuple[int, ...]
    function: Any
    symbol: str

    @property
    def bytes(self) -> int:
        """Bytes of the packed tensor."""
        return prod(self.packed) * self.tensor.dtype.bytes

    @property
    def room(self) -> int:
        """Bytes that the caller allocates: C's aligned_alloc wants a multiple of the alignment."""
        return -(-self.bytes // 64) * 64

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal layouts of equal operands."""
        from tvm import IRModule

        return lowered_hash(Program(IRModule({KERNEL: self.function}), ()))


@dataclass(frozen=True)
class Kernel:
    """A program on its way into the library.

    Attributes:
        tuned: where it is from.
        interface: the functions that its operator has.
        program: the scheduled program.
    """

    tuned: Tuned
    interface: Interface
    program: Program

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape, in the order of the operator's keys."""
        return tuple(self.tuned.task.operator.shape[key] for key in self.interface.kind.keys)

    @property
    def threads(self) -> int:
        """How many threads it was tuned for."""
        return self.tuned.task.threads

    @property
    def gops(self) -> float:
        """Billions of useful operations a second, as measured."""
        return self.tuned.task.operator.operations / self.tuned.seconds / 1e9

    @property
    def intrinsics(self) -> tuple[str, ...]:
        """Names of the intrinsics that it runs on; none for plain vector code."""
        return self.tuned.task.space[self.tuned.candidate.sketch].sketch.intrinsics

    @property
    def summary(self) -> str:
        """Shape, threads and speed in one line of the header."""
        shape = ", ".join(
            f"{key} = {extent}" for key, extent in zip(self.interface.kind.keys, self.extents, strict=True)
        )
        return f"{shape} on {counted(self.threads, 'thread')}: {self.gops:.3g} GOP/s"

    @property
    def symbol(self) -> str:
        """The name of the compiled function, as a profiler shows it."""
        keys = "_".join(f"{key}{extent}" for key, extent in zip(self.interface.kind.keys, self.extents, strict=True))
        return f"{self.interface.function}_{keys}_t{self.threads}"

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """The layout of each constant operand, by tensor name."""
        return {packed.argument.name: self._layout(packed) for packed in self.interface.packed}

    def _layout(self, packed: Packed) -> Layout:
        operator = self.tuned.task.operator
        tensor = next(spec for spec in operator.tensors if spec.name == packed.argument.name)
        extents = tuple(operator.shape[key] for key in packed.keys)
        keys = "_".join(f"{key}{extent}" for key, extent in zip(packed.keys, extents, strict=True))
        symbol = f"{packed.pack.name}_{keys}"
        for packing in self.program.packings:
            if packing.tensor == tensor.name:
                return Layout(tensor, extents, packing.shape, self.program.module[packing.function], symbol)
        return Layout(tensor, extents, tensor.shape, copy_function(tensor.shape, tensor.dtype.storage), symbol)


@dataclass(frozen=True)
class Dropped:
    """A program that a faster one of the same task replaces."""

    tuned: Tuned
    kept: Tuned


def choose(tuned: Sequence[Tuned], prefix: str = "") -> tuple[list[Kernel], list[Dropped]]:
    """The kernels of a library, sorted by function, shape and threads, and what was dropped.

    Raises:
        HeronError: nothing to export; programs for different targets; constant operands of equal extents that would
            have to be packed in different ways.
    """
    if not tuned:
        raise HeronError("there is no run to export", "name at least one run directory of heron-asp tune")
    _require_one_target(tuned)
    best: dict[tuple[str, int], Tuned] = {}
    for one in tuned:
        key = (one.task.operator.label, one.task.threads)
        if key not in best or one.seconds < best[key].seconds:
            best[key] = one
    dropped = [
        Dropped(one, kept) for one in tuned if (kept := best[(one.task.operator.label, one.task.threads)]) is not one
    ]
    kernels = [
        Kernel(one, Interface(one.task.operator.kind, one.task.operator.dtype, prefix), one.task.program(one.candidate))
        for one in best.values()
    ]
    kernels.sort(key=lambda kernel: (kernel.interface.function, kernel.extents, kernel.threads))
    _require_equal_layouts(kernels)
    return kernels, dropped


def _require_one_target(tuned: Sequence[Tuned]) -> None:
    first = tuned[0]
    for other in tuned[1:]:
        if other.task.target.digest != first.task.target.digest:
            raise HeronError(
                f"the programs are for different targets: {first.origin} for {first.task.target.name}, "
                f"{other.origin} for {other.task.target.name}",
                "export one library for each target",
            )


def _require_equal_layouts(kernels: Sequence[Kernel]) -> None:
    """Packed operands are shared by all kernels that take the same operand, whatever the other extents."""
    first: dict[str, Kernel] = {}
    for kernel in kernels:
        for name, layout in kernel.layouts.items():
            other = first.setdefault(layout.symbol, kernel)
            if other is kernel:
                continue
            before = other.layouts[name]
            if before.packed != layout.packed or before.fingerprint != layout.fingerprint:
                raise HeronError(
                    f"{name} would have to be packed in two ways: as {_extents(before)} for {other.tuned.origin}, "
                    f"sketch '{other.tuned.candidate.sketch}', and as {_extents(layout)} for {kernel.tuned.origin}, "
                    f"sketch '{kernel.tuned.candidate.sketch}'",
                    "kernels of one operand share its packing: tune one of the two again, or export two libraries",
                )


def _extents(layout: Layout) -> str:
    return " x ".join(map(str, layout.packed))
