"""The backend for NVIDIA GPUs: TVM makes CUDA C++ of schedules, nvcc compiles it, an emulator runs it on the CPU."""

from heron_asp.backends.cuda.backend import BACKEND

__all__ = ["BACKEND"]
