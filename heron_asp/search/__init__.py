"""Searches over a space. A search asks for measurements and is told their outcome; it never measures by itself."""

from heron_asp.search.cga import ConstrainedGenetic, SearchOptions
from heron_asp.search.random import RandomSearch
from heron_asp.search.search import Search

__all__ = ["ConstrainedGenetic", "RandomSearch", "Search", "SearchOptions"]
