"""Plain uniform sampling: the baseline of every search."""

from __future__ import annotations

import numpy as np

from heron_asp.measure.result import Measurement
from heron_asp.space import Candidate, Space

_PATIENCE = 40  # draws, as a multiple of the space's size, in vain after which a small space counts as exhausted


def fresh(space: Space, number: int, seen: set[str], rng: np.random.Generator) -> list[Candidate]:
    """Uniform candidates that were not seen before, fewer if there are no more.

    Draws until the number is reached; where the space is nearly exhausted, many draws repeat, and it gives up after
    having drawn the whole space forty times over in vain.
    """
    found: dict[str, Candidate] = {}
    size = space.size
    left = size - len(seen)
    while len(found) < min(number, left):
        draws = min(max(number, 8) * 2, 4096)
        before = len(found)
        for _ in range(_PATIENCE * max(1, min(size, 100_000) // draws)):
            for candidate in space.sample(draws, rng):
                if candidate.key not in seen and candidate.key not in found and len(found) < number:
                    found[candidate.key] = candidate
            if len(found) > before:
                break
        else:
            break
    return list(found.values())


class RandomSearch:
    """Uniform samples without repetition.

    Args:
        space: where to draw.
        seed: makes it reproducible.
        batch: candidates a round.
    """

    def __init__(self, space: Space, seed: int, batch: int = 16) -> None:
        self.space = space
        self.rng = np.random.default_rng(seed)
        self.batch = batch
        self.seen: set[str] = set()

    def ask(self, most: int) -> list[Candidate]:
        """The next candidates."""
        candidates = fresh(self.space, min(most, self.batch), self.seen, self.rng)
        self.seen.update(candidate.key for candidate in candidates)
        return candidates

    def tell(self, candidate: Candidate, measurement: Measurement) -> None:
        """Nothing is learnt."""
