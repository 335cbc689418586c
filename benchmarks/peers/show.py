"""The comparison as a table, with what it comes to below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peers.compare import FEW
from peers.interpreted import NUMPY, ONNXRUNTIME
from peers.machine import Machine
from peers.onednn import NAME as ONEDNN
from peers.ours import NAME as OURS
from peers.rows import CAP, TIE, Row, Summary, Total, summary, total
from peers.suite import said
from rich.console import Console
from rich.table import Table

_WIDTH = 150
_LONGEST = 240  # characters of an error
_MOST = 99.0  # a ratio that is not worth its digits
_CAPTION = (
    "Ratios above 1: ours is faster than oneDNN. * called from Python; convolutions of onnxruntime write u8, a quarter "
    f"of the bytes.\n~ others used the machine: fewer than {FEW} rounds were quiet, the ratio is of the best ones."
)


def print_rows(rows: Sequence[Row], machines: Mapping[int, Machine], network: str | None) -> None:
    """Prints everything."""
    console = Console(width=_WIDTH, highlight=False)
    for threads, machine in machines.items():
        mine = [row for row in rows if row.threads == threads]
        console.print(_table(mine, machine))
        for row in mine:
            for side, error in row.errors.items():
                if side in (OURS, ONEDNN):
                    console.print(f"  {row.case}, {side}: {_short(error)}", markup=False)
        console.print(_sentence(summary(rows, threads)))
        if network:
            console.print(_network(network, total(rows, threads)))


def _table(rows: Sequence[Row], machine: Machine) -> Table:
    levels = ", ".join(f"{level.name} {level.bandwidth / 1e9:.0f}" for level in machine.levels)
    title = (
        f"threads {machine.threads}: peak {machine.peak / 1e9:.0f} GOP/s, reads {levels} GB/s, "
        f"a call {1e9 * machine.overhead:.0f} ns"
    )
    table = Table(title=title, title_justify="left", caption=_CAPTION, caption_justify="left", pad_edge=False)
    for name in ("case", "operator", "shape"):
        table.add_column(name, overflow="fold")
    for name in (
        "ours\nGOP/s",
        "of\npeak",
        "of\nbound",
        "oneDNN\nGOP/s",
        "of\nbound",
        "ratio",
        "ONNX\nrt*",
        "numpy\n*",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    table.add_column("oneDNN runs", overflow="fold")
    for row in rows:
        style = {"slower": "red", "faster": "green"}.get(row.verdict, "") if row.in_means else "dim"
        table.add_row(*_cells(row), style=style)
    return table


def _cells(row: Row) -> list[str]:
    ours, onednn = (row.sides.get(side) for side in (OURS, ONEDNN))
    return [
        row.case + (f" x{row.count}" if row.count > 1 else "") + (" ~" if row.busy else ""),
        row.operator,
        said(row.shape),
        _speed(row, OURS),
        _percent(ours.share_of_peak if ours else None),
        _percent(ours.share_of_bound if ours else None),
        _speed(row, ONEDNN),
        _percent(onednn.share_of_bound if onednn else None),
        "" if row.ratio is None else f"{row.ratio:.2f}" if row.ratio <= _MOST else f">{_MOST:g}",
        _speed(row, ONNXRUNTIME),
        _speed(row, NUMPY),
        row.bound,
        onednn.implementation.replace(":avx512_core_vnni", "") if onednn else "",
    ]


def _speed(row: Row, side: str) -> str:
    if side in row.sides:
        return f"{row.sides[side].gops:.0f}"
    return "error" if side in row.errors and side in (OURS, ONEDNN) else ""


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def _sentence(one: Summary) -> str:
    if one.mean is None or one.median is None or one.worst is None:
        text = f"threads {one.threads}: nothing to compare in {one.cases} cases"
    else:
        text = (
            f"threads {one.threads}: {one.compared} of {one.cases} cases count: geometric mean {one.mean:.3f} "
            f"(ratios capped at {CAP:g}), median {one.median:.3f}, worst {one.worst:.3f} ({one.worst_case}); "
            f"{one.faster} faster, {one.ties} ties (within {100 * TIE:g} %), {one.slower} slower"
        )
    for what, cases in (("outside the means", one.outside), ("failed", one.failed), ("busy", one.busy)):
        text += f"; {what}: {', '.join(cases)}" if cases else ""
    return text


def _network(name: str, one: Total) -> str:
    if not one.ours:
        return f"{name} on {one.threads}: no layer ran on both sides"
    missing = f"; without {', '.join(one.missing)}, which one side did not run" if one.missing else ""
    return (
        f"{name} on {one.threads}: layers take {1e3 * one.ours:.2f} ms, oneDNN {1e3 * one.onednn:.2f} ms, "
        f"{one.onednn / one.ours:.3f} times as fast{missing}"
    )


def _short(error: str) -> str:
    """The beginning of an error, in one line; `rows.json` has the rest."""
    line = " / ".join(line.strip() for line in error.splitlines())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."
