"""Devices without hardware: every program of a space has a made-up time."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from heron_asp.measure.replay import ReplayDevice
from heron_asp.measure.result import Measurement, Status
from heron_asp.space import Candidate
from heron_asp.store import Row, rows
from heron_asp.task import Task
from heron_asp.terms import parse


def invented(task: Task) -> ReplayDevice:
    """A device with a made-up but plausible time for every program of a space; some programs fail."""
    table: dict[str, Measurement] = {}
    m, n = parse("tile(c, m, register)"), parse("tile(c, n, register)")
    for part in task.space:
        rng = np.random.default_rng(0)
        everything: dict[str, Candidate] = {}
        while len(everything) < part.size:
            everything.update({one.key: one for one in part.sample(part.size, rng)})
        for key, one in everything.items():
            tile = int(one.values[m]) * int(one.values[n])
            cost = 1e-6 * (1 + abs(tile - 12) / 4 + (one.sketch != "vpdpbusd") + (hash_of(key) % 100) / 200)
            fails = hash_of(key) % 17 == 0
            table[key] = (
                Measurement(Status.RUNTIME, error="made up") if fails else Measurement(Status.CORRECT, cost, (cost,))
            )
    return ReplayDevice(table, "made up", peak=1e14)


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


class Stops(ReplayDevice):
    """A device that breaks off after so many measurements, the way a kill does: without a word."""

    left = 0

    def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
        if self.left == 0:
            raise SystemExit
        self.left -= 1
        return super().measure(candidate, best)


def finished(path: Path) -> list[Row]:
    return [row for row in rows(path / "trials.jsonl") if row["event"] == "finished"]
