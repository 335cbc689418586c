"""Measures a library of TVM's on a machine that runs a TVM RPC server: the other way, where TVM is installed there.

The library holds CUDA source, which the server's TVM compiles at the first call, so nvcc or NVRTC is needed there too.
It needs psutil, cloudpickle and tornado here and there: `pip install 'heron-asp[rpc]'`.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.errors import ExitCode, HeronError, MissingError

_ANSWERING = 10.0  # seconds


@dataclass(frozen=True)
class RpcResult:
    """What a function did.

    Attributes:
        output: the last argument after a call.
        seconds: of a call, one number a repetition, with a warm cache.
    """

    output: npt.NDArray[Any]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class RpcRunner:
    """A device behind a TVM RPC tracker.

    Attributes:
        tracker: host and port.
        key: under which servers have announced themselves.
        device: TVM's name of a kind of device.
        timeout: seconds that a session may last; for a server that others use it is waited.
    """

    tracker: tuple[str, int]
    key: str
    device: str = "cuda"
    timeout: int = 60

    def run(
        self,
        library: Path,
        function: str,
        inputs: Sequence[npt.NDArray[Any]],
        output: npt.NDArray[Any],
        repeats: int = 10,
    ) -> RpcResult:
        """Uploads a library, calls a function of it once for its result, then times it.

        Args:
            library: what `tvm.compile(...).export_library` wrote.
            function: its name there.
            inputs: the first arguments.
            output: contents of the last argument before the call: its shape, its type, and what must not be left.
            repeats: of the timing.

        Raises:
            MissingError: what RPC needs is not installed, or no server answers.
            HeronError: the server cannot load or run the library.
        """
        session = self._session()
        try:
            session.upload(str(library))
            made = session.load_module(library.name)
            device = session.device(self.device, 0)
            arguments = [_sent(array, device) for array in (*inputs, output)]
            made[function](*arguments)
            device.sync()
            result = arguments[-1].numpy()
            times = made.time_evaluator(function, device, number=1, repeat=repeats)(*arguments).results
        except Exception as error:  # whatever the other side raises comes as an error of TVM's
            said = (str(error).strip().splitlines() or ["no message"])[-1]
            raise HeronError(f"RPC server '{self.key}', {library.name}: {said}") from error
        return RpcResult(result, tuple(map(float, times)))

    def _session(self) -> Any:
        where = f"{self.tracker[0]}:{self.tracker[1]}"
        try:
            from tvm import rpc

            socket.create_connection(self.tracker, _ANSWERING).close()  # TVM itself tries for a minute
            tracker = rpc.connect_tracker(*self.tracker)
            announced = sorted(tracker.summary()["queue_info"])
            if self.key not in announced:  # a request would wait for one to come
                raise RuntimeError(f"announced are {', '.join(announced) or 'none'}")
            return tracker.request(self.key, session_timeout=self.timeout)
        except ImportError as error:
            raise MissingError(f"TVM RPC needs {error.name}", "pip install 'heron-asp[rpc]'") from None
        except (RuntimeError, OSError) as error:
            said = (str(error).strip().splitlines() or ["no message"])[-1]
            hint = f"python -m tvm.exec.query_rpc_tracker --host {self.tracker[0]} --port {self.tracker[1]}"
            raise HeronError(f"no server '{self.key}' at {where}: {said}", hint, ExitCode.MISSING) from None


def _sent(array: npt.NDArray[Any], device: Any) -> Any:
    import tvm

    return tvm.runtime.tensor(np.ascontiguousarray(array), device)
