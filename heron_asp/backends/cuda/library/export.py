"""From runs to a folder with kernels as CUDA C++ and as machine code, a launcher in C, its header and a manifest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from heron_asp.backends.cuda.build import build
from heron_asp.backends.cuda.device import MODELLED, emulate
from heron_asp.backends.cuda.nvcc import Compiled, compile_cubin
from heron_asp.backends.cuda.program import Buffer, Program, Use
from heron_asp.backends.cuda.program import Kernel as Launch
from heron_asp.errors import HeronError
from heron_asp.library.choice import Tuned, fastest, glued
from heron_asp.library.interface import Interface
from heron_asp.library.manifest import DroppedEntry, dropped_entry
from heron_asp.library.words import distinct
from heron_asp.library.writing import require_names, staged, templates, tuned_runs
from heron_asp.measure.data import cases
from heron_asp.operators import TensorSpec
from heron_asp.resources import counted
from heron_asp.runs import load_run

_EMULATION = 120.0  # seconds
_RESERVED = ("stream", "scratch", "status", "taken", "arguments", "modules")  # what the launcher itself has
UNITS = {
    "seconds": "of one call: `measured` says what that is",
    "tensors": "arguments of a call, in this order; row-major and compact, in the memory of the device",
    "tensors.file": "the contents that it must have, as they lie in memory; empty where they are the caller's",
    "launches": "in this order, in one stream; `arguments` are names of tensors or of scratch memory",
    "launches.registers": "of a thread, as the assembler says",
    "scratch": "bytes that a call needs beside its tensors, by the names that launches have for them",
    "checked": "run on the CPU by the emulator, the program equals the reference",
}


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of a call. `role` is operand, fixed or result."""

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    file: str


@dataclass(frozen=True)
class LaunchEntry:
    """A launch of a kernel."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    static_shared: int
    registers: int
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class KernelEntry:
    """A function of the library. Numbers as in `UNITS`."""

    name: str
    operator: str
    dtype: str
    layout: str
    epilogue: str
    shape: dict[str, int]
    tensors: tuple[TensorEntry, ...]
    launches: tuple[LaunchEntry, ...]
    scratch: dict[str, int]
    source: str
    cubin: str
    seconds: float
    gops: float
    measured: str
    checked: bool
    sketch: str
    values: dict[str, int | str]
    key: str
    rules: str
    run: str | None
    versions: dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """What a library contains and where it is from."""

    source: str
    header: str
    architecture: str
    target: dict[str, str]
    made_with: dict[str, str]
    kernels: tuple[KernelEntry, ...]
    dropped: tuple[DroppedEntry, ...]

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `manifest.json`."""
        return {"format": 1, **asdict(self), "units": UNITS}

    def summary(self) -> list[str]:
        """What the command line says: a line for the library, one for each kernel, one for each run left out."""
        number = counted(len(self.kernels), "kernel")
        lines = [
            f"{self.source} for {self.target['name']} ({self.architecture}): {number}, "
            "emulated and equal to the reference"
        ]
        for kernel in self.kernels:
            lines.append(f"  {kernel.name}: {kernel.seconds * 1e6:.4g} us, {kernel.gops:.4g} GOP/s ({kernel.measured})")
        return [*lines, *(f"  left out: {one.run}: {one.reason} ({one.kept_run})" for one in self.dropped)]


@dataclass(frozen=True)
class Exported:
    """A function on its way into the library; names of parameters are those of C."""

    tuned: Tuned
    interface: Interface
    program: Program
    compiled: Compiled
    measured: str

    @property
    def symbol(self) -> str:
        """Its name: the operator's, with the shape."""
        return "_".join([self.interface.function, *glued(self.given)])

    @property
    def given(self) -> dict[str, int]:
        """The shape as a caller says it, without what is as by default."""
        return {field.name: value for field, value in self.interface.given(self.tuned.task.operator.shape)}

    @property
    def parameters(self) -> dict[str, str]:
        """The parameter of each buffer that a call takes, in the order of the operator's tensors."""
        names = [spec.name for spec in self.tuned.task.operator.tensors]
        variables = distinct(names, _RESERVED)
        output = next(one.name for one in self.program.buffers if one.use is Use.OUTPUT)
        return {**{name: variables[name] for name in names[:-1]}, output: variables[names[-1]]}

    @property
    def scratch(self) -> dict[str, int]:
        """Where each scratch buffer begins in the scratch memory of a call, in bytes."""
        found, end = {}, 0
        for one in self.program.buffers:
            if one.use is Use.SCRATCH:
                found[one.name] = end
                end += _rounded(one)
        return found

    @property
    def scratch_bytes(self) -> int:
        """Of a call."""
        return sum(_rounded(one) for one in self.program.buffers if one.use is Use.SCRATCH)

    @property
    def image(self) -> str:
        """The machine code as a C initializer."""
        code = self.compiled.cubin
        return ",\n    ".join(", ".join(str(byte) for byte in code[at : at + 24]) for at in range(0, len(code), 24))

    @property
    def pairs(self) -> list[tuple[TensorSpec, str]]:
        """The tensors of a call, each with its parameter."""
        return list(zip(self.tuned.task.operator.tensors, self.parameters.values(), strict=True))

    def taken(self, launch: Launch) -> str:
        """What a launch takes, in C."""
        return ", ".join(self.parameters.get(one) or f"scratch + {self.scratch[one]}" for one in launch.arguments)

    def addresses(self, launch: Launch) -> str:
        """Where that lies, in C."""
        return "".join(f"&taken[{number}], " for number in range(len(launch.arguments))) + "NULL"


