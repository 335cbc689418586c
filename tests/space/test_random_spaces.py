"""Random small spaces: the circuit against clingo's enumeration, with rules of the user's own. `soak.py` runs on."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.space.soak import check, loosened, random_task


@given(st.integers(0, 2**32))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_spaces_are_exact(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for part in random_task(rng, Path(folder)).space:
            check(part, rng)
            loosened(part, rng)
