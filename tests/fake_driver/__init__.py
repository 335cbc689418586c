"""A CUDA driver without a device, and a program that it runs; both are compiled when a test asks for them."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def compiled(name: str, folder: Path) -> Path:
    """A shared library of one of the sources beside this file."""
    out = folder / f"{name}.so"
    command = ["g++", "-O1", "-shared", "-fPIC", "-Wall", "-Wno-unused-result", HERE / f"{name}.cc", "-o", out, "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return out
