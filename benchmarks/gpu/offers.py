"""The candidates of a case: uniform samples of its space, then the best that the model finds among many more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gpu.prepare import Case, Offer

from heron_asp import Task
from heron_asp.backends.cuda.build import build, fragment_registers, shared_memory
from heron_asp.backends.cuda.model import Work, estimate
from heron_asp.backends.cuda.modelled import element_bytes, gpu_of, work_of
from heron_asp.errors import HeronError, InternalError, telling_line
from heron_asp.space import Candidate

SAMPLES, BEST, POOL = 32, 32, 1024


def candidates_of(case: Case, samples: int = SAMPLES, best: int = BEST, pool: int = POOL) -> Iterator[Offer]:
    """Candidates of a case.

    Args:
        case: what is computed, and where.
        samples: how many are drawn; the share of valid ones is theirs.
        best: how many of the best of the model follow.
        pool: how many the model chooses among.

    Raises:
        HeronError: the case has no program that uses the matrix instructions.
    """
    task = Task(case.operator, case.target)
    gpu = gpu_of(case.target, element_bytes(task))
    drawn = task.space.sample(pool, np.random.default_rng(0))
    distinct = {one.key: one for one in drawn if task.space[one.sketch].sketch.tensorized}
    if not distinct:
        raise HeronError(f"{task.operator.label} on {case.target.name}: no program uses a matrix instruction")
    works = {key: _work(task, one) for key, one in distinct.items()}
    seconds = {key: estimate(gpu, work, cold=True).seconds for key, work in works.items()}
    first = list(distinct)[:samples]
    ranked = sorted((key for key in list(distinct)[samples:]), key=lambda key: seconds[key])
    for kind, keys in (("sample", first), ("modelled", ranked[:best])):
        for number, key in enumerate(keys):
            yield _offer(f"{kind}-{number}", task, distinct[key], works[key], seconds[key], kind)


def _offer(name: str, task: Task, candidate: Candidate, work: Work, seconds: float, kind: str) -> Offer:
    try:
        program = build(task, candidate)
    except InternalError:
        raise
    except Exception as error:  # TVM refuses the schedule: a hole in the constraints, and a failure like any other
        return Offer(name, None, work, seconds, kind, f"not made: {telling_line(error)}")
    return Offer(name, program, work, seconds, kind)


def _work(task: Task, candidate: Candidate) -> Work:
    """A candidate as the model sees it before it is made: registers and shared memory are as the rules count them."""
    return work_of(task, candidate, fragment_registers(task, candidate), shared_memory(task, candidate))
