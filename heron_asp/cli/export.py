"""`heron-asp export`: tuned programs as a C library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heron_asp.cli import common

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
    from heron_asp.library import export
    from heron_asp.runs import run_paths

    manifest = export(run_paths(runs), out, name, prefix)
    if json:
        common.print_json(manifest.to_json())
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for line in manifest.summary():
        console.print(line)
