"""The command line. Commands import what they need when they run, so that `--help` answers at once."""

from heron_asp.cli.app import main

__all__ = ["main"]
