"""What every exported library shares: which programs go into it, where it is written, what its texts are made from."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from heron_asp.errors import HeronError
from heron_asp.library.choice import Tuned
from heron_asp.runs import load_run


def tuned_runs(runs: Sequence[Path], out: Path) -> list[Tuned]:
    """The best programs of run directories, which go into a library at `out`.

    Raises:
        HeronError: as `tuned_run`; a run is given twice; `out` is a run directory.
        MissingError: something is no run directory.
    """
    seen: set[Path] = set()
    for path in runs:
        if path.resolve() in seen:
            raise HeronError(f"{path} is given twice")
        seen.add(path.resolve())
    if (out / "run.json").exists():
        raise HeronError(f"--out {out}: a run directory", "give the library a folder of its own")
    return [tuned_run(path) for path in runs]


def tuned_run(path: Path) -> Tuned:
    """The best program of a run directory.

    Raises:
        HeronError: no trial was correct; the run was made with other rules, numbers or versions than today's.
        MissingError: it is no run directory.
    """
    run = load_run(path)
    task = run.task()
    candidate, seconds = run.program(task)
    best = (run.result or {}).get("best") or {}
    versions = tuple((str(name), str(said)) for name, said in run.header["versions"].items())
    return Tuned(task, candidate, seconds, best.get("share_of_peak"), path, versions)


def require_names(name: str, prefix: str) -> None:
    """Refuses what cannot begin the names of C.

    Raises:
        HeronError: the library's name or the prefix is none.
    """
    for what, said in (("name", name), ("prefix", f"{prefix}x")):
        if not re.fullmatch(r"[a-z][a-z0-9_]*", said):
            raise HeronError(f"--{what} {said if what == 'name' else prefix}: not a lower-case C identifier")


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder within `out` for files that are not whole yet; nothing is left of it, nor of `out` if that stays empty.

    Raises:
        HeronError: nothing can be written there.
    """
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".heron-asp-", dir=out) as folder:
            yield Path(folder)
    except OSError as error:
        raise HeronError(f"--out {out}: {error.strerror}") from None
    finally:
        if made:
            with suppress(OSError):  # it holds the library
                out.rmdir()


def templates(package: str) -> Environment:
    """The templates of a package."""
    return Environment(  # noqa: S701 - C and Python, not HTML
        loader=PackageLoader(package, "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
