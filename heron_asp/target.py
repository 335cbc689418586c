"""Targets: one machine as validated numbers. What several machines share stands in their family's file."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, StringConstraints, ValidationError, model_validator

from heron_asp.backends import backend_of
from heron_asp.dtypes import DTYPES, twins
from heron_asp.errors import HeronError
from heron_asp.intrinsics import Intrinsic, Name, Strict
from heron_asp.resources import rules_folder, suggestion, targets_folder
from heron_asp.terms import Term, fact

_MOST = 2**31 - 1  # clingo's integers
_Model = TypeVar("_Model", bound=Strict)


class Compiler(Strict):
    """What TVM compiles for."""

    kind: str = "llvm"
    mcpu: Annotated[str, StringConstraints(pattern=r"^\S+$")]

    @model_validator(mode="after")
    def _names_a_machine(self) -> Compiler:
        if self.mcpu == "native":
            raise ValueError("mcpu = 'native' silently becomes a generic machine; give LLVM's name of it")
        return self


class Memory(Strict):
    """A memory near the arithmetic. Bytes."""

    name: Name
    capacity: int = Field(gt=0, le=_MOST, strict=True)
    source: str = ""


class Pays(Strict):
    """A rule of thumb: what goes against it would run, but is never worth it.

    Attributes:
        value: its number, as the rules read it.
        meaning: what the number says.
        evidence: the measurement or the argument behind it.
    """

    value: int = Field(ge=0, le=_MOST, strict=True)
    meaning: str = Field(min_length=10)
    evidence: str = Field(min_length=10)


class OtherPays(Strict):
    """Another number for a rule of thumb of the family, which keeps its meaning."""

    value: int = Field(ge=0, le=_MOST, strict=True)
    meaning: str = ""
    evidence: str = ""


class Limit(Strict):
    """A number that the family's rules read of every machine, and what it may be."""

    meaning: str
    least: int = Field(default=1, ge=0, le=_MOST, strict=True)
    most: int = Field(default=_MOST, gt=0, le=_MOST, strict=True)


class Defaults(Strict):
    """What an operator is where nothing is said; empty: as the operator's kind has it."""

    dtype: str = ""
    epilogue: str = ""


class Family(Strict):
    """What the machines of a family share.

    Attributes:
        family: its name, also that of its folder of rules.
        description: in a line.
        backend: the package of `heron_asp.backends` that makes programs, measures and exports them.
        nested: each memory holds copies of what the next one holds, as caches do, and is smaller.
        merge_windows: a dimension along which windows slide may become part of another: their rows are walked as they
            lie in memory. Without, an instruction can be given the channels alone.
        product: operators are batches of matrix products: operands reach the instruction through a memory that is
            filled element by element, so that images need not lie as matrices anywhere else.
        finishes: what can be done to sums before they are stored, as `Done.operation`; empty: anything.
        stores: the element types in which results can be stored; empty: any.
        defaults: of an operator of which only the shape is said.
        limits: the numbers that the rules read of every machine.
        pays: rules of thumb.
        intrinsics: instructions.
    """

    family: Name
    description: str
    backend: Name = "llvm"
    nested: bool = True
    merge_windows: bool = True
    product: bool = False
    finishes: tuple[Name, ...] = ()
    stores: tuple[Name, ...] = ()
    defaults: Defaults = Defaults()
    limits: Mapping[Name, Limit] = Field(default_factory=dict)
    pays: Mapping[Name, Pays] = Field(default_factory=dict)
    intrinsics: tuple[Intrinsic, ...]

    def seen_as(self, intrinsics: Collection[Intrinsic]) -> dict[str, Any]:
        """What `analyse` is told of the family: its arguments beside the operator."""
        return {"windows": self.merge_windows, "roles": self.roles(intrinsics), "product": self.product}

    def roles(self, intrinsics: Collection[Intrinsic]) -> Mapping[str, int]:
        """Of each kind of axis the most that one of them has, where they are given axes as the operator has them.

        Of no interest where windows are merged: an axis of one step then costs more than the instruction gains.
        """
        if self.merge_windows:
            return {}
        kinds = [[axis.kind for axis in one.axes] for one in intrinsics]
        return {kind: max(one.count(kind) for one in kinds) for kind in ("spatial", "reduce")}


