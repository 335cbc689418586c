"""What runs on the machine with the GPU: first the peer, then the worker, case by case, until the time is over.

Standard library only. It may be called again: what has a result is skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path

SESSION, PEERS, WORKER = "session.json", "peers.jsonl", "worker.pyz"
_PEER_SHARE = 0.3  # of the time, at most
_SETTLING = 5.0  # seconds that the worker may take beyond its limit, to end what hangs
_STOP = (5, 130)  # exit codes of the worker: no device, interrupted


def run(session: Path, limit: float, driver: str, peer: bool = True, python: str = sys.executable) -> int:
    """Measures a session.

    Args:
        session: what `prepare` wrote.
        limit: seconds for all.
        driver: the CUDA driver's library.
        peer: time the peer too.
        python: that has numpy, and torch if there is to be a peer.

    Returns:
        the exit code: 0 if all was measured or the time is over, otherwise the worker's last that is not.
    """
    deadline = time.monotonic() + limit
    cases = [one["case"] for one in json.loads((session / SESSION).read_text())["cases"]]
    failed = 0
    if peer:
        _peer(session, _PEER_SHARE * limit, python)
    for at, case in enumerate(cases):
        left = deadline - time.monotonic()
        if left <= 0:
            _say(f"the time is over, {len(cases) - at} cases are left")
            break
        share = left / (len(cases) - at)
        _say(f"{case}: {share:.0f} s at most")
        command = [python, str(session / WORKER), str(session / case), "--driver", driver, "--limit", f"{share:.1f}"]
        code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        failed = code or failed
        if code in _STOP:
            break
    return failed


def pack(session: Path, file: Path) -> None:
    """Writes all results as one tar file, to bring them back: `tar -xf FILE -C SESSION`."""
    with tarfile.open(file, "w") as archive:
        for found in sorted([*session.glob("*/results.jsonl"), *session.glob(PEERS)]):
            archive.add(found, str(found.relative_to(session)))


def _peer(session: Path, seconds: float, python: str) -> None:
    """Times the peer; what it has not done in its time is left out."""
    command = [python, str(Path(__file__).with_name("peer.py")), str(session)]
    try:
        subprocess.run(command, timeout=seconds + _SETTLING, check=False)
    except subprocess.TimeoutExpired:
        _say("the peer takes too long; the rest is left out")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
