"""`heron-asp export`: tuned programs as a C library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heron_asp.cli import common
from heron_asp.errors import HeronError

NAME = "export"


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run directories of heron-asp tune, or one of tune --cases.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the library.", show_default=False)],
    name: Annotated[str, typer.Option("--name", help="Name of the library: lib<name>.so and <name>.h.")] = "kernels",
    prefix: Annotated[
        str, typer.Option("--prefix", help="Beginning of the operators' functions: <prefix>gemm_u8s8s32.")
    ] = "",
    json: common.Json = False,
) -> None:
    """Write a shared library, a C header, a manifest and examples that run from the folder alone."""
    from heron_asp.backends import backend_named
    from heron_asp.runs import load_run, run_paths

    paths = run_paths(runs)
    backends = sorted({load_run(path).target.shared.backend for path in paths})
    if len(backends) > 1:
        raise HeronError(f"runs for {' and '.join(backends)} do not go into one library", "export them one by one")
    manifest = backend_named(backends[0] if backends else "llvm").export(paths, out, name, prefix)
    if json:
        common.print_json(manifest.to_json())
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for line in manifest.summary():
        console.print(line)
