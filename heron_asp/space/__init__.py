"""The search space: exact count, uniform samples, samples under pins, marginals."""

from heron_asp.space.space import Candidate, Pins, SketchSpace, Space

__all__ = ["Candidate", "Pins", "SketchSpace", "Space"]