class Machine(Strict):
    """A target file.

    Attributes:
        name: what `-t` takes; also the name of the file.
        family: whose rules and intrinsics it has.
        description: the machines, in a line.
        source: where the numbers are from.
        compiler: what TVM compiles for, if it does; `compiler.mcpu` is LLVM's name of it.
        llvm_cpus: LLVM's names of the CPUs that these numbers fit, for `-t <family>`.
        cpu_flags: as /proc/cpuinfo spells them, all that kernels may use.
        features: what an accelerator has of what not all of its family have, by the family's own names.
        memories: innermost first; capacities in bytes.
        limits: numbers that the family's rules read, such as `vector_registers`.
        pays: rules of thumb whose numbers differ from the family's; meaning and evidence may be left out.
        intrinsics: those that the family lacks or describes otherwise.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
    family: Name
    description: str
    source: str
    compiler: Compiler | None = None
    llvm_cpus: tuple[str, ...] = ()
    cpu_flags: tuple[str, ...] = ()
    features: tuple[Name, ...] = ()
    memories: tuple[Memory, ...] = Field(min_length=1)
    limits: Mapping[Name, Annotated[int, Field(ge=0, le=_MOST, strict=True)]] = Field(default_factory=dict)
    pays: Mapping[Name, OtherPays] = Field(default_factory=dict)
    intrinsics: tuple[Intrinsic, ...] = ()


@dataclass(frozen=True)
class Target:
    """A machine together with its family.

    Attributes:
        machine: the target file.
        shared: the family's file.
        path: where the target file is.
        shared_path: where the family's file is.
    """

    machine: Machine
    shared: Family
    path: Path
    shared_path: Path

    @property
    def name(self) -> str:
        """The machine's name."""
        return self.machine.name

    @property
    def family(self) -> str:
        """The family's name, which is also the name of its rule folder."""
        return self.machine.family

    @property
    def intrinsics(self) -> dict[str, Intrinsic]:
        """Intrinsics of the family and of this machine, by name; the machine's own come first where names are equal."""
        return {one.name: one for one in (*self.shared.intrinsics, *self.machine.intrinsics)}

    def runs(self, intrinsic: str) -> bool:
        """Whether it has an intrinsic of some name, and all that this requires."""
        known = self.intrinsics.get(intrinsic)
        has = {*self.machine.cpu_flags, *self.machine.features}
        return known is not None and has.issuperset(known.requires)

    @property
    def seen_as(self) -> dict[str, Any]:
        """What `analyse` is told of the family: its arguments beside the operator."""
        return self.shared.seen_as(self.intrinsics.values())

    @property
    def pays(self) -> dict[str, Pays]:
        """Rules of thumb; the machine's own numbers replace the family's."""
        other = {
            name: Pays(
                value=one.value,
                meaning=one.meaning or self.shared.pays[name].meaning,
                evidence=one.evidence or f"given by {self.path.name} without evidence",
            )
            for name, one in self.machine.pays.items()
        }
        return {**self.shared.pays, **other}

    @property
    def rules(self) -> tuple[Path, Path]:
        """The rule folders of the derivation: the core and the family."""
        return rules_folder() / "core", self._home / self.family

    @property
    def brings_rules(self) -> bool:
        """Whether the family's rules are the user's own: those that stand beside the folder of its targets."""
        return self._home.resolve() != rules_folder().resolve()

    @property
    def _home(self) -> Path:
        """The folder that holds the family's folder of rules.

        Rules stand beside targets, as they do in the repository: what `targets/families/mine.toml` describes has its
        rules in `rules/mine`. The folders that `resources` names belong together, and a family's file without rules
        beside it changes numbers of a family that is known.
        """
        families = self.shared_path.resolve().parent
        beside = families.parent.parent / "rules"
        if families == (targets_folder() / "families").resolve():
            return rules_folder()
        known = (rules_folder() / self.family).is_dir()
        return beside if (beside / self.family).is_dir() or not known else rules_folder()

    @property
    def digest(self) -> str:
        """A short hash of everything the target says."""
        said = {"machine": self.machine.model_dump(mode="json"), "family": self.shared.model_dump(mode="json")}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def facts(self) -> list[Term]:
        """The target as facts of `rules/core/interface.lp`."""
        return list(self._facts())

    def _facts(self) -> Iterator[Term]:
        for dtype in DTYPES.values():
            yield fact("bytes", dtype.name, dtype.bytes)
        for one, other, offset in twins():
            yield fact("twin", one, other, offset)
        for memory in self.machine.memories:
            yield fact("scope", memory.name, memory.capacity)
        for name, value in self.machine.limits.items():
            yield fact("limit", name, value)
        for name, pays in self.pays.items():
            yield fact("pays", name, pays.value)
        for flag in (*self.machine.cpu_flags, *self.machine.features):
            yield fact("has", flag)
        for operation in self.shared.finishes:
            yield fact("finishes", operation)
        for stored in self.shared.stores:
            yield fact("stores", stored)
        for intrinsic in self.intrinsics.values():
            yield from intrinsic.facts()


def target_names() -> list[str]:
    """The machines that have a file, by name."""
    return sorted(path.stem for path in targets_folder().glob("*.toml"))


