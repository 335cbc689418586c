"""Builds, runs and checks candidates, each in a process of its own, its result compared with the reference."""
