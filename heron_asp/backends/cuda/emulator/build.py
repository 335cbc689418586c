"""Compiles a translated program with the C++ compiler of the host; what is compiled once is kept in a folder."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from heron_asp.backends.cuda.emulator.error import EmulationError, UnsupportedError
from heron_asp.errors import HeronError, MissingError

_HERE = Path(__file__).parent
_FILES = ("device.h", "runtime.h", "runtime.cc", "tiles.cc")
_SECONDS = 300
# Kernels reinterpret memory freely, wrap integers, and round after each operation; the loader needs one entry only.
_FLAGS = (
    *("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing"),
    *("-fwrapv", "-ffp-contract=off", "-w"),
)
# The sanitizer calls the runtime where an address does not suit the vector at it, and where an index leaves an array
# of registers or fragments. More optimization costs more than it saves: the tiles are compiled beforehand.
_KERNEL_FLAGS = ("-O1", "-fsanitize=alignment,bounds", "-fno-sanitize-recover=alignment,bounds")
# Taken if the compiler knows them: conversions of half precision, and registers that begin as garbage.
_OPTIONAL = ("-march=native", "-ftrivial-auto-var-init=pattern")


@functools.cache
def compiler() -> str:
    """The C++ compiler: the program that $CXX names, or g++, or clang++.

    Raises:
        MissingError: there is none.
    """
    chosen = os.environ.get("CXX", "").strip()
    for name in [chosen] if chosen else ["g++", "clang++"]:
        if found := shutil.which(name):
            return found
    what = f"CXX={chosen}: there is no such program" if chosen else "there is no C++ compiler (g++ or clang++)"
    raise MissingError(what, "CUDA programs are emulated with it: install g++, or set CXX")


def prepare() -> None:
    """Compiles the runtime unless that was done before.

    Raises:
        MissingError: there is no C++ compiler that can.
    """
    _runtime(_own_folder())


def library(code: str, folder: Path | None) -> bytes:
    """The shared library of a translated program.

    Args:
        code: what is compiled.
        folder: where the compiled runtime and all libraries are kept, by their contents. If left out, only the runtime
            is kept, in a folder of this user's beside temporary files.

    Raises:
        MissingError: there is no C++ compiler.
        UnsupportedError: the compiler refuses the code.
    """
    runtime = _runtime(folder or _own_folder())
    if folder is None:
        return _compiled(code, runtime)
    kept = folder / f"{hashlib.sha256(f'{runtime.name} {code}'.encode()).hexdigest()[:24]}.so"
    if not kept.exists():
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(_compiled(code, runtime))
        Path(file.name).replace(kept)
    return kept.read_bytes()


def _compiled(code: str, runtime: Path) -> bytes:
    with tempfile.TemporaryDirectory(prefix="heron_asp_emulator_") as scratch:
        source, compiled, linked = (Path(scratch) / f"kernel{suffix}" for suffix in (".cc", ".o", ".so"))
        source.write_text(code)
        include = ["-include", str(runtime / "device.h")]
        _compile([*_FLAGS, *_KERNEL_FLAGS, *_options(), *include, "-c", str(source), "-o", str(compiled)])
        _compile(["-shared", "-o", str(linked), *map(str, (compiled, runtime / "runtime.o", runtime / "tiles.o"))])
        return linked.read_bytes()


def _own_folder() -> Path:
    """A folder of this user's; one that others could write to is refused, since what lies in it is run."""
    folder = Path(tempfile.gettempdir()) / f"heron_asp_emulator_{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise HeronError(f"{folder} is not this user's alone", "remove it, or set TMPDIR")
    return folder


@functools.cache
def _options() -> tuple[str, ...]:
    probe = ["-x", "c++", "-fsyntax-only", os.devnull]
    return tuple(
        option
        for option in _OPTIONAL
        if not subprocess.run([compiler(), option, *probe], capture_output=True).returncode
    )


@functools.cache
def _version() -> str:
    done = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=False)
    return f"{done.stdout}{platform.machine()} {platform.node()}"  # `native` is another CPU on another machine


def _runtime(folder: Path) -> Path:
    """The folder of the compiled runtime and the precompiled header."""
    contents = [(_HERE / name).read_bytes() for name in _FILES]
    words = [_version(), compiler(), *_FLAGS, *_KERNEL_FLAGS, *_options()]
    digest = hashlib.sha256(b"\0".join([*contents, *(word.encode() for word in words)])).hexdigest()[:24]
    made = folder / f"runtime_{digest}"
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        work = Path(scratch) / "runtime"
        work.mkdir()
        for name in _FILES:
            shutil.copy(_HERE / name, work / name)
        try:
            for name in ("runtime", "tiles"):
                _compile([*_FLAGS, "-O3", *_options(), "-c", str(work / f"{name}.cc"), "-o", str(work / f"{name}.o")])
            header = ["-x", "c++-header", str(work / "device.h"), "-o", str(work / "device.h.gch")]
            _compile([*_FLAGS, *_KERNEL_FLAGS, *_options(), *header])
        except EmulationError as error:  # of our own source, which compilers can read
            raise MissingError(f"{compiler()} cannot be used: {error}", "CXX chooses another compiler") from None
        try:
            work.rename(made)
        except OSError:  # another process was faster
            if not made.exists():
                raise
    return made


def _compile(arguments: list[str]) -> None:
    try:
        done = subprocess.run(
            [compiler(), *arguments], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise EmulationError(f"the C++ compiler did not end within {_SECONDS} seconds") from None
    if done.returncode:
        raise UnsupportedError(f"the emulator cannot compile the CUDA source: {_complaint(done.stderr)}")


def _complaint(text: str) -> str:
    """The first error of a compiler, with its line in the source."""
    for line in text.splitlines():
        if match := re.search(r"([^/\s]+):(\d+):\d+: (?:fatal )?error: (.*)", line):
            place = f"line {match[2]}" if match[1] == "kernel.cc" else f"{match[1]}, line {match[2]}"
            return f"{place}: {match[3]}"
    return text.strip()[-300:]
