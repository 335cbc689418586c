"""The application: its commands, and what becomes of errors."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from typing import Annotated

import typer

from heron_asp.cli import audit, check, doctor, explain, export, lint, report, sample, tune
from heron_asp.errors import ExitCode, HeronError, InternalError

app = typer.Typer(
    name="heron-asp",
    help="Fast, checked libraries for deep-learning accelerators. "
    "Constraints are answer-set rules; the search stays inside them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (doctor, check, explain, audit, sample, tune, report, export, lint):
    app.command(name=module.NAME)(module.command)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        sys.stdout.write(f"heron-asp {version('heron-asp')}\n")
        raise typer.Exit


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more on standard error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="heron-asp: %(message)s", stream=sys.stderr
    )


def main() -> None:
    """Runs the command line and exits with the code of `ExitCode`."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs the command line and returns the exit code."""
    try:
        returned = app(arguments, standalone_mode=False)
        return returned if isinstance(returned, int) else ExitCode.OK
    except typer.TyperException as error:
        error.show()  # type: ignore[attr-defined]
        return ExitCode.USAGE
    except typer.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted\n")
        return ExitCode.INTERRUPTED
    except HeronError as error:
        _tell(error.message, error.hint, error.code, arguments)
        return error.code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing more to say
        return ExitCode.OK
    except InternalError as error:
        _tell(
            f"internal error: {error}", "this is a defect of heron_asp or of a rule file", ExitCode.INTERNAL, arguments
        )
        return ExitCode.INTERNAL
    except Exception as error:  # the boundary of the program
        traceback.print_exc()
        said = f"internal error: {type(error).__name__}: {error}"
        _tell(said, "this is a defect of heron_asp", ExitCode.INTERNAL, arguments)
        return ExitCode.INTERNAL


def _tell(message: str, hint: str, code: ExitCode, arguments: list[str]) -> None:
    if "--json" in arguments:
        sys.stdout.write(json.dumps({"error": message, "hint": hint, "exit_code": int(code)}) + "\n")
    sys.stderr.write(f"error: {message}\n" + (f"hint: {hint}\n" if hint else ""))
