"""Builds, runs and checks candidates: every candidate in a process of its own, its result compared with the reference."""
