"""The run time of a library: threads, forks, scratch memory, company in one process."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

import heron_asp.library
from heron_asp.library import CCompiler, export_tuned
from heron_asp.library.call import SharedLibrary, aligned
from heron_asp.measure.data import cases
from heron_asp.operators import operator
from heron_asp.target import Target
from tests.library.conftest import Exported, interface_of, sampled
from tests.library.test_calls import OK, OUT_OF_MEMORY

PARALLEL = operator("gemm", {"m": 128, "n": 64, "k": 64})
LARGE = operator("batch_matmul", {"batch": 1, "m": 8, "n": 2048, "k": 1024})


def right(library: SharedLibrary, times: int = 1) -> bool:
    """Whether a parallel kernel computes what it should."""
    case = cases(PARALLEL)[0]
    return all(
        case.error(library.compute(interface_of(PARALLEL), PARALLEL, case.inputs, 0)) is None for _ in range(times)
    )


def alive() -> int:
    """Threads of this process: also those of NumPy's BLAS, which it starts when they are needed first, as here."""
    cases(PARALLEL)
    return len(list(Path("/proc/self/task").iterdir()))


def test_workers_start_when_they_are_needed(exported: Exported) -> None:
    def work(library: SharedLibrary) -> list[int]:
        before = alive()
        library.set_threads(1)
        assert right(library)
        alone = alive() - before
        library.set_threads(2)
        assert right(library)
        library.set_threads(64)  # the kernel was tuned for 2
        assert right(library, 20)
        return [alone, alive() - before]

    assert exported.call(work) == [0, 1]


