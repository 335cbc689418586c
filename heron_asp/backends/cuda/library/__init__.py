"""Exports programs for GPUs: CUDA C++, machine code, and what launches it from C."""

from heron_asp.backends.cuda.library.export import Manifest, export, export_tuned

__all__ = ["Manifest", "export", "export_tuned"]
