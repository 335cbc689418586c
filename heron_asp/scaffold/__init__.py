"""A family of accelerators to start from: a copy of a known one's rules and numbers, with tests of its own."""

from heron_asp.scaffold.family import Made, new_family

__all__ = ["Made", "new_family"]
