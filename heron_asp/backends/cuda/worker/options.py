"""What a run of the worker is told, and the failure that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Dict

USAGE, MISSING, INTERRUPTED = 2, 5, 130  # exit codes, as those of heron-asp


Json = Dict[str, Any]


class WorkerError(Exception):
    """Nothing can be measured: what is wrong, what would help, the exit code."""

    def __init__(self, message: str, hint: str = "", code: int = USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


@dataclass(frozen=True)
class Options:
    """How candidates are measured.

    Attributes:
        driver: the driver's library.
        limit: seconds after which nothing is started; what then runs is ended, and measured in the next run.
        job_limit: seconds that a candidate may take.
        timing: seconds that each of its two timings may take, beyond the least number of repetitions.
    """

    driver: str = "libcuda.so.1"
    limit: float = inf
    job_limit: float = 20.0
    timing: float = 0.25
