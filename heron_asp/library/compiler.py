"""The C compiler of this machine, which links a library. What it links needs no compiler any more."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heron_asp.errors import InternalError, MissingError

_HINT = "Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc; or set CC to your compiler"
_PROBE = "#include <pthread.h>\n#include <stdatomic.h>\nint probe(void) { return 0; }\n"


@dataclass(frozen=True)
class CCompiler:
    """A C compiler.

    Attributes:
        command: program and options, e.g. `("gcc",)`.
        version: the first line that it says of itself.
    """

    command: tuple[str, ...]
    version: str

    def __str__(self) -> str:
        return f"{shlex.join(self.command)}: {self.version}"

    def run(self, arguments: Sequence[str], folder: Path) -> None:
        """Runs it in a folder.

        Raises:
            InternalError: it refuses what we generated.
        """
        done = subprocess.run(
            [*self.command, *arguments], cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode != 0:
            raise InternalError(f"{shlex.join([*self.command, *arguments])} failed:\n{done.stderr.strip()[-4000:]}")


def find_compiler() -> CCompiler:
    """The C compiler: the environment variable `CC`, `cc`, `gcc` or `clang`, whichever comes first and works.

    Raises:
        MissingError: there is none, or it cannot make a shared library (the C library's headers may be missing).
    """
    chosen = os.environ.get("CC", "").strip()
    try:
        names = [shlex.split(chosen)] if chosen else [["cc"], ["gcc"], ["clang"]]
    except ValueError as error:
        raise MissingError(f"CC={chosen}: {error}", _HINT) from None
    present = [name for name in names if shutil.which(name[0])]
    if not present:
        what = f"CC={chosen}: there is no such program" if chosen else "there is no C compiler (cc, gcc or clang)"
        raise MissingError(what, f"a library is linked by a C compiler; {_HINT}")
    problems = []
    for command in present:
        problem = _problem(command)
        if problem is None:
            return CCompiler(tuple(command), _version(command))
        problems.append(f"{shlex.join(command)} cannot make a shared library: {problem}")
    headers = any("No such file" in problem for problem in problems)
    raise MissingError("\n".join(problems), _HINT if headers else "CC chooses another compiler")


def _problem(command: list[str]) -> str | None:
    """Why a compiler cannot make a shared library that uses threads; None if it can."""
    with tempfile.TemporaryDirectory(prefix="heron-asp-") as folder:
        (Path(folder) / "probe.c").write_text(_PROBE)
        arguments = [*command, "-std=c11", "-shared", "-fPIC", "-pthread", "-o", "probe.so", "probe.c"]
        try:
            done = subprocess.run(
                arguments, cwd=folder, capture_output=True, text=True, errors="replace", check=False, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        made = (Path(folder) / "probe.so").exists()
    if done.returncode == 0:
        return None if made else "it made none, and says that it did"
    lines = done.stderr.strip().splitlines()
    return next((line for line in lines if "error" in line), (lines or [f"exit code {done.returncode}"])[-1])


def _version(command: list[str]) -> str:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace", check=False)
    return (done.stdout.splitlines() or ["unknown"])[0]