def family_names() -> list[str]:
    """The families that have a file, by name."""
    return sorted(path.stem for path in (targets_folder() / "families").glob("*.toml"))


def load_target(path: Path) -> Target:
    """Reads and validates a target file and its family's.

    Raises:
        HeronError: with the file and the key that is wrong, and what would be right.
    """
    machine = _read(path, Machine)
    beside = path.parent / "families" / f"{machine.family}.toml"
    family_path = beside if beside.is_file() else targets_folder() / "families" / f"{machine.family}.toml"
    if not family_path.is_file():
        raise HeronError(
            f"{path}: family = '{machine.family}': there is no {family_path}",
            suggestion(machine.family, family_names()) + f"; a family of your own is described in {beside}",
        )
    target = Target(machine, _read(family_path, Family), path, family_path)
    _check_against_family(target)
    return target


def _check_against_family(target: Target) -> None:
    """The machine has just the numbers that the family's rules read.

    Raises:
        HeronError: a limit is unknown or missing, a rule of thumb is unknown, a CPU flag is misspelt, memories that
            are nested do not grow, or the backend cannot work with the numbers.
    """
    machine, family = target.machine, target.shared
    names = [memory.name for memory in machine.memories]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise HeronError(f"{target.path}: memory '{twice}' is listed twice")
    for inner, outer in zip(machine.memories, machine.memories[1:], strict=False):
        if family.nested and outer.capacity <= inner.capacity:
            raise HeronError(
                f"{target.path}: memory '{outer.name}' ({outer.capacity} bytes) is listed after '{inner.name}' "
                f"({inner.capacity} bytes) and must be larger"
            )
    for name in machine.limits:
        if name not in family.limits:
            raise HeronError(f"{target.path}: unknown key 'limits.{name}'", suggestion(name, family.limits))
    for name, limit in family.limits.items():
        if name not in machine.limits:
            raise HeronError(f"{target.path}: key 'limits.{name}' is missing", f"{name}: {limit.meaning}")
        if not limit.least <= machine.limits[name] <= limit.most:
            raise HeronError(
                f"{target.path}: limits.{name} = {machine.limits[name]} is not in {limit.least}..{limit.most}",
                f"{name}: {limit.meaning}",
            )
    for name in machine.pays:
        if name not in family.pays:
            raise HeronError(f"{target.path}: unknown key 'pays.{name}'", suggestion(name, family.pays))
    needed = {flag for intrinsic in target.intrinsics.values() for flag in intrinsic.requires}
    for key, said, cutoff in (("cpu_flags", machine.cpu_flags, 0.9), ("features", machine.features, 0.6)):
        for flag in sorted(needed - set(said)):
            near = difflib.get_close_matches(flag, set(said) - needed, n=1, cutoff=cutoff)
            if near:
                raise HeronError(
                    f"{target.path}: {key}: '{near[0]}' is none that the family knows", f"did you mean '{flag}'?"
                )
    backend_of(target).check(target)


def _read(path: Path, model: type[_Model]) -> _Model:
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise HeronError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HeronError(f"{path}: not TOML: {error}") from None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _explained(path, model, error) from None


def _explained(path: Path, model: type[Strict], error: ValidationError) -> HeronError:
    lines, hints = [], []
    problems = error.errors()
    inner = {problem["loc"][: len(outer["loc"])] for problem in problems for outer in problems if problem is not outer}
    for problem in problems:
        if problem["type"] == "too_short" and problem["loc"] in inner:
            continue  # what is in it is wrong, so it counts as empty
        where = ".".join(str(part) for part in problem["loc"]) or model.__name__.lower()
        if problem["type"] == "extra_forbidden":
            lines.append(f"{path}: unknown key '{where}'")
            hints.append(suggestion(str(problem["loc"][-1]), _keys_at(model, problem["loc"][:-1])))
        elif problem["type"] == "missing":
            lines.append(f"{path}: key '{where}' is missing")
        else:
            lines.append(f"{path}: {where}: {problem['msg'].removeprefix('Value error, ')}")
    return HeronError("\n".join(lines), "\n".join(hint for hint in hints if hint))


def _keys_at(model: type[Strict], location: tuple[Any, ...]) -> list[str]:
    """The keys that are allowed at a place in a file."""
    current: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        field = getattr(current, "model_fields", {}).get(part)
        if field is None:
            continue
        candidates = [field.annotation, *_arguments(field.annotation)]
        current = next((one for one in candidates if isinstance(one, type) and issubclass(one, Strict)), current)
    return list(current.model_fields)


def _arguments(annotation: Any) -> Iterator[Any]:
    for argument in getattr(annotation, "__args__", ()):
        yield argument
        yield from _arguments(argument)