def test_two_threads_may_call_at_the_same_time(exported: Exported) -> None:
    def work(library: SharedLibrary) -> list[bool]:
        library.set_threads(2)
        found: list[bool] = []
        callers = [threading.Thread(target=lambda: found.append(right(library, 200))) for _ in range(3)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        return found

    assert exported.call(work) == [True] * 3


def test_a_forked_child_has_workers_of_its_own(exported: Exported) -> None:
    def work(library: SharedLibrary) -> int:
        library.set_threads(2)
        assert right(library)
        child = os.fork()
        if child == 0:
            before = alive()
            os._exit(0 if right(library, 10) and alive() == before + 1 else 1)
        return os.waitpid(child, 0)[1]

    assert exported.call(work) == 0


def test_a_worker_that_sleeps_wakes_up(exported: Exported) -> None:
    def work(library: SharedLibrary) -> bool:
        import time

        library.set_threads(2)
        return all(time.sleep(0.01) is None and right(library) for _ in range(20))

    assert exported.call(work) is True


def test_out_of_memory_is_a_status_and_not_an_end(exported: Exported) -> None:
    interface = interface_of(LARGE)
    scratch = 2**21  # packing b takes that much

    def work(library: SharedLibrary) -> list[int]:
        import ctypes
        import resource

        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        tensors = {spec.name: aligned(spec.shape, spec.dtype.storage) for spec in LARGE.tensors}
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + scratch // 2, resource.RLIM_INFINITY))
        while libc.malloc(ctypes.c_size_t(scratch)):  # what earlier tests have freed
            pass
        found = [library.call(interface, LARGE.shape, tensors) for _ in range(2)]
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return [*found, library.call(interface, LARGE.shape, tensors)]

    assert exported.call(work) == [OUT_OF_MEMORY, OUT_OF_MEMORY, OK]


def test_scratch_memory_is_kept_and_freed_with_its_thread(exported: Exported) -> None:
    interface = interface_of(LARGE)

    def work(library: SharedLibrary) -> bool:
        tensors = {spec.name: aligned(spec.shape, spec.dtype.storage) for spec in LARGE.tensors}

        def resident() -> int:
            return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

        for _ in range(2):
            library.call(interface, LARGE.shape, tensors)
        before = resident()
        for _ in range(40):
            caller = threading.Thread(target=library.call, args=(interface, LARGE.shape, tensors))
            caller.start()
            caller.join()
        for _ in range(40):
            library.call(interface, LARGE.shape, tensors)
        return resident() - before < 2**24  # a leak would be 80 MiB

    assert exported.call(work) is True


PICK = """
#include "heron-runtime.h"
#include <stdio.h>
#include <stdlib.h>

_Thread_local struct heron_thread heron_self;
int heron_failed(void) { return 1; }

struct row { int extents_threads[3]; };
static const struct row rows[] = {{{1, 9, 1}}, {{2, 5, 2}}, {{2, 5, 4}}, {{2, 6, 1}}, {{7, 1, 8}}};

int main(int count, char **words)
{
    const int wanted[] = {atoi(words[1]), atoi(words[2]), atoi(words[count - 1])};
    const struct row *row = heron_pick(rows, 5, sizeof *row, wanted, 2);
    printf("%d", row == NULL ? 0 : row->extents_threads[2]);
}
"""


@pytest.fixture(scope="module")
def picker(compiler: CCompiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that picks from a table of rows: extents 2, 5 for 2 and 4 threads; 1, 9 and 2, 6 for 1; 7, 1 for 8."""
    folder = tmp_path_factory.mktemp("picker")
    (folder / "pick.c").write_text(PICK)
    templates = Path(heron_asp.library.__file__).parent / "templates"
    compiler.run(["-O1", "-std=gnu11", "-ftls-model=initial-exec", f"-I{templates}", "pick.c", "-o", "pick"], folder)
    return folder / "pick"


@pytest.mark.parametrize(
    ("first", "second", "setting", "picked"),
    [
        (2, 5, 1, 2),  # none for so few: the fewest
        (2, 5, 2, 2),
        (2, 5, 3, 2),
        (2, 5, 4, 4),
        (2, 5, 256, 4),
        (1, 9, 1, 1),
        (2, 6, 8, 1),
        (7, 1, 1, 8),
        (7, 1, 9, 8),
        (0, 1, 1, 0),
        (1, 8, 1, 0),
        (2, 4, 4, 0),
        (2, 7, 4, 0),
        (8, 1, 1, 0),
    ],
)
def test_the_kernel_for_the_most_threads_that_are_allowed_is_picked(
    picker: Path, first: int, second: int, setting: int, picked: int
) -> None:
    arguments = [str(picker), str(first), str(second), str(setting)]
    assert subprocess.run(arguments, capture_output=True, text=True, check=True).stdout == str(picked)


def test_the_setting_chooses_between_kernels_of_one_shape(exported: Exported) -> None:
    made = operator("gemm", {"m": 64, "n": 64, "k": 64})  # has a kernel for 1 thread and one for 2
    case = cases(made)[0]

    def work(library: SharedLibrary) -> list[int]:
        found = []
        for threads in (1, 2):
            library.set_threads(threads)
            before = alive()
            assert case.error(library.compute(interface_of(made), made, case.inputs)) is None
            found.append(alive() - before)
        return found

    assert exported.call(work) == [0, 1]


def test_two_libraries_and_tvm_live_in_one_process(
    exported: Exported, runnable: Target, compiler: CCompiler, tmp_path: Path
) -> None:
    other = export_tuned(
        [sampled(runnable, "gemm", threads=2, pins="fused(c, task)=2", m=128, n=64, k=64)], tmp_path, "other"
    )

    def work(library: SharedLibrary) -> list[bool]:
        from heron_asp.measure.kernel import build, use_threads

        second = SharedLibrary(tmp_path / other.library, "other")
        library.set_threads(2)
        second.set_threads(1)
        tuned = sampled(runnable, "gemm", threads=2, pins="fused(c, task)=2", m=128, n=64, k=64)
        use_threads(2)
        built = build(PARALLEL, tuned.task.program(tuned.candidate), runnable, 2)
        case = cases(PARALLEL)[0]
        by_tvm = case.error(built.run(case.inputs)) is None
        return [right(library), right(second), by_tvm, right(library), library.threads() == 2, second.threads() == 1]

    assert exported.call(work) == [True] * 6
