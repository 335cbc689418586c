"""From runs to a folder with a C source, its header, a manifest and an example."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from heron_asp.backends.vta.cycles import count_cycles
from heron_asp.backends.vta.driver import MOST_BYTES
from heron_asp.backends.vta.library.kernel import Kernel, declaration, listed
from heron_asp.backends.vta.library.manifest import Manifest, kernel_entry
from heron_asp.backends.vta.library.moving import Moves, verify
from heron_asp.backends.vta.library.packing import packing, unpacking
from heron_asp.backends.vta.library.reference import example_helpers, examples
from heron_asp.backends.vta.lowering import lower, nest_of, problem_of
from heron_asp.backends.vta.machine import numbers_of
from heron_asp.errors import HeronError
from heron_asp.host import available_bytes
from heron_asp.library.choice import Tuned, fastest
from heron_asp.library.interface import Interface
from heron_asp.library.manifest import dropped_entry
from heron_asp.library.writing import require_names, staged, templates, tuned_runs
from heron_asp.measure.data import bytes_needed
from heron_asp.tir_c import helpers


def export(runs: Sequence[Path], out: Path, name: str = "kernels", prefix: str = "") -> Manifest:
    """Exports the best programs of some runs as C source.

    Writes `<name>.c`, `<name>.h`, `manifest.json` and `example.c`. They need a C compiler and a library with the
    functions of VTA's driver, neither of them now. Every program is checked first: moved to another address and
    simulated.

    Args:
        runs: run directories of `heron_asp.tuning.tune`.
        out: the folder; made if it does not exist.
        name: the library's name.
        prefix: the beginning of the kernels' names.

    Raises:
        HeronError: a run has no correct program or was made with other rules; runs for different targets; different
            operators under one name; a name that is no C identifier; a program that is too large for VTA's drivers.
        MissingError: a run that does not exist.
        InternalError: a program is wrong.
    """
    return export_tuned(tuned_runs(runs, out), out, name, prefix)


def export_tuned(tuned: Sequence[Tuned], out: Path, name: str = "kernels", prefix: str = "") -> Manifest:
    """Exports programs as C source; see `export`."""
    require_names(name, prefix)
    best, dropped = fastest(tuned, lambda one: _key(one, prefix))
    ordered = sorted(best, key=lambda one: _key(one, prefix))
    kernels = [_kernel(one, prefix, f"k{number}") for number, one in enumerate(ordered)]
    for kernel in kernels:
        verify(kernel)
    target = kernels[0].tuned.task.target
    numbers = numbers_of(target)
    shown = examples(kernels)
    packed = {kernel.symbol: _conversions(kernel) for kernel in kernels}
    functions = [function for kernel in kernels for function in kernel.functions]
    said = {
        "name": name,
        "header": f"{name}.h",
        "version": version("heron-asp"),
        "target": target,
        "configuration": numbers.config.model_dump(),
        "measured": numbers.measures,
        "moves": Moves.of(numbers.config),
        "kernels": kernels,
        "conversions": packed,
        "helpers": helpers(text for texts in packed.values() for text in texts),
        "examples": shown,
        "example_helpers": example_helpers(shown),
        "listed": listed,
        "declared": declaration,
    }
    manifest = Manifest(
        source=f"{name}.c",
        header=f"{name}.h",
        functions=tuple(" ".join(function.text.split()) for function in functions),
        target={"name": target.name, "digest": target.digest},
        configuration=numbers.config.model_dump(),
        measured=numbers.measures,
        made_with={package: version(package) for package in ("heron-asp", "apache-tvm", "clingo")},
        kernels=tuple(kernel_entry(kernel) for kernel in kernels),
        dropped=tuple(dropped_entry(one) for one in dropped),
    )
    written = {"library.c": f"{name}.c", "library.h": f"{name}.h", "example.c": "example.c"}
    environment = templates("heron_asp.backends.vta.library")
    with staged(out) as folder:
        for template, file in written.items():
            (folder / file).write_text(environment.get_template(f"{template}.j2").render(said))
        (folder / "manifest.json").write_text(json.dumps(manifest.to_json(), indent=2) + "\n")
        for file in (*written.values(), "manifest.json"):
            (folder / file).replace(out / file)
    return manifest


def _key(tuned: Tuned, prefix: str) -> tuple[str, tuple[int, ...]]:
    """What names a kernel: its function and its shape."""
    interface, shape = Interface.of(tuned.task.operator, prefix), tuned.task.operator.shape
    return interface.function, tuple(shape[field.key] for field in interface.fields)


def _kernel(tuned: Tuned, prefix: str, local: str) -> Kernel:
    task, numbers = tuned.task, numbers_of(tuned.task.target)
    if bytes_needed(task.operator) > available_bytes():
        raise HeronError(
            f"{tuned.origin}: checking it takes about {bytes_needed(task.operator) / 2**30:.1f} GiB of memory",
            "a machine with more memory",
        )
    sketch = task.space[tuned.candidate.sketch].sketch
    problem = problem_of(task.block, sketch, task.target.intrinsics[numbers.intrinsic], numbers.config)
    lowered = lower(problem, nest_of(task.block, sketch, tuned.candidate.values))
    needed = lowered.size + Moves.of(numbers.config).alignment
    if needed > MOST_BYTES:
        raise HeronError(
            f"{tuned.origin}: it needs {needed} bytes; VTA's drivers allocate at most {MOST_BYTES} contiguous ones",
            "cut the operator into smaller ones",
        )
    cycles = count_cycles(lowered.instructions, numbers.config)
    return Kernel(tuned, Interface.of(task.operator, prefix), lowered, cycles, local)


def _conversions(kernel: Kernel) -> list[str]:
    """C functions that pack what is not fixed, and the one that unpacks the result."""
    tensors = [*kernel.constants, *kernel.operands]
    return [*(packing(kernel, tensor, copy) for tensor in tensors for copy in tensor.copies), unpacking(kernel)]
