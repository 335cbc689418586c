"""The space of an operator on a target: the disjoint union of its sketches' spaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from heron_asp.errors import InternalError
from heron_asp.limits import SpaceLimits
from heron_asp.sketch import Sketch
from heron_asp.space.candidate import Candidate, Pins, Weighting
from heron_asp.space.own_rules import OwnRules
from heron_asp.space.sampling import sample
from heron_asp.space.sketch_space import SketchSpace


class Space:
    """The space of an operator on a target.

    Args:
        sketches: the sketches that are searched.
        relaxed: names of constraints that are lifted.
        own: constraints of the user's own.
        limits: what compiling a sketch may take.
    """

    def __init__(
        self,
        sketches: Sequence[Sketch],
        relaxed: Iterable[str] = (),
        own: OwnRules | None = None,
        limits: SpaceLimits | None = None,
    ) -> None:
        lifted = tuple(relaxed)
        self.parts = [SketchSpace(sketch, lifted, own, limits) for sketch in sketches]
        self._by_name = {part.name: part for part in self.parts}
        if len(self._by_name) < len(self.parts):
            raise InternalError(f"two sketches have the same name: {[part.name for part in self.parts]}")

    def __iter__(self) -> Iterator[SketchSpace]:
        return iter(self.parts)

    def __getitem__(self, name: str) -> SketchSpace:
        return self._by_name[name]

    @property
    def size(self) -> int:
        """Number of programs: exact where `exact` is true, otherwise an estimate."""
        return sum(part.size for part in self.parts)

    @property
    def exact(self) -> bool:
        """Whether every sketch is compiled exactly."""
        return all(part.exact for part in self.parts)

    def sample(
        self,
        number: int,
        rng: np.random.Generator,
        pins: Pins | None = None,
        weighting: Weighting | None = None,
    ) -> list[Candidate]:
        """Independent uniform programs: each sketch is drawn by its share. None if there is no program.

        A pin on a variable that a sketch does not have leaves that sketch out; a weighting only reshapes the sketches
        that have all of its variables, and leaves the others out.
        """
        named = {*(pins or {}), *(weighting or {})}
        parts = [part for part in self.parts if named <= part.variables.keys()] if named else self.parts
        return sample(parts, number, rng, pins or {}, weighting)

    def count(self, pins: Pins) -> int:
        """Number of programs under pins."""
        return sum(self.count_in(part, pins) for part in self.parts)

    @staticmethod
    def count_in(part: SketchSpace, pins: Pins) -> int:
        """Number of a sketch's programs under pins; none where it lacks a pinned variable."""
        if not pins:
            return part.size
        return part.count(pins) if all(variable in part.variables for variable in pins) else 0
