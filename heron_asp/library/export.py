"""From runs to a folder with a plain C library, its header, a manifest and two examples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from heron_asp.host import cpu_flags
from heron_asp.library.baked import Baked, bake
from heron_asp.library.choice import Dropped, Kernel, Layout, Tuned, choose
from heron_asp.library.compiler import CCompiler, find_compiler
from heron_asp.library.distant import Distant, distant, leading_flags
from heron_asp.library.examples import c_helpers, examples, python_helpers
from heron_asp.library.functions import c_function, compile_object
from heron_asp.library.interface import Interface, public_functions
from heron_asp.library.manifest import Manifest, dropped_entry, kernel_entry
from heron_asp.library.prototype import NOTES, STEPS, Prototype
from heron_asp.library.verify import verify
from heron_asp.library.writing import require_names, staged, templates, tuned_runs
from heron_asp.schedule.replay import KERNEL
from heron_asp.target import Target

_SOURCES = ("cpu.c", "pool.c", "scratch.c")
_HEADERS = ("heron-runtime.h", "heron-status.h")
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", "-pthread", "-Wall", "-Wextra")
# nodelete: the workers run the library's code for as long as the process lives.
_LINK = ("-shared", "-Wl,-z,defs", "-Wl,-z,noexecstack", "-Wl,-z,nodelete", "-Wl,-Bsymbolic", "-Wl,--strip-debug")


def export(runs: Sequence[Path], out: Path, name: str = "kernels", prefix: str = "") -> Manifest:
    """Exports the best programs of some runs as a C library.

    Writes `lib<name>.so`, `<name>.h`, `manifest.json`, `example.c` and `example.py`. The library needs libc (not older
    than this machine's) and POSIX threads. Every kernel is checked through the library's own functions first, and the
    program for distant rows is chosen by measuring, where this machine can run them: about half a second a kernel.

    Args:
        runs: run directories of `heron_asp.tuning.tune`.
        out: the folder; made if it does not exist.
        name: the library's name, also the beginning of its general functions (`<name>_set_threads`).
        prefix: the beginning of the operators' functions (`<prefix>gemm_u8s8s32`); for libraries that are linked into
            one program.

    Raises:
        HeronError: a run has no correct program or was made with other rules; runs for different targets; runs that
            need one operand packed in different ways; different operators under one name; a name that is no C
            identifier.
        MissingError: no C compiler; a run that does not exist.
        InternalError: a kernel of the library is wrong.
    """
    return export_tuned(tuned_runs(runs, out), out, name, prefix)


def export_tuned(tuned: Sequence[Tuned], out: Path, name: str = "kernels", prefix: str = "") -> Manifest:
    """Exports programs as a C library; see `export`."""
    require_names(name, prefix)
    compiler = find_compiler()
    kernels, dropped = choose(tuned, prefix)
    library = _Library(name, kernels, dropped, compiler)
    with staged(out) as folder:
        return library.make(folder, out)


@dataclass(frozen=True)
class Group:
    """The kernels and layouts of one function, as the templates see them."""

    interface: Interface
    kernels: tuple[Kernel, ...]
    layouts: dict[str, tuple[Layout, ...]]
    baked: dict[str, dict[str, Baked]]

    @property
    def baked_symbols(self) -> list[str]:
        """Names of the operands that the library has."""
        return sorted({one.symbol for operands in self.baked.values() for one in operands.values()})


class _Library:
    def __init__(self, name: str, kernels: list[Kernel], dropped: list[Dropped], compiler: CCompiler) -> None:
        self.name = name
        self.kernels = kernels
        self.dropped = dropped
        self.compiler = compiler

    @property
    def target(self) -> Target:
        return self.kernels[0].tuned.task.target

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """By symbol; equal ones are kept once."""
        return {layout.symbol: layout for kernel in self.kernels for layout in kernel.layouts.values()}

    @cached_property
    def cpu_flags(self) -> tuple[str, ...]:
        """What the compiler was told that the processor has, and what the intrinsics need."""
        needed = set(self.target.machine.cpu_flags)
        for kernel in self.kernels:
            for intrinsic in kernel.intrinsics:
                needed |= set(self.target.intrinsics[intrinsic].requires)
        return tuple(sorted(needed))

    @cached_property
    def missing_flags(self) -> list[str]:
        """What this machine lacks."""
        return sorted(set(self.cpu_flags) - cpu_flags())

    @property
    def runs_here(self) -> bool:
        return not self.missing_flags

    @cached_property
    def distant(self) -> dict[str, Distant]:
        """By the kernel's symbol, its program for distant rows."""
        return {
            kernel.symbol: distant(kernel.tuned.task, kernel.tuned.candidate, self.runs_here)
            for kernel in self.kernels
            if kernel.interface.strided
        }

    @cached_property
    def baked(self) -> dict[str, dict[str, Baked]]:
        """By the kernel's symbol and the tensor's name, the operands that the library has."""
        return bake(self.kernels)

    @cached_property
    def groups(self) -> list[Group]:
        """The functions, by name."""
        interfaces = {kernel.interface.function: kernel.interface for kernel in self.kernels}
        return [self._group(interfaces[function]) for function in sorted(interfaces)]

    def _group(self, interface: Interface) -> Group:
        kernels = tuple(kernel for kernel in self.kernels if kernel.interface.function == interface.function)
        layouts = {}
        for packed in interface.packed:
            found = {kernel.layouts[packed.argument.name].symbol for kernel in kernels}
            rows = sorted((self.layouts[symbol] for symbol in found), key=lambda layout: layout.extents)
            layouts[packed.argument.name] = tuple(rows)
        return Group(interface, kernels, layouts, {kernel.symbol: self.baked[kernel.symbol] for kernel in kernels})

    def make(self, folder: Path, out: Path) -> Manifest:
        """Builds everything in a folder and moves what is whole to where it belongs."""
        self._compile(folder)
        library = f"lib{self.name}.so"
        if self.runs_here:
            verify(folder / library, self.name, self.kernels)
        manifest = self._manifest()
        (folder / "manifest.json").write_text(json.dumps(manifest.to_json(), indent=2) + "\n")
        shown = examples(self.kernels)
        self._render(folder, "example.c", {"examples": shown, "helpers": c_helpers(shown)})
        self._render(folder, "example.py", {"examples": shown, "helpers": python_helpers(shown)})
        for file in (library, f"{self.name}.h", "example.c", "example.py", "manifest.json"):
            (folder / file).replace(out / file)
        return manifest

    def _compile(self, folder: Path) -> None:
        functions: dict[str, Any] = {}
        for kernel in self.kernels:
            for layout in kernel.layouts.values():
                strided = [kernel.operator.strided and len(layout.tensor.shape) > 1, False]
                functions[layout.symbol] = c_function(layout.function, layout.symbol, strided)
        for kernel in self.kernels:
            task, main = kernel.tuned.task, kernel.program.module[KERNEL]
            functions[kernel.symbol] = c_function(main, kernel.symbol, [False] * len(main.params))
            if kernel.symbol in self.distant:
                symbol = f"{kernel.symbol}_strided"
                main = task.program(self.distant[kernel.symbol].candidate).module[KERNEL]
                functions[symbol] = c_function(main, symbol, leading_flags(task))
        compile_object(functions, self.target, folder / "kernels.o")
        for file in (*_SOURCES, *_HEADERS):
            (folder / file).write_text((files("heron_asp.library") / "templates" / file).read_text())
        notes = [text for name, text in NOTES.items() if name in self._dtypes()]
        steps = [text for name, text in STEPS.items() if name in self._steps()]
        self._render(folder, f"{self.name}.h", {"notes": notes, "steps": steps}, "library.h.j2")
        self._render(folder, "dispatch.c", {})
        public = "; ".join(function.name for function in self._functions())
        (folder / "public.map").write_text(f"{{ global: {public}; local: *; }};\n")
        library = f"lib{self.name}.so"
        baked = {one.symbol: one.data for operands in self.baked.values() for one in operands.values()}
        for symbol, data in baked.items():
            (folder / f"{symbol}.bin").write_bytes(data)
        self._render(folder, "baked.c", {"symbols": sorted(baked)})
        objects = ("dispatch.c", "baked.c", *_SOURCES, "kernels.o")
        script = "-Wl,--version-script=public.map"
        self.compiler.run([*_FLAGS, *_LINK, script, f"-Wl,-soname,{library}", "-o", library, *objects], folder)

    def _dtypes(self) -> set[str]:
        return {argument.dtype.name for group in self.groups for argument in group.interface.arguments}

    def _steps(self) -> set[str]:
        """Names of the steps of all epilogues."""
        return {step.text.partition("=")[0] for one in self._interfaces for step in one.epilogue}

    def _functions(self) -> list[Prototype]:
        return public_functions(self.name, self._interfaces)

    @property
    def _interfaces(self) -> list[Interface]:
        return [group.interface for group in self.groups]

    @property
    def _structs(self) -> list[Interface]:
        """An interface for each struct."""
        return list({one.struct: one for one in self._interfaces if one.structs}.values())

    def _render(self, folder: Path, file: str, values: dict[str, Any], template: str = "") -> None:
        said = {
            "name": self.name,
            "header": f"{self.name}.h",
            "version": version("heron-asp"),
            "target": self.target,
            "cpu_flags": self.cpu_flags,
            "groups": self.groups,
            "structs": self._structs,
            **values,
        }
        (folder / file).write_text(templates("heron_asp.library").get_template(template or f"{file}.j2").render(said))

    def _manifest(self) -> Manifest:
        compiler = self.target.machine.compiler
        lacks = f"the machine that made the library lacks {', '.join(self.missing_flags)}"
        return Manifest(
            library=f"lib{self.name}.so",
            header=f"{self.name}.h",
            functions=tuple(" ".join(function.text.split()) for function in self._functions()),
            structs={one.struct: tuple(field.name for field in one.fields) for one in self._structs},
            target={"name": self.target.name, "digest": self.target.digest, "mcpu": compiler.mcpu if compiler else ""},
            cpu_flags=self.cpu_flags,
            made_with={
                **{package: version(package) for package in ("heron-asp", "apache-tvm", "clingo")},
                "compiler": self.compiler.version,
            },
            kernels=tuple(
                kernel_entry(kernel, self.distant.get(kernel.symbol), self.runs_here) for kernel in self.kernels
            ),
            dropped=tuple(dropped_entry(one) for one in self.dropped),
            unchecked=None if self.runs_here else lacks,
        )
