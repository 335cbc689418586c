"""`python -m heron_asp.backends.vta`: runs recorded programs and says whether everything agrees.

Exit codes: 0 all agree, 1 something differs, 2 usage or an unreadable file, 5 a library is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heron_asp.backends.vta.driver import VARIABLE, find_library, run_on_library
from heron_asp.backends.vta.functional import Bytes
from heron_asp.backends.vta.vectors import Comparison, Recorded, compare, compare_encodings, read_programs
from heron_asp.errors import HeronError

_DIFFERENT = 1
_MEAN_ERROR, _MAX_ERROR = 0.005, 0.025


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m heron_asp.backends.vta", description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", type=Path, metavar="FILE.jsonl.gz", help="recorded programs")
    parser.add_argument(
        "--encodings", action="append", default=[], type=Path, metavar="FILE.json", help="fields and words to check"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--unchecked", action="store_true", help="run programs that the checker refuses, too")
    parser.add_argument("--mean-error", type=float, default=_MEAN_ERROR, help="of the cycles of a file, relative")
    parser.add_argument("--max-error", type=float, default=_MAX_ERROR, help="of the cycles of a program, relative")
    parser.add_argument(
        "--vta-library",
        metavar="PATH",
        nargs="?",
        const="",
        help=f"run the programs on this library, too; without PATH on that of {VARIABLE}",
    )
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a program on the library")
    return parser


def summarise(rows: Sequence[Comparison], seconds: float) -> dict[str, Any]:
    """How many agree, and the relative errors of the cycles."""
    errors = [row.error for row in rows if row.error is not None]
    summary: dict[str, Any] = {
        "programs": len(rows),
        "outputs_equal": sum(row.outputs is True for row in rows),
        "counters_equal": sum(row.counters is True for row in rows),
        "programs_per_second": round(len(rows) / seconds, 1) if seconds else None,
    }
    if errors:
        mean, most = sum(errors) / len(errors), max(errors)
        summary |= {"timed": len(errors), "mean_error": round(mean, 6), "max_error": round(most, 6)}
    if any(row.library is not None for row in rows):
        summary["library_equal"] = sum(row.library is True for row in rows)
    return summary


def _agrees(summary: dict[str, Any], options: argparse.Namespace) -> bool:
    count = summary["programs"]
    return bool(
        summary["outputs_equal"] == summary["counters_equal"] == summary.get("library_equal", count) == count
        and summary.get("mean_error", 0.0) <= options.mean_error
        and summary.get("max_error", 0.0) <= options.max_error
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Compares everything that is asked for and returns the JSON object."""
    library = None
    if options.vta_library is not None:
        paths = find_library(options.vta_library or None)

        def library(program: Recorded) -> Bytes:
            return run_on_library(paths, program.instructions, program.before, program.config, options.timeout)

    report: dict[str, Any] = {"files": [], "agree": True}
    for path in options.programs:
        begin = time.perf_counter()
        rows = [compare(program, not options.unchecked, library) for program in read_programs(path)]
        summary = summarise(rows, time.perf_counter() - begin)
        agree = bool(rows) and _agrees(summary, options)
        report["agree"] &= agree
        file = {"file": str(path), "agree": agree, "summary": summary, "programs": [row.to_json() for row in rows]}
        report["files"].append(file)
    if options.encodings:
        report["encodings"] = []
    for path in options.encodings:
        count, wrong = compare_encodings(path)
        agree = bool(count) and not wrong
        report["agree"] &= agree
        report["encodings"].append({"file": str(path), "agree": agree, "count": count, "wrong": wrong})
    return report


def _text(report: dict[str, Any]) -> str:
    lines = []
    for file in report["files"]:
        for row in file["programs"]:
            if row.get("notes"):
                lines.append(f"{row['id']}: {'; '.join(row['notes'])}")
        numbers = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in file["summary"].items())
        lines.append(f"{file['file']}: {'agrees' if file['agree'] else 'DIFFERS'}: {numbers}")
    for file in report.get("encodings", []):
        lines += file["wrong"]
        lines.append(f"{file['file']}: {'agrees' if file['agree'] else 'DIFFERS'}: {file['count']} words")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.programs and not options.encodings:
        parser.error("give a file of programs or --encodings")
    try:
        report = run(options)
    except HeronError as error:
        if options.json:
            sys.stdout.write(json.dumps({"error": error.message, "hint": error.hint}) + "\n")
        sys.stderr.write(f"{error}\n")
        return int(error.code)
    sys.stdout.write(json.dumps(report) + "\n" if options.json else _text(report))
    return 0 if report["agree"] else _DIFFERENT


if __name__ == "__main__":
    sys.exit(main())
