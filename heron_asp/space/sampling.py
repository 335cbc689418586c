"""Uniform samples of several sketches' spaces together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from heron_asp.space.candidate import Candidate, Pins, Weighting
from heron_asp.space.compiled import Compiled

if TYPE_CHECKING:
    from heron_asp.space.sketch_space import SketchSpace

_BATCH = 1_024  # draws at once where some are rejected
_ROUNDS = 32  # batches of which every draw was rejected, before another way is tried


@dataclass(frozen=True)
class _Source:
    """A sketch with a compiled problem to draw from."""

    part: SketchSpace
    compiled: Compiled
    weights: Mapping[int, npt.NDArray[np.float64]]

    def draw(self, number: int, rng: np.random.Generator) -> list[Candidate]:
        return [self.part.candidate_of(row) for row in self.compiled.draw(number, rng, self.weights)]


def sample(
    parts: Sequence[SketchSpace],
    number: int,
    rng: np.random.Generator,
    pins: Pins,
    weighting: Weighting | None,
) -> list[Candidate]:
    """Independent programs, uniform over the union of some sketches' spaces, or in proportion to their weight.

    A sketch is drawn by the share of its circuit, then a solution of the circuit; what is rejected is drawn anew, the
    sketch included. Where next to nothing is accepted, the pinned problems are compiled by themselves.

    Raises:
        HeronError: no program was found, and that is no proof that there is none.
    """
    if len(parts) == 1 and parts[0].exact:  # the common case, without detours
        weights = parts[0].weights(pins, weighting)
        return [] if weights is None else _Source(parts[0], parts[0].compiled, weights).draw(number, rng)
    found: list[Candidate] = []
    for sources in _ways(parts, pins, weighting):
        exact = all(source.compiled.exact for source in sources)
        shares = np.array([source.compiled.total(source.weights) for source in sources])
        in_vain = 0
        while shares.sum() > 0 and len(found) < number and in_vain < _ROUNDS:
            drawn = rng.multinomial(number if exact else max(number, _BATCH), shares / shares.sum())
            batch = [one for source, k in zip(sources, drawn, strict=True) for one in source.draw(int(k), rng)]
            found += [batch[i] for i in rng.permutation(len(batch))]
            in_vain = 0 if batch else in_vain + 1
        if found or exact:
            return found[:number]
    for part in parts:
        part.require_found(pins)
    return []


def _ways(parts: Sequence[SketchSpace], pins: Pins, weighting: Weighting | None) -> Iterator[list[_Source]]:
    for pinned in (False, True):
        sources = []
        for part in parts:
            weights = part.weights(pins, weighting)
            if weights is not None:
                sources.append(_Source(part, part.pinned(pins) if pinned else part.compiled, weights))
        yield sources
