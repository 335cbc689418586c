"""What can be wrong with an emulated program."""

from __future__ import annotations

from heron_asp.errors import HeronError


class EmulationError(HeronError):
    """A program does what no device would forgive: the message has the kernel, the block and the thread."""


class UnsupportedError(EmulationError):
    """The source has something that the emulator does not know: the message names it."""
