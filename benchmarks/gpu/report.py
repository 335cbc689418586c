"""What a session comes to: as JSON, as a table, as Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from gpu.there import PEERS, SESSION

from heron_asp.backends.cuda.jobs import Job, read_jobs
from heron_asp.backends.cuda.measured import Measured, read_results
from heron_asp.errors import HeronError
from heron_asp.measure.result import Status

Json = dict[str, Any]
COLUMNS = (
    ("case", "{case}"),
    ("measured", "{measured}"),
    ("valid samples", "{valid}"),
    ("best, cold", "{best_cold}"),
    ("best, warm", "{best_warm}"),
    ("TFLOPS", "{tflops}"),
    ("peer, cold", "{peer_cold}"),
    ("peer/best cold", "{ratio_cold}"),
    ("warm", "{ratio_warm}"),
    ("rank correlation", "{spearman}"),
    ("model's choice/best", "{regret}"),
)


def report(session: Path) -> Json:
    """The figures of a session.

    Raises:
        HeronError: the folder holds none, or nothing was measured.
    """
    try:
        said = json.loads((session / SESSION).read_text())
    except OSError as error:
        raise HeronError(f"{session / SESSION}: {error.strerror}", "`prepare` writes one") from None
    peers, missing = _peers(session)
    rows, device = [], None
    for case in said["cases"]:
        results = read_results(session / case["case"])
        device = results.device or device
        rows.append(_row(case, read_jobs(session / case["case"]).candidates, results.candidates, peers))
    if device is None:
        raise HeronError(f"{session}: nothing was measured", "`run` measures")
    return {"device": asdict(device), "peer_missing": missing, "cases": rows}


def _peers(session: Path) -> tuple[dict[str, Json], str]:
    path = session / PEERS
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else [{"missing": "not run"}]
    said = [line["missing"] for line in lines if "missing" in line]
    return {line["case"]: line for line in lines if "case" in line}, said[-1] if said else ""


def _row(case: Json, jobs: Sequence[Job], results: Sequence[Measured], peers: dict[str, Json]) -> Json:
    by_name = {job.id: job for job in jobs}
    pairs = [(by_name[one.name], one) for one in results]
    correct = [(job, one) for job, one in pairs if one.status is Status.CORRECT]
    samples = [(job, one) for job, one in pairs if job.notes["kind"] == "sample"]
    uncompiled = sum(one["kind"] == "sample" for one in case["failures"])
    right = [(job, one) for job, one in samples if one.status is Status.CORRECT]
    return {
        **{key: case[key] for key in ("case", "label", "operations", "offered", "compiled")},
        "measured": len(results),
        "status": dict(Counter(str(one.status) for one in results)),
        "first_error": next((one.error for one in results if one.error), ""),
        "samples": len(samples) + uncompiled,
        "valid_samples": len(right),
        "best": {when: _best(case, correct, when) for when in ("cold", "warm")},
        "peer": peers.get(case["case"]),
        "ranks": {when: _ranks(right, when) for when in ("cold", "warm")},
        "resources": _resources([(job, one) for job, one in pairs if one.kernels]),
    }


def _seconds(one: Measured, when: str) -> float:
    times = one.cold if when == "cold" else one.warm
    assert times, "a correct candidate has both"
    return times.median


def _best(case: Json, correct: Sequence[tuple[Job, Measured]], when: str) -> Json | None:
    if not correct:
        return None
    job, best = min(correct, key=lambda pair: _seconds(pair[1], when))
    seconds = _seconds(best, when)
    return {
        "name": best.name,
        "kind": job.notes["kind"],
        "seconds": seconds,
        "modelled": _modelled(job),
        "tflops": case["operations"] / seconds / 1e12,
    }


def _modelled(job: Job) -> float:
    """Seconds; JSON has no infinity, which stands for what the model takes to fit on no multiprocessor."""
    seconds = job.notes["modelled"]
    return float("inf") if seconds is None else float(seconds)


def _ranks(samples: Sequence[tuple[Job, Measured]], when: str) -> Json | None:
    """How the model orders samples: the rank correlation, and what its choice takes, over what the best one takes."""
    modelled = np.array([_modelled(job) for job, _ in samples])
    seconds = np.array([_seconds(one, when) for _, one in samples])
    if len(set(modelled)) < 2 or len(set(seconds)) < 2:  # nothing to order
        return None
    chosen = float(seconds[modelled.argmin()])
    return {"spearman": spearman(modelled, seconds), "regret": chosen / float(seconds.min()), "samples": len(samples)}


def spearman(one: Any, other: Any) -> float:
    """Rank correlation; equal values share the mean of their ranks."""

    def ranks(values: Any) -> Any:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def _resources(pairs: Sequence[tuple[Job, Measured]]) -> Json:
    """What was expected of registers and shared memory, beside what the driver says."""
    unlike_compiler, shared_off, register_ratios, spilling = [], [], [], 0
    for job, one in pairs:
        expected = {kernel.name: kernel for kernel in job.kernels}
        for kernel in one.kernels:
            said = expected[kernel.name]
            if said.registers not in (None, kernel.registers) or said.static_shared != kernel.static_shared:
                unlike_compiler.append(one.name)
            spilling += kernel.local_bytes > 0
        largest = max(kernel.static_shared + expected[kernel.name].dynamic_shared for kernel in one.kernels)
        if largest != job.notes["shared_bytes"]:
            shared_off.append(one.name)
        register_ratios.append(max(kernel.registers for kernel in one.kernels) / job.notes["registers"])
    return {
        "candidates": len(pairs),
        "unlike_the_compiler": unlike_compiler,
        "shared_bytes_unlike_the_rules": shared_off,
        "registers_over_the_rules": _spread(register_ratios),
        "kernels_that_spill": spilling,
    }


def _spread(values: Sequence[float]) -> Json | None:
    return {"least": min(values), "median": median(values), "most": max(values)} if values else None


# --- to read ---


def cells(row: Json) -> list[str]:
    """A row of the table."""
    best, peer, ranks = row["best"], row["peer"] or {}, row["ranks"]["cold"]
    timed = "cold" in peer
    ratio = {
        when: f"{peer[when]['median'] / best[when]['seconds']:.2f}" if timed and best[when] else ""
        for when in ("cold", "warm")
    }
    shown = {
        "case": row["case"],
        "measured": f"{row['measured']} of {row['compiled']}",
        "valid": f"{row['valid_samples']} of {row['samples']}",
        "best_cold": _microseconds(best["cold"]["seconds"] if best["cold"] else None),
        "best_warm": _microseconds(best["warm"]["seconds"] if best["warm"] else None),
        "tflops": f"{best['warm']['tflops']:.1f}" if best["warm"] else "",
        "peer_cold": _microseconds(peer["cold"]["median"]) if timed else peer.get("error", ""),
        "ratio_cold": ratio["cold"],
        "ratio_warm": ratio["warm"],
        "spearman": f"{ranks['spearman']:.2f}" if ranks else "",
        "regret": f"{ranks['regret']:.2f}" if ranks else "",
    }
    return [form.format(**shown) for _, form in COLUMNS]


def _microseconds(seconds: float | None) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds else ""


def notes(found: Json) -> list[str]:
    """What else is to be said, a line each."""
    device = found["device"]
    said = [f"{device['name']}, {device['architecture']}, driver {device['driver']}"]
    if found["peer_missing"]:
        said.append(f"no peer: {found['peer_missing']}")
    for row in found["cases"]:
        resources, spread = row["resources"], row["resources"]["registers_over_the_rules"]
        said.append(
            f"{row['case']}: of {resources['candidates']} candidates {len(resources['unlike_the_compiler'])} have "
            f"other registers or static shared memory than the compiler said, "
            f"{len(resources['shared_bytes_unlike_the_rules'])} other shared memory than the rules said, "
            f"{resources['kernels_that_spill']} kernels spill"
        )
        if spread:
            figures = ", ".join(f"{spread[key]:.2f}" for key in ("least", "median", "most"))
            said.append(f"{row['case']}: registers over those of the rules: {figures} (least, median, most)")
        if row["first_error"]:
            said.append(f"{row['case']}: the first error: {row['first_error']}")
        if row["peer"] and row["peer"].get("wrong"):
            said.append(f"{row['case']}: the peer's result: {row['peer']['wrong']}")
    return said


def markdown(found: Json) -> str:
    """The report as Markdown."""
    heads = [head for head, _ in COLUMNS]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in found["cases"]]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes(found))]) + "\n"
