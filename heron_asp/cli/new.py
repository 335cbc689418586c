"""`heron-asp new`: a folder to start the rules of an accelerator family from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heron_asp.cli import common

NAME = "new"


def command(
    name: Annotated[str, typer.Argument(help="Name of the new family, and of the folder.", show_default=False)],
    like: Annotated[
        str,
        typer.Option("--like", help="The family to copy, or one of its machines.", show_default=False),
    ],
    into: Annotated[Path, typer.Option("--into", help="Where the folder is made.")] = Path(),
    json: common.Json = False,
) -> None:
    """Start an accelerator family of your own: rules, numbers and passing tests to edit."""
    from heron_asp.scaffold import new_family

    made = new_family(name, like, into)
    if json:
        common.print_json(made.to_json())
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{made.folder}: a family like {made.pattern.family}, beginning as its machine {made.pattern.name}")
    for path in made.files:
        console.print(f"  {path}")
    for case in made.cases:
        console.print(f"{case.operator.label}: {common.large(case.programs)} programs")
    console.print(f"next: cd {made.folder} && python -m pytest, and {made.folder / 'README.md'}")
