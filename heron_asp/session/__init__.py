"""Tuning many cases in one run: a network's layers, say. Trials go where they save most time."""

from heron_asp.session.cases import Case, read_cases
from heron_asp.session.session import Session, SessionOptions
from heron_asp.session.summary import CaseProgress, SessionOutcome, SessionProgress

__all__ = ["Case", "CaseProgress", "Session", "SessionOptions", "SessionOutcome", "SessionProgress", "read_cases"]
