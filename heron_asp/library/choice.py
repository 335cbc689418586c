"""Which programs go into a library: the fastest of each task, with packed layouts that agree."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

from heron_asp.errors import HeronError
from heron_asp.library.fields import Field
from heron_asp.library.functions import copy_function
from heron_asp.library.interface import Interface
from heron_asp.library.prototype import folded
from heron_asp.measure.kernel import lowered_hash
from heron_asp.operators import Operator, TensorSpec
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
        extents: the values of the fields that the layout depends on.
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

    @property
    def span(self) -> tuple[int, int]:
        """Rows of the plain tensor, and elements of a row."""
        return span(self.tensor)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal layouts of equal operands."""
        from tvm import IRModule

        return lowered_hash(Program(IRModule({KERNEL: self.function}), ()))


def span(tensor: TensorSpec) -> tuple[int, int]:
    """Rows of a tensor, of all its matrices together, and elements of a row."""
    return prod(tensor.shape[:-1]), prod(tensor.shape[-1:])


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
    def operator(self) -> Operator:
        """What it computes."""
        return self.tuned.task.operator

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape, in the order of the interface's fields."""
        return tuple(self.operator.shape[field.key] for field in self.interface.fields)

    @property
    def given(self) -> dict[str, int]:
        """The shape as a caller gives it, by the names of the fields: without what is as by default."""
        return {field.name: value for field, value in self.interface.given(self.operator.shape)}

    @property
    def threads(self) -> int:
        """How many threads it was tuned for."""
        return self.tuned.task.threads

    @property
    def gops(self) -> float:
        """Billions of useful operations a second, as measured."""
        return self.operator.operations / self.tuned.seconds / 1e9

    @property
    def intrinsics(self) -> tuple[str, ...]:
        """Names of the intrinsics that it runs on; none for plain vector code."""
        return self.tuned.task.space[self.tuned.candidate.sketch].sketch.intrinsics

    @property
    def summary(self) -> str:
        """Shape, threads and speed for the header; a struct as C initialises it."""
        speed = f"on {counted(self.threads, 'thread')}: {self.gops:.3g} GOP/s"
        more = ", ".join(f"{name} = {value}" for name, value in self.further_extents.items())
        speed += f"; {more}" if more else ""
        shape = tuple(f"{name} = {value}" for name, value in self.given.items())
        if self.interface.structs:
            fields = folded(" *   {", tuple(f".{part}" for part in shape), "}", " *    ")
            return f"{fields}\n *       {speed}"
        return f" *   {' '.join([', '.join(shape), speed]).strip()}"

    @property
    def further_extents(self) -> dict[str, int]:
        """Extents of tensors that are no fields, by the names that the header gives them."""
        named = {extent for argument in self.interface.passed for extent in argument.extents}
        fields = {field.key for field in self.interface.fields}
        return {name: value for name, value in self.operator.extents.items() if name in named - fields}

    @property
    def symbol(self) -> str:
        """The name of the compiled function, as a profiler shows it."""
        return "_".join([self.interface.function, *glued(self.given), f"t{self.threads}"])

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Rows, and elements of a row, of each tensor that has a leading dimension in a call."""
        tensors = {spec.name: spec for spec in self.operator.tensors}
        return tuple(span(tensors[argument.name]) for argument in self.interface.strided)

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """The layout of each operand that callers pack, by tensor name."""
        return {
            packed.argument.name: self._layout(packed.argument.name, packed.pack.name, packed.fields)
            for packed in self.interface.packed
        }

    @cached_property
    def inside(self) -> dict[str, Layout]:
        """The layout of each operand that the library packs itself, by tensor name."""
        return {
            argument.name: self._layout(argument.name, f"{self.symbol}_{argument.variable}", ())
            for argument in self.interface.inside
        }

    def _layout(self, name: str, symbol: str, fields: Sequence[Field]) -> Layout:
        tensor = next(spec for spec in self.operator.tensors if spec.name == name)
        values = [(field, self.operator.shape[field.key]) for field in fields]
        shown = {field.name: value for field, value in values if not field.means(value)}
        symbol = "_".join([symbol, *(glued(shown) or ["any"])])
        extents = tuple(value for _, value in values)
        for packing in self.program.packings:
            if packing.tensor == name:
                return Layout(tensor, extents, packing.shape, self.program.module[packing.function], symbol)
        return Layout(tensor, extents, tensor.shape, copy_function(tensor.shape, tensor.dtype.storage), symbol)


def glued(shape: dict[str, int]) -> list[str]:
    """A shape in an identifier: `m64`, `n64`, ..."""
    return [f"{name}{value}" for name, value in shape.items()]


@dataclass(frozen=True)
class Dropped:
    """A program that a faster one of the same task replaces."""

    tuned: Tuned
    kept: Tuned


def choose(tuned: Sequence[Tuned], prefix: str = "") -> tuple[list[Kernel], list[Dropped]]:
    """The kernels of a library, sorted by function, shape and threads, and what was dropped.

    Raises:
        HeronError: nothing to export; programs for different targets; different operators under one name; constant
            operands of equal extents that would have to be packed in different ways.
    """
    best, dropped = fastest(tuned, lambda one: _key(one, Interface.of(one.task.operator, prefix)))
    kernels = [Kernel(one, Interface.of(one.task.operator, prefix), one.task.program(one.candidate)) for one in best]
    kernels.sort(key=lambda kernel: (kernel.interface.function, kernel.extents, kernel.threads))
    _require_one_interface(kernels)
    _require_equal_layouts(kernels)
    return kernels, dropped


def fastest(tuned: Sequence[Tuned], key: Callable[[Tuned], Hashable]) -> tuple[list[Tuned], list[Dropped]]:
    """The fastest program of each key, and what it replaces.

    Raises:
        HeronError: nothing to export; programs for different targets; different operators under one key.
    """
    if not tuned:
        raise HeronError("there is no run to export", "name at least one run directory of heron-asp tune")
    _require_one_target(tuned)
    best: dict[Hashable, Tuned] = {}
    keys = [(one, key(one)) for one in tuned]
    for one, found in keys:
        _require_same(best.get(found, one), one)
        if found not in best or one.seconds < best[found].seconds:
            best[found] = one
    return list(best.values()), [Dropped(one, best[found]) for one, found in keys if best[found] is not one]


Key: TypeAlias = tuple[str, tuple[int, ...], int]


def _key(tuned: Tuned, interface: Interface) -> Key:
    """What the dispatch finds a kernel by."""
    shape = tuned.task.operator.shape
    return interface.function, tuple(shape[field.key] for field in interface.fields), tuned.task.threads


def _require_same(first: Tuned, other: Tuned) -> None:
    """Two programs of one function and shape compute the same: operators of the user's own may share a name only."""
    from tvm_ffi import structural_equal

    one, two = first.task.operator, other.task.operator
    same = (one.kind, one.layout, one.epilogue) == (two.kind, two.layout, two.epilogue)
    if same or structural_equal(one.prim_func(), two.prim_func(), map_free_vars=True):
        return
    raise HeronError(
        f"two operators are called {one.name}: that of {first.origin} and that of {other.origin} differ",
        "give one of them another name, or export two libraries",
    )


def _require_one_interface(kernels: Sequence[Kernel]) -> None:
    """Kernels of one function take the same arguments, and functions of one family the same shapes."""
    functions: dict[str, Kernel] = {}
    structs: dict[str, Kernel] = {}
    for kernel in kernels:
        here = kernel.interface
        other = functions.setdefault(here.function, kernel)
        there = other.interface
        same = [one.text for one in here.functions] == [one.text for one in there.functions]
        if same and here.kernel == there.kernel:
            other = structs.setdefault(here.struct, kernel)
            there = other.interface
            if here.fields == there.fields:
                continue
        raise HeronError(
            f"{here.kind.name} would take different arguments: {there.call.text} for {other.tuned.origin} and "
            f"{here.call.text} for {kernel.tuned.origin}",
            "give one of the operators another name, or export two libraries",
        )


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
