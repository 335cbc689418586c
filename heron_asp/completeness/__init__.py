"""Is a space complete and sound? What runs, tried without any constraint, against what the space holds."""

from heron_asp.completeness.compare import Finding, check, compare
from heron_asp.completeness.evidence import Evidence, gather
from heron_asp.completeness.plant import Fault, Outcome, Planter

__all__ = ["Evidence", "Fault", "Finding", "Outcome", "Planter", "check", "compare", "gather"]
