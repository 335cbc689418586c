"""Execution backends: what runs programs that TVM itself cannot run. One package an accelerator family."""
