"""From an operator to a library: tunes two shapes, exports them together, and calls the library through ctypes.

Needs a CPU with the instructions of the target and a C compiler; takes about a minute.

    python examples/tune_and_export.py zen4
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from heron_asp import LocalDevice, RunDirectory, Task, TuneOptions, operator, resolve_target, tune
from heron_asp.library import export

target = resolve_target(sys.argv[1] if len(sys.argv) > 1 else "zen4")
with TemporaryDirectory() as folder:
    runs = []
    for m in (1, 128):
        task = Task(operator("gemm", {"m": m, "n": 512, "k": 512}), target)
        runs.append(Path(folder) / f"m{m}")
        outcome = tune(task, LocalDevice(task), TuneOptions(trials=32, seed=1), RunDirectory(runs[-1]))
        best = outcome.to_json()["best"]
        print(f"{task.operator.label}: {best['gops']:.0f} GOP/s, {100 * best['share_of_peak']:.0f} % of the peak")
    library = Path(folder) / "lib"
    export(runs, library, "products")
    print("exported", ", ".join(sorted(path.name for path in library.iterdir())))
    subprocess.run([sys.executable, "example.py"], cwd=library, check=True)
