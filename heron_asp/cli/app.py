"""The application: its commands, and what becomes of errors."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import traceback
from typing import Annotated

import typer

from heron_asp.cli import audit, check, doctor, explain, export, lint, new, report, sample, tune, worker
from heron_asp.errors import ExitCode, HeronError, InternalError

app = typer.Typer(
    name="heron-asp",
    help="Fast, checked libraries for deep-learning accelerators. "
    "Constraints are answer-set rules; the search stays inside them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (doctor, check, explain, audit, sample, tune, report, export, lint, new, worker):
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
    if sys.stderr is None:  # closed by the caller
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs the command line and returns the exit code."""
    if sys.stdout is None:
        sys.stderr.write("error: standard output is closed\n")
        return ExitCode.USAGE
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the reader has gone, nothing more to say; rich makes the latter of it
        code = ExitCode.OK
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        code = _tell(said, "", ExitCode.USAGE, arguments)
    _settle()
    return code


def _run(arguments: list[str]) -> int:
    try:
        returned = app(arguments, standalone_mode=False)
        if returned == ExitCode.INTERRUPTED and not isinstance(returned, ExitCode):
            raise KeyboardInterrupt  # which typer takes for a number
        return returned if isinstance(returned, int) else ExitCode.OK
    except typer.TyperException as error:
        with contextlib.suppress(OSError):
            error.show()  # type: ignore[attr-defined]
        return _tell_json(error.format_message(), "-h lists the options", ExitCode.USAGE, arguments)
    except typer.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _tell("interrupted", "", ExitCode.INTERRUPTED, arguments)
    except HeronError as error:
        return _tell(error.message, error.hint, error.code, arguments)
    except MemoryError:
        return _tell("out of memory", "ask for less, or on a larger machine", ExitCode.USAGE, arguments)
    except OSError:  # told by `run`: standard output may be what failed
        raise
    except InternalError as error:
        said = f"internal error: {error}"
        return _tell(said, "this is a defect of heron_asp or of a rule file", ExitCode.INTERNAL, arguments)
    except Exception as error:  # the boundary of the program
        traceback.print_exc()
        said = f"internal error: {type(error).__name__}: {error}"
        return _tell(said, "this is a defect of heron_asp", ExitCode.INTERNAL, arguments)


def _settle() -> None:
    """Writes what is buffered; what cannot be written is dropped, or the interpreter would complain at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(message: str, hint: str, code: ExitCode, arguments: list[str]) -> ExitCode:
    """Says what is wrong, on standard error and, if asked, as JSON; returns the code."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"error: {message}\n" + (f"hint: {hint}\n" if hint else ""))
    return _tell_json(message, hint, code, arguments)


def _tell_json(message: str, hint: str, code: ExitCode, arguments: list[str]) -> ExitCode:
    with contextlib.suppress(OSError):
        if "--json" in arguments:
            sys.stdout.write(json.dumps({"error": message, "hint": hint, "exit_code": int(code)}) + "\n")
    return code
