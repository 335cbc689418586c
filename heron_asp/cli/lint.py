"""`heron-asp lint`: mistakes in rule files, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heron_asp.cli import common
from heron_asp.errors import ExitCode

NAME = "lint"


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...", help="Rule files or folders of them; none: all shipped rules.", exists=True
        ),
    ] = None,
    fire: Annotated[
        bool,
        typer.Option("--fire/--no-fire", help="Also find rules that fire for no shipped operator and target; seconds."),
    ] = True,
    json: common.Json = False,
) -> int:
    """Find mistakes in rule files: unknown predicates, nameless constraints, products that wrap. Exit 2 if any."""
    from rich.console import Console

    from heron_asp.lint import lint
    from heron_asp.resources import counted

    report = lint(paths or (), fire)
    if json:
        common.print_json(report.to_json())
    else:
        console = Console(highlight=False, markup=False, soft_wrap=True)
        for finding in report.findings:
            console.print(str(finding))
        said = counted(len(report.findings), "finding") if report.findings else "no findings"
        console.print(f"{counted(report.files, 'file')}, {counted(report.rules, 'rule')}: {said}")
    return ExitCode.USAGE if report.findings else ExitCode.OK
