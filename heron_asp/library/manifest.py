"""What a library contains and where it is from: `manifest.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from heron_asp.library.choice import Dropped, Kernel, Layout, Tuned
from heron_asp.library.distant import Distant
from heron_asp.resources import counted

UNITS = {
    "seconds": "of one call with rows packed one after the other, the least of several repetitions when tuned",
    "gops": "billions of useful operations (a multiplication and an addition for each term) a second when tuned",
    "share_of_peak": "what is not on zero padding, as a share of the measured peak on as many threads; null without",
    "shape": "by the names of the C functions' arguments or of their struct's fields",
    "extents": "extents of tensors that follow from the shape, by the names that the header gives them",
    "packed.shape": "extents of the packed operand, row-major; one extent where more than the operand is in it",
    "packed.bytes": "bytes of the packed operand; the library asks for a multiple of 64",
    "inside": "operands with fixed contents, which the library contains, packed; no arguments of a call",
    "distant": "the program that runs where rows are further apart; null where no tensor has a leading dimension",
    "distant.seconds": "of one call with 64 elements between rows, measured at export; null if not measured",
    "checked": "called through the library, the kernel equals the reference on all test inputs, also with distant rows",
}


@dataclass(frozen=True)
class PackedOperand:
    """How a kernel takes a constant operand."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class DistantEntry:
    """The program for distant rows: the tuned one or a twin of it."""

    twin: bool
    seconds: float | None
    values: dict[str, int | str]


@dataclass(frozen=True)
class KernelEntry:
    """A kernel of a library. Numbers as in `UNITS`."""

    function: str
    operator: str
    dtype: str
    layout: str
    epilogue: str
    shape: dict[str, int]
    extents: dict[str, int]
    threads: int
    target: str
    sketch: str
    intrinsics: tuple[str, ...]
    seconds: float
    gops: float
    share_of_peak: float | None
    checked: bool
    values: dict[str, int | str]
    distant: DistantEntry | None
    packed: tuple[PackedOperand, ...]
    inside: tuple[PackedOperand, ...]
    symbol: str
    key: str
    rules: str
    run: str | None
    versions: dict[str, str]


@dataclass(frozen=True)
class DroppedEntry:
    """A run whose program is not in the library."""

    run: str | None
    operator: str
    threads: int
    seconds: float
    reason: str
    kept_run: str | None
    kept_seconds: float


@dataclass(frozen=True)
class Manifest:
    """What a library contains and where it is from.

    Attributes:
        library: file name of the library.
        header: file name of the header.
        functions: the C functions, as prototypes.
        structs: the structs that they take shapes in: the fields, all of them ints.
        target: name and digest of the target.
        cpu_flags: what the processor must have, as /proc/cpuinfo spells it.
        made_with: versions of what made the library.
        kernels: sorted by function, shape and threads.
        dropped: runs that a faster run of the same task replaces.
        unchecked: why kernels were not checked; None if they were.
    """

    library: str
    header: str
    functions: tuple[str, ...]
    structs: dict[str, tuple[str, ...]]
    target: dict[str, str]
    cpu_flags: tuple[str, ...]
    made_with: dict[str, str]
    kernels: tuple[KernelEntry, ...]
    dropped: tuple[DroppedEntry, ...]
    unchecked: str | None

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `manifest.json`."""
        return {"format": 2, **asdict(self), "units": UNITS}

    def summary(self) -> list[str]:
        """What the command line says: a line for the library, one for each kernel, one for each run left out."""
        checked = f"not checked: {self.unchecked}" if self.unchecked else "checked against the reference"
        lines = [f"{self.library} for {self.target['name']}: {counted(len(self.kernels), 'kernel')}, {checked}"]
        for kernel in self.kernels:
            shape = ",".join(f"{key}={extent}" for key, extent in kernel.shape.items())
            share = "" if kernel.share_of_peak is None else f", {100 * kernel.share_of_peak:.0f} % of the peak"
            lines.append(
                f"  {kernel.function}{f' {shape}' if shape else ''} on {counted(kernel.threads, 'thread')}: "
                f"{kernel.seconds * 1e6:.4g} us, {kernel.gops:.4g} GOP/s{share}"
            )
        lines += [f"  left out: {one.run}: {one.reason} ({one.kept_run})" for one in self.dropped]
        return lines


def kernel_entry(kernel: Kernel, distant: Distant | None, checked: bool) -> KernelEntry:
    """What the manifest says of a kernel."""
    tuned = kernel.tuned
    task, operator = tuned.task, kernel.operator
    return KernelEntry(
        function=kernel.interface.function,
        operator=operator.name,
        dtype=operator.dtype,
        layout=operator.layout,
        epilogue=operator.epilogue_text,
        shape=kernel.given,
        extents=kernel.further_extents,
        threads=task.threads,
        target=task.target.name,
        sketch=tuned.candidate.sketch,
        intrinsics=kernel.intrinsics,
        seconds=tuned.seconds,
        gops=kernel.gops,
        share_of_peak=tuned.share_of_peak,
        checked=checked,
        values=tuned.candidate.to_json(),
        distant=distant_entry(tuned, distant) if distant else None,
        packed=_packed(kernel.layouts),
        inside=_packed(kernel.inside),
        symbol=kernel.symbol,
        key=task.key,
        rules=task.rules_digest,
        run=str(tuned.run) if tuned.run else None,
        versions=dict(tuned.versions),
    )


def _packed(layouts: Mapping[str, Layout]) -> tuple[PackedOperand, ...]:
    return tuple(
        PackedOperand(name, layout.tensor.dtype.name, layout.packed, layout.bytes) for name, layout in layouts.items()
    )


def distant_entry(tuned: Tuned, distant: Distant) -> DistantEntry:
    """What the manifest says of the program for distant rows."""
    return DistantEntry(distant.candidate != tuned.candidate, distant.seconds, distant.candidate.to_json())


def dropped_entry(dropped: Dropped) -> DroppedEntry:
    """What the manifest says of a run that is not in the library."""
    tuned, kept = dropped.tuned, dropped.kept
    return DroppedEntry(
        run=str(tuned.run) if tuned.run else None,
        operator=tuned.task.operator.label,
        threads=tuned.task.threads,
        seconds=tuned.seconds,
        reason="a faster program of the same task is in the library",
        kept_run=str(kept.run) if kept.run else None,
        kept_seconds=kept.seconds,
    )
