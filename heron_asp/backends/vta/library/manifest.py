"""What a library for VTA contains and where it is from: `manifest.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from heron_asp.backends.vta.library.kernel import Kernel
from heron_asp.library.manifest import DroppedEntry
from heron_asp.resources import counted

UNITS = {
    "cycles": "of one run of the device, from the first instruction to FINISH; `measured` says what they are",
    "seconds": "the cycles at the device's clock, without what the host does before and after",
    "gops": "billions of useful operations (a multiplication and an addition for each term) a second",
    "share_of_peak": "useful operations as a share of one micro-op a cycle",
    "shape": "without what is as by default",
    "tensors.role": "operand: an argument of a call; constant: set once; fixed: the library has it; result: written",
    "bytes": "that a kernel allocates from VTA's driver, in one piece: data, micro-ops and instructions",
    "configuration": "the device that the words are for, by the names of VTA's vta_config.json in lower case",
    "checked": "moved to another address and simulated, the program equals the reference on all test inputs",
}


@dataclass(frozen=True)
class TensorEntry:
    """A tensor as the C functions take it."""

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class KernelEntry:
    """A kernel of a library. Numbers as in `UNITS`."""

    name: str
    operator: str
    dtype: str
    layout: str
    epilogue: str
    shape: dict[str, int]
    tensors: tuple[TensorEntry, ...]
    cycles: int
    seconds: float
    gops: float
    share_of_peak: float | None
    bytes: int
    instructions: int
    micro_ops: int
    checked: bool
    sketch: str
    values: dict[str, int | str]
    key: str
    rules: str
    run: str | None
    versions: dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """What a library contains and where it is from.

    Attributes:
        source: file name of the C source.
        header: file name of the header.
        functions: the C functions, as prototypes.
        target: name and digest of the target.
        configuration: the device.
        measured: what the cycles are.
        made_with: versions of what made the library.
        kernels: sorted by function and shape.
        dropped: runs that a faster run of the same task replaces.
    """

    source: str
    header: str
    functions: tuple[str, ...]
    target: dict[str, str]
    configuration: dict[str, int]
    measured: str
    made_with: dict[str, str]
    kernels: tuple[KernelEntry, ...]
    dropped: tuple[DroppedEntry, ...]

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `manifest.json`."""
        return {"format": 1, **asdict(self), "units": UNITS}

    def summary(self) -> list[str]:
        """What the command line says: a line for the library, one for each kernel, one for each run left out."""
        number = counted(len(self.kernels), "kernel")
        lines = [f"{self.source} for {self.target['name']}: {number}, simulated and equal to the reference"]
        for kernel in self.kernels:
            share = "" if kernel.share_of_peak is None else f", {100 * kernel.share_of_peak:.0f} % of the peak"
            lines.append(
                f"  {kernel.name}: {kernel.cycles:,} cycles = {kernel.seconds * 1e6:.4g} us, "
                f"{kernel.gops:.4g} GOP/s{share}"
            )
        lines += [f"  left out: {one.run}: {one.reason} ({one.kept_run})" for one in self.dropped]
        return [*lines, f"measured: {self.measured}"]


def kernel_entry(kernel: Kernel) -> KernelEntry:
    """What the manifest says of a kernel that was checked."""
    tuned, operator, lowered = kernel.tuned, kernel.operator, kernel.lowered
    tensors = (
        TensorEntry(tensor.spec.name, str(tensor.role), tensor.spec.dtype.name, tensor.spec.shape)
        for tensor in kernel.tensors
    )
    return KernelEntry(
        name=kernel.symbol,
        operator=operator.name,
        dtype=operator.dtype,
        layout=operator.layout,
        epilogue=operator.epilogue_text,
        shape=kernel.given,
        tensors=tuple(tensors),
        cycles=kernel.cycles,
        seconds=tuned.seconds,
        gops=kernel.gops,
        share_of_peak=tuned.share_of_peak,
        bytes=lowered.size,
        instructions=len(lowered.instructions),
        micro_ops=len(lowered.uops),
        checked=True,
        sketch=tuned.candidate.sketch,
        values=tuned.candidate.to_json(),
        key=tuned.task.key,
        rules=tuned.task.rules_digest,
        run=str(tuned.run) if tuned.run else None,
        versions=dict(tuned.versions),
    )
