"""`heron-asp doctor`: what this machine can compile and run, and how to get the rest."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from heron_asp.cli import common

NAME = "doctor"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    Attributes:
        what: the thing.
        found: whether it is here.
        detail: what exactly was found, or how to get it.
    """

    what: str
    found: bool
    detail: str


def command(json: common.Json = False) -> None:
    """What this machine can compile and run, and how to get what is missing."""
    findings = examine()
    if json:
        common.print_json({"findings": [asdict(finding) for finding in findings]})
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for finding in findings:
        mark = "[green]found  [/]" if finding.found else "[yellow]missing[/]"
        console.print(f"{mark} {finding.what:<34}", end="")
        console.print(finding.detail, markup=False)


def examine() -> list[Finding]:
    """Looks at everything."""
    return [*_packages(), *_llvm(), *_targets(), *_compiler()]


def _packages() -> list[Finding]:
    found = [Finding("Python", True, sys.version.split()[0])]
    for name in ("apache-tvm", "apache-tvm-ffi", "clingo", "pydantic"):
        found.append(Finding(name, True, version(name)))
    for name in ("xgboost-cpu", "xgboost"):
        try:
            found.append(Finding("xgboost", True, f"{version(name)} ({name})"))
            return found
        except PackageNotFoundError:
            continue
    return [*found, Finding("xgboost", False, "pip install xgboost-cpu, or xgboost where that has no wheel")]


def _llvm() -> list[Finding]:
    from tvm.target import codegen

    from heron_asp.host import llvm_cpu
    from heron_asp.task import available_threads

    cores = available_threads()
    return [
        Finding(
            f"LLVM {codegen.llvm_version_major()} in TVM", True, f"calls this machine {llvm_cpu()}; {cores} threads"
        )
    ]


def _targets() -> list[Finding]:
    from heron_asp.backends import backend_of
    from heron_asp.host import resolve_target
    from heron_asp.resources import rules_folder, targets_folder
    from heron_asp.target import target_names

    findings = [Finding("rules", True, str(rules_folder())), Finding("targets", True, str(targets_folder()))]
    for name in target_names():
        target = resolve_target(name)
        ready, detail = backend_of(target).here(target)
        findings.append(Finding(f"target {name}", ready, detail))
    return findings


def _compiler() -> list[Finding]:
    from heron_asp.errors import MissingError
    from heron_asp.library import find_compiler

    try:
        return [Finding("C compiler (for export)", True, str(find_compiler()))]
    except MissingError as error:
        return [Finding("C compiler (for export)", False, error.hint)]
