"""The cases: operators and layers of networks, read from heron_suite.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers.workload import Workload, workload

from heron_asp.errors import HeronError
from heron_asp.resources import suggestion

FILE = Path(__file__).parent.parent / "heron_suite.toml"
OPERATORS = "dlboost_operators"
_NETWORK = "network_"
_LISTED_BATCH = 16  # the networks of the file are listed for this batch; here they run for one input
GEMM = [(1024, 1024, 1024), (64, 64, 64), (512, 768, 3072), (128, 1008, 2048), (1, 1024, 1024)]  # m, n, k


@dataclass(frozen=True)
class Case:
    """A row of the comparison.

    Attributes:
        name: e.g. `C2D1`, `layer-3`.
        operator: as the file calls it.
        shape: its numbers, by name.
        count: how often a network has the layer.
    """

    name: str
    operator: str
    shape: Mapping[str, int]
    count: int = field(default=1)

    @property
    def workload(self) -> Workload:
        """What it computes."""
        return workload(self.operator, self.shape)


def said(shape: Mapping[str, int]) -> str:
    """A shape in one line, without what is as usual."""
    usual = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0}
    return ",".join(f"{key}={value}" for key, value in shape.items() if usual.get(key) != value)


def networks(file: Path = FILE) -> list[str]:
    """Names of the networks."""
    return [name.removeprefix(_NETWORK) for name in _read(file) if name.startswith(_NETWORK)]


def operator_cases(file: Path = FILE) -> list[Case]:
    """The operators."""
    return [_case(row) for row in _read(file)[OPERATORS]]


def network_cases(network: str, file: Path = FILE) -> list[Case]:
    """The layers of a network for one input.

    Raises:
        HeronError: there is no such network.
    """
    rows = _read(file).get(_NETWORK + network)
    if rows is None:
        raise HeronError(f"--network {network}: not in {file.name}", suggestion(network, networks(file)))
    return [_single(_case(row)) for row in rows]


def gemm_cases() -> list[Case]:
    """Matrix products of common sizes."""
    return [Case("x".join(map(str, shape)), "gemm", dict(zip("mnk", shape, strict=True))) for shape in GEMM]


def chosen(cases: Sequence[Case], only: Iterable[str]) -> list[Case]:
    """The cases of these names, in the order of the suite; all if none is named.

    Raises:
        HeronError: a name that no case has.
    """
    names = [name for name in only if name]
    known = [case.name for case in cases]
    for name in names:
        if name not in known:
            raise HeronError(f"--only {name}: no such case", suggestion(name, known))
    return [case for case in cases if not names or case.name in names]


def _read(file: Path) -> dict[str, list[dict[str, Any]]]:
    with file.open("rb") as opened:
        return tomllib.load(opened)


def _case(row: Mapping[str, Any]) -> Case:
    return Case(row["case"], row["operator"], row["shape"], row.get("count", 1))


def _single(case: Case) -> Case:
    """The case for a batch of one: the batch is `n` of a convolution, a factor of `batch` or of gemm's `m`."""
    key = {"gemm": "m", "batch_matmul": "batch"}.get(case.operator, "n")
    batch = case.shape[key]
    if batch % _LISTED_BATCH:
        raise HeronError(f"{case.name}: {key}={batch} is no multiple of the batch of {_LISTED_BATCH}")
    return Case(case.name, case.operator, {**case.shape, key: batch // _LISTED_BATCH}, case.count)
