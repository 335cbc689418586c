"""Measures compiled candidates on a GPU: `python worker.pyz FOLDER`, or `heron-asp worker FOLDER`.

`pack` makes one file of this package, which alone is copied to the machine with the GPU: it needs Python 3.8, numpy and
the CUDA driver, and nothing of heron_asp. FOLDER holds `jobs.json` and the files that it names, see
`heron_asp.backends.cuda.jobs`. Results are lines of JSON in `FOLDER/results.jsonl`: the device, then a line for each
candidate. Candidates that have a line are skipped, so that a run goes on where it ended.

A candidate's kernels run on fresh inputs into poisoned outputs; the result, and what lies behind each written buffer,
is compared. Then it is timed by events on the device: cold, after a memset of twice the size of the L2 cache, and
warm, several calls in a row. The memset leaves lines that are not yet written back: whoever compares with other
programs has to treat those alike.

Candidates run in a process of their own. An error after which the context is lost, a crash or a hang costs that
process; the parent notes it and starts the next one.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

VERSION = 1  # of jobs.json and results.jsonl
JOBS = "jobs.json"
RESULTS = "results.jsonl"
FILE = "worker.pyz"
_MAIN = "from worker.command import main\n\nmain()\n"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # so that equal sources make equal files


def pack(path: Path) -> Path:
    """Writes this package as one file that Python runs."""
    sources = {f"worker/{source.name}": source.read_text() for source in sorted(Path(__file__).parent.glob("*.py"))}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in {**sources, "__main__.py": _MAIN}.items():
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), text)
    return path
