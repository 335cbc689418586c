"""The space of valid programs: ground by clingo, compiled into an exact circuit, counted and sampled."""

from heron_asp.limits import SpaceLimits
from heron_asp.space.candidate import Candidate, Pins, Values, Weighting, is_shown
from heron_asp.space.conflict import Core, Guarded
from heron_asp.space.own_rules import OwnRules, own_rules
from heron_asp.space.sketch_space import SketchSpace
from heron_asp.space.space import Space

__all__ = [
    "Candidate",
    "Core",
    "Guarded",
    "OwnRules",
    "Pins",
    "SketchSpace",
    "Space",
    "SpaceLimits",
    "Values",
    "Weighting",
    "is_shown",
    "own_rules",
]
