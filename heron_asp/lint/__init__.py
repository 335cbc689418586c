"""Looks at rule files before they run: mistakes that clingo lets pass, or reports far from their cause."""

from heron_asp.lint.finding import Code, Finding
from heron_asp.lint.report import Report, lint

__all__ = ["Code", "Finding", "Report", "lint"]
