"""Exports tuned programs for VTA as plain C: instructions, micro-ops, and what brings tensors into VTA's layout.

kernels      programs, their tensors and functions           kernel
moving       programs at other addresses, checked there      moving
layouts      loops that pack and unpack                      packing
example      the operators in plain C                        reference
library      the files                                       export, manifest, templates
"""

from heron_asp.backends.vta.library.export import export, export_tuned
from heron_asp.backends.vta.library.manifest import Manifest

__all__ = ["Manifest", "export", "export_tuned"]
