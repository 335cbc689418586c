"""Measures candidates in the process of the worker: the device, the buffers that candidates share, one at a time."""

from __future__ import annotations

import ctypes
import hashlib
from contextlib import ExitStack, suppress
from math import prod
from pathlib import Path
from typing import Any, Callable

import numpy as np

from .data import compare, drawn, element, numbers, stored
from .driver import Driver, DriverError, runs_on
from .options import Json, Options, WorkerError
from .timing import Stopwatch

_GUARD = 4096  # bytes behind a buffer that must stay as they are
_OF_KERNEL = {"static_shared": 1, "local_bytes": 3, "registers": 4}  # numbers of CUfunction_attribute

Launch = Callable[[], None]


class RejectedError(Exception):
    """A candidate has no time: its status (`compile`, `runtime`, `correctness`) and why."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Buffer:
    """A tensor on the device, with a guard behind it."""

    def __init__(self, driver: Driver, said: Json) -> None:
        self._driver = driver
        self.name = str(said["name"])
        self.use = str(said["use"])
        self.storage = str(said["storage"])
        self.count = prod(said["shape"])
        self.nbytes = self.count * element(self.storage).itemsize
        self.poison = 0xFF if "float" in self.storage else 0xA5  # every float is then not a number
        self.address = driver.allocate(self.nbytes + _GUARD)

    def spoil(self) -> None:
        """Fills it, and the guard, with what no kernel means to write."""
        self._driver.fill(self.address, self.poison, self.nbytes + _GUARD)

    def contents(self) -> np.ndarray[Any, Any]:
        """Its numbers, flat.

        Raises:
            RejectedError: the guard has changed.
        """
        found = self._driver.download(self.address, self.nbytes + _GUARD)
        changed = np.flatnonzero(found[self.nbytes :] != self.poison)
        if changed.size:
            raise RejectedError("correctness", f"a kernel writes behind the end of {self.name}, {changed[0]} bytes on")
        return numbers(found[: self.nbytes].view(element(self.storage)), self.storage)


class Bench:
    """A device and what all candidates of a folder share.

    Attributes:
        facts: about the device.

    Raises:
        WorkerError: there is no device, or the cubins are not for it.
    """

    def __init__(self, folder: Path, jobs: Json, options: Options) -> None:
        self._folder = folder
        self._driver = driver = Driver(options.driver)
        self.facts = driver.facts()
        if not runs_on(jobs["architecture"], self.facts["architecture"]):
            said = f"{folder} holds cubins for {jobs['architecture']}, {self.facts['name']} is"
            raise WorkerError(f"{said} {self.facts['architecture']}", "compile for that architecture")
        self._buffers = {one["name"]: Buffer(driver, one) for one in jobs["buffers"]}
        self._cases = [(case, self._inputs(case)) for case in jobs["cases"]]
        self._stopwatch = self._make_stopwatch(options.timing)
        self.facts["event_seconds"] = self._stopwatch.of_nothing

    def _make_stopwatch(self, budget: float) -> Stopwatch:
        driver, nbytes = self._driver, 2 * int(self.facts["l2_bytes"])
        flushed, begin, end = driver.allocate(nbytes), driver.event(), driver.event()
        return Stopwatch(
            lambda: driver.fill(flushed, 0, nbytes),
            lambda: driver.record(begin),
            lambda: driver.record(end),
            lambda: driver.seconds(begin, end),
            budget,
        )

    def _inputs(self, case: Json) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of a case, as they lie in memory."""
        made = {}
        for name, said in case["inputs"].items():
            buffer, draw = self._buffers[name], said["draw"]
            if draw:
                made[name] = stored(drawn(draw["seed"], buffer.count, draw["low"], draw["high"]), buffer.storage)
            else:
                made[name] = np.load(self._folder / said["file"])
        return made

    def measure(self, job: Json) -> tuple[Json, bool]:
        """The line of a candidate, and whether the context can still be used."""
        row: Json = {"id": job["id"], "status": "correct"}
        try:
            with ExitStack() as held:
                self._measure(job, row, held)
            self._driver.synchronize()
        except (RejectedError, DriverError) as error:
            row.update(status=getattr(error, "status", "runtime"), error=str(error))
        try:
            self._driver.synchronize()
        except DriverError:
            return row, False
        return row, True

    def _measure(self, job: Json, row: Json, held: ExitStack) -> None:
        module = self._module(job)
        held.callback(self._give_back, self._driver.unload, module)
        buffers = dict(self._buffers)
        for said in job["scratch"]:
            buffers[said["name"]] = scratch = Buffer(self._driver, said)
            held.callback(self._give_back, self._driver.free, scratch.address)
        launches = [self._launch(module, kernel, buffers, row) for kernel in job["kernels"]]
        row["worst"] = max(self._check(case, inputs, launches, buffers) for case, inputs in self._cases)
        self._upload(self._cases[0][1])  # data of which no rows are zero: a device draws less power on zeros
        row["cold"], row["warm"] = self._stopwatch.times(lambda: _enqueue(launches))

    def _give_back(self, free: Callable[[Any], None], what: Any) -> None:
        with suppress(DriverError):  # after an error that lost the context; `measure` finds out
            free(what)

    def _upload(self, inputs: dict[str, np.ndarray[Any, Any]]) -> None:
        for name, array in inputs.items():
            self._driver.upload(self._buffers[name].address, array)

    def _module(self, job: Json) -> Any:
        try:
            cubin = (self._folder / job["cubin"]).read_bytes()
        except OSError as error:
            raise RejectedError("compile", f"{job['cubin']}: {error.strerror}") from None
        if hashlib.sha256(cubin).hexdigest() != job["sha256"]:
            raise RejectedError("compile", f"{job['cubin']} is damaged: its hash is not the one in jobs.json")
        try:
            return self._driver.load(cubin)
        except DriverError as error:
            raise RejectedError("compile", f"{job['cubin']}: {error}") from None

    def _launch(self, module: Any, kernel: Json, buffers: dict[str, Buffer], row: Json) -> Launch:
        """A function that enqueues a kernel; what the driver knows of the kernel is added to the row."""
        driver, dynamic = self._driver, kernel["dynamic_shared"]
        try:
            function = driver.function(module, kernel["name"])
        except DriverError as error:
            raise RejectedError("compile", f"kernel {kernel['name']}: {error}") from None
        try:
            driver.allow_shared(function, dynamic)
        except DriverError as error:
            said = f"kernel {kernel['name']} asks for {dynamic} bytes of dynamic shared memory: {error}"
            raise RejectedError("runtime", said) from None
        facts = {key: driver.attribute(function, number) for key, number in _OF_KERNEL.items()}
        facts["occupancy"] = driver.occupancy(function, prod(kernel["block"]), dynamic)
        row.setdefault("kernels", []).append({"name": kernel["name"], **facts})
        values = (ctypes.c_uint64 * len(kernel["arguments"]))(*(buffers[name].address for name in kernel["arguments"]))
        first, size = ctypes.addressof(values), ctypes.sizeof(ctypes.c_uint64)
        places = [first + at * size for at in range(len(values))]
        parameters = (ctypes.c_void_p * (len(places) + 1))(*places, None)  # a driver that counts them needs an end
        shape = [*kernel["grid"], *kernel["block"], dynamic]

        def launch(values: Any = values) -> None:  # which `parameters` point to
            driver.call("cuLaunchKernel", function, *shape, None, parameters, None)

        return launch

    def _check(
        self,
        case: Json,
        inputs: dict[str, np.ndarray[Any, Any]],
        launches: list[Launch],
        buffers: dict[str, Buffer],
    ) -> float:
        """Runs a candidate on a case: the largest error as a share of what is allowed."""
        self._upload(inputs)
        written = [buffer for buffer in buffers.values() if buffer.use != "input"]
        for buffer in written:
            buffer.spoil()
        _enqueue(launches)
        self._driver.synchronize()
        worst = 0.0
        for buffer in written:
            result = buffer.contents()
            if buffer.name in case["results"]:
                wrong, share = compare(result, case["results"][buffer.name], self._folder)
                if wrong:
                    raise RejectedError("correctness", f"{case['name']} inputs: {wrong} of {buffer.name}")
                worst = max(worst, share)
        return worst


def _enqueue(launches: list[Launch]) -> None:
    for launch in launches:
        launch()
