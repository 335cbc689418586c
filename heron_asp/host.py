"""What this machine is: its CPU flags, LLVM's name for it, and the target that fits it."""

from __future__ import annotations

import logging
from pathlib import Path

from heron_asp.errors import HeronError, MissingError
from heron_asp.resources import suggestion, targets_folder
from heron_asp.target import Target, family_names, load_target, target_names

logger = logging.getLogger(__name__)


def cpu_flags() -> frozenset[str]:
    """The CPU flags of this machine as Linux spells them; none on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def available_bytes() -> int:
    """Memory that processes can still take, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise MissingError("/proc/meminfo does not say how much memory is available")


def llvm_cpu() -> str:
    """LLVM's name of this machine."""
    from tvm.target import codegen

    return str(codegen.llvm_get_system_cpu())


def missing_flags(target: Target) -> list[str]:
    """CPU flags that kernels for a target use and this machine lacks."""
    return sorted(set(target.machine.cpu_flags) - cpu_flags())


def require_host(target: Target) -> None:
    """Makes sure that this machine can run a target's programs.

    Raises:
        MissingError: it lacks CPU flags; says what can be done here instead.
    """
    missing = missing_flags(target)
    if missing:
        raise MissingError(
            f"this machine cannot run programs for {target.name}: its CPU lacks {', '.join(missing)}",
            "check, explain, audit and sample (without --verify) work here; tune on a machine that has the flags"
            + "".join(f", or use -t {name}, which this machine is" for name in runnable_targets(target.family)[:1]),
        )


def runnable_targets(family: str = "") -> list[str]:
    """Names of the shipped targets whose programs this machine runs, of a family if one is named."""
    return [target.name for target in family_targets(family) if not missing_flags(target)]


def family_targets(family: str = "") -> list[Target]:
    """The shipped targets, of a family if one is named; those whose programs this machine runs come first."""
    found = []
    for name in target_names():
        try:
            target = load_target(targets_folder() / f"{name}.toml")
        except HeronError:  # a broken file is told when it is asked for
            continue
        if family in ("", target.family):
            found.append(target)
    return sorted(found, key=lambda target: len(missing_flags(target)) > 0)


def resolve_target(said: str) -> Target:
    """The target that `-t` means: the path of a file, a machine's name, or a family (this host's machine of it).

    Raises:
        HeronError: there is no such target.
        MissingError: a family of which this host is no machine.
    """
    if (said.endswith(".toml") or "/" in said) and not Path(said).is_dir():
        return load_target(Path(said))
    if said in target_names():
        return load_target(targets_folder() / f"{said}.toml")
    if said in family_names():
        return _of_family(said)
    if Path(said).is_dir():
        inside = [*Path(said).glob("*.toml"), *Path(said).glob("targets/*.toml")]
        hint = f"name a TOML file{', such as ' + str(min(inside)) if inside else ''}, or one of "
        raise HeronError(f"-t {said}: a directory", hint + ", ".join(target_names()))
    if not target_names():
        raise HeronError(f"there are no targets in {targets_folder()}", "HERON_ASP_TARGETS names this folder")
    raise HeronError(
        f"-t {said}: no such target",
        suggestion(said, [*target_names(), *family_names()]) + " or the path of a TOML file",
    )


def _of_family(family: str) -> Target:
    targets = [load_target(targets_folder() / f"{name}.toml") for name in target_names()]
    machines = [target for target in targets if target.family == family]
    runnable = [target for target in machines if not missing_flags(target)]
    if not runnable:
        lacking = {flag for target in machines for flag in missing_flags(target)}
        every = sorted(flag for flag in lacking if all(flag in missing_flags(target) for target in machines))
        raise MissingError(
            f"-t {family}: this machine is none of the family: its CPU lacks {', '.join(every or sorted(lacking))}",
            f"name a machine to look at its space: -t {' or -t '.join(target.name for target in machines)}",
        )
    if not any(target.machine.llvm_cpus for target in machines):
        names = " or -t ".join(target.name for target in machines)
        raise HeronError(f"-t {family}: its devices are none of this machine", f"name one: -t {names}")
    cpu = llvm_cpu()
    for target in runnable:
        if cpu in target.machine.llvm_cpus:
            return target
    best = max(runnable, key=lambda target: len(target.machine.cpu_flags))
    logger.warning("no target names this machine (LLVM calls it %s); taking %s, whose flags it has", cpu, best.name)
    return best
