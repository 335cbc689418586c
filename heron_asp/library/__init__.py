"""Exports tuned kernels as a plain C library: header, manifest and examples included, no TVM at run time."""

from heron_asp.library.choice import Tuned
from heron_asp.library.compiler import CCompiler, find_compiler
from heron_asp.library.export import export, export_tuned
from heron_asp.library.manifest import Manifest

__all__ = ["CCompiler", "Manifest", "Tuned", "export", "export_tuned", "find_compiler"]
