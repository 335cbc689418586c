"""`python -m heron_asp`."""

from heron_asp.cli import main

main()