def _rounded(one: Buffer) -> int:
    return -(-one.nbytes // 256) * 256


def export(runs: Sequence[Path], out: Path, name: str = "kernels", prefix: str = "") -> Manifest:
    """Exports the best programs of some runs for a GPU.

    Writes `<name>.c` and `<name>.h`, which need a C compiler and CUDA's driver, `manifest.json`, and of each kernel the
    CUDA C++ and the machine code. Every program is compiled and emulated first.

    Args:
        runs: run directories of `heron_asp.tuning.tune`.
        out: the folder; made if it does not exist.
        name: the library's name.
        prefix: the beginning of the functions' names.

    Raises:
        HeronError: a run has no correct program or was made with other rules; runs for different targets; different
            operators under one name; a name that is no C identifier; a program is wrong.
        MissingError: a run does not exist, or there is no nvcc.
    """
    labels = {path: str(load_run(path).header.get("measured", MODELLED)) for path in runs}
    return export_tuned(tuned_runs(runs, out), out, name, prefix, labels)


def export_tuned(
    tuned: Sequence[Tuned], out: Path, name: str = "kernels", prefix: str = "", labels: dict[Path, str] | None = None
) -> Manifest:
    """Exports programs for a GPU; see `export`. `labels` say what the times of a run are."""
    require_names(name, prefix)
    best, dropped = fastest(tuned, lambda one: _key(one, prefix))
    measured = {one.run: (labels or {}).get(one.run, MODELLED) if one.run else MODELLED for one in best}
    kernels = [_exported(one, prefix, measured[one.run]) for one in sorted(best, key=lambda one: _key(one, prefix))]
    target = kernels[0].tuned.task.target
    assert target.machine.compiler is not None
    said = {"name": name, "version": version("heron-asp"), "target": target, "kernels": kernels}
    with staged(out) as folder:
        entries = tuple(_written(folder, one) for one in kernels)
        manifest = Manifest(
            source=f"{name}.c",
            header=f"{name}.h",
            architecture=target.machine.compiler.mcpu,
            target={"name": target.name, "digest": target.digest},
            made_with={package: version(package) for package in ("heron-asp", "apache-tvm", "clingo")},
            kernels=entries,
            dropped=tuple(dropped_entry(one) for one in dropped),
        )
        environment = templates("heron_asp.backends.cuda.library")
        for suffix in ("c", "h"):
            (folder / f"{name}.{suffix}").write_text(environment.get_template(f"launcher.{suffix}.j2").render(said))
        (folder / "manifest.json").write_text(json.dumps(manifest.to_json(), indent=2) + "\n")
        for file in sorted(folder.iterdir()):
            file.replace(out / file.name)
    return manifest


def _key(tuned: Tuned, prefix: str) -> tuple[str, tuple[int, ...]]:
    interface, shape = Interface.of(tuned.task.operator, prefix), tuned.task.operator.shape
    return interface.function, tuple(shape[field.key] for field in interface.fields)


def _exported(tuned: Tuned, prefix: str, measured: str) -> Exported:
    task = tuned.task
    assert task.target.machine.compiler is not None
    program = build(task, tuned.candidate)
    try:
        emulate(program, cases(task.operator, most=1)[0], _EMULATION, task.operator.operations)
    except HeronError as error:
        raise HeronError(f"{tuned.origin}: {error.message}", error.hint, error.code) from None
    compiled = compile_cubin(program.source, task.target.machine.compiler.mcpu)
    return Exported(tuned, Interface.of(task.operator, prefix), program, compiled, measured)


def _written(folder: Path, one: Exported) -> KernelEntry:
    """Writes the files of a function, and says what the manifest says of it."""
    tuned, operator = one.tuned, one.tuned.task.operator
    source, cubin = f"{one.symbol}.cu", f"{one.symbol}.cubin"
    (folder / source).write_text(one.program.source)
    (folder / cubin).write_bytes(one.compiled.cubin)
    fixed = operator.constants
    tensors = []
    for spec, variable in zip(operator.tensors, one.parameters.values(), strict=True):
        file = f"{one.symbol}.{variable}.bin" if spec.name in fixed else ""
        if file:
            (folder / file).write_bytes(np.ascontiguousarray(fixed[spec.name]).tobytes())
        role = "fixed" if file else "result" if spec is operator.tensors[-1] else "operand"
        tensors.append(TensorEntry(variable, role, spec.dtype.name, spec.shape, file))
    return KernelEntry(
        name=one.symbol,
        operator=operator.name,
        dtype=operator.dtype,
        layout=operator.layout,
        epilogue=operator.epilogue_text,
        shape=one.given,
        tensors=tuple(tensors),
        launches=tuple(_launch(one, launch) for launch in one.program.kernels),
        scratch={
            f"scratch.{buffer.name}": buffer.nbytes for buffer in one.program.buffers if buffer.use is Use.SCRATCH
        },
        source=source,
        cubin=cubin,
        seconds=tuned.seconds,
        gops=operator.operations / tuned.seconds / 1e9,
        measured=one.measured,
        checked=True,
        sketch=tuned.candidate.sketch,
        values=tuned.candidate.to_json(),
        key=tuned.task.key,
        rules=tuned.task.rules_digest,
        run=str(tuned.run) if tuned.run else None,
        versions=dict(tuned.versions),
    )


def _launch(one: Exported, launch: Launch) -> LaunchEntry:
    return LaunchEntry(
        kernel=launch.name,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared=launch.dynamic_shared,
        static_shared=launch.static_shared,
        registers=one.compiled.resources[launch.name].registers,
        arguments=tuple(one.parameters.get(name, f"scratch.{name}") for name in launch.arguments),
    )
