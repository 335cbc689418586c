"""Exported int8 kernels against vendors' libraries: the operators of Heron's evaluation, and networks, layer by layer.

    pip install -e '.[peers]'                 # oneDNN 3.2 on libgomp and its headers, onnxruntime; needs g++
    python benchmarks/dlboost_suite.py --budget 30m --out runs/suite            the 49 operators
    python benchmarks/dlboost_suite.py --only C2D1,G1 --threads 1 --out runs/suite
    python benchmarks/dlboost_suite.py --network resnet50 --out runs/resnet50   layers and their sum, batch 1
    python benchmarks/dlboost_suite.py --preset gemm --out runs/gemm            five matrix products

Every case is tuned (64 trials; 200 where it stayed slower than oneDNN; 32 for layers of networks), all kernels are
exported into one library, and each case is compared in a process of its own. Ours and oneDNN are called from C on the
same data, weights packed ahead on both sides (batch_matmul multiplies two activations: packed by neither), activations
and results as the user has them: rows one after the other, channels last. Outputs are checked against NumPy first and
once more after the timing. Sides are timed in turn: a round is the best of some blocks of 4 ms for each, a ratio the
median over the rounds in which others left the machine alone; above 1 ours is faster, within 2 % is a tie. Where oneDNN
has two primitives for a product, its faster one counts; its reference implementations are shown and do not count.
onnxruntime and NumPy are called from Python, which costs microseconds. A case that cannot be run is a row with its
error.

`of peak` leaves out the products with padding, which some programs skip; GOP/s count them, as is usual. `of bound` is
the share of the roofline: arithmetic at the peak, operands once from the nearest level of memory with room, a call.

Runs are kept in --out and continued: what the budget did not reach is tuned by the same command again. Networks are
listed for f16 and a batch of 16; here they run for one input in u8 x s8 -> s32. A scan is a product with a triangular
matrix of ones, which oneDNN multiplies with and NumPy need not; it stays outside the means.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from peers.compare import Bench, Open, onednn
from peers.interpreted import NUMPY, ONNXRUNTIME, numpy_side, onnxruntime_side
from peers.machine import Machine, best_of
from peers.native import Clock
from peers.onednn import NAME as ONEDNN
from peers.ours import NAME as OURS
from peers.ours import Ours, build_callers, operator_of
from peers.rows import Found, row_of, to_json
from peers.show import print_rows
from peers.suite import Case, chosen, gemm_cases, network_cases, networks, operator_cases
from peers.tuned import Exported, Libraries, Tuner
from peers.workload import Workload

from heron_asp import resolve_target
from heron_asp.child import Report, run_in_child
from heron_asp.errors import ExitCode, HeronError, InternalError
from heron_asp.host import require_host
from heron_asp.library.interface import Interface
from heron_asp.operators import Operator
from heron_asp.task import available_threads

TRIALS, MORE_TRIALS, LAYER_TRIALS = 64, 200, 32
_LOOK_EVERY = 10  # cases after which the machine is measured once more
_EMPTY_CALL = 2e-9  # seconds that a call of nothing takes, where there is no library to ask


class Suite:
    """Tunes, exports and compares a list of cases.

    Args:
        cases: what is compared.
        tuner: tunes it.
        out: the folder of everything.
        rounds: of a comparison.
        peers: beside oneDNN, which other libraries are timed.
    """

    def __init__(self, cases: Sequence[Case], tuner: Tuner, out: Path, rounds: int, peers: Sequence[str]) -> None:
        self.cases = cases
        self.tuner = tuner
        self.out = out
        self.rounds = rounds
        self.peers = peers
        self.bench = Bench(out / "build")
        self.libraries = Libraries()
        self.callers: dict[str, Path] = {}
        self.machines: dict[int, list[Machine]] = {}
        self.operators: dict[str, Operator] = {}
        self.unknown: dict[str, str] = {}
        for case in cases:
            try:
                self.operators[case.name] = operator_of(case.workload)
            except HeronError as error:
                self.unknown[case.name] = str(error)

    def tune(self, cases: Sequence[Case], threads: int, trials: int) -> None:
        """Tunes cases."""
        self.tuner.tune((self.operators[one.name] for one in cases if one.name in self.operators), threads, trials)

    def export(self) -> None:
        """Exports all that is tuned."""
        self.libraries = Libraries()
        self.libraries.export(self.tuner.runs, self.out / "lib")
        self.callers = {}
        for library in {one.name: one for one in self.libraries.found.values()}.values():
            functions = {one.function: one for one in map(Interface.of, self._operators_in(library))}
            folder = self.bench.folder
            self.callers[library.name] = build_callers(library.folder, library.name, functions.values(), folder)

    def _operators_in(self, library: Exported) -> list[Operator]:
        labels = {label for (label, _), one in self.libraries.found.items() if one is library}
        return [made for made in self.operators.values() if made.label in labels]

    def compare(self, case: Case, threads: int) -> Found:
        """Compares a case."""
        workload = case.workload
        errors: dict[str, str] = {}
        sides: dict[str, Open] = {}
        key = (self.operators[case.name].label, threads) if case.name in self.operators else None
        library = self.libraries.found.get(key) if key else None
        if library is not None and key is not None:
            sides[OURS] = self._ours(workload, key, library)
        else:
            errors[OURS] = self.unknown.get(case.name) or self._why_not(key)
        if self.bench.onednn is not None:
            sides[ONEDNN] = onednn(self.bench.onednn, workload, threads)
        else:
            errors[ONEDNN] = self.bench.missing
        makers = {ONNXRUNTIME: onnxruntime_side, NUMPY: numpy_side}
        others: dict[str, Open] = {name: makers[name](workload, threads) for name in self.peers}
        found = self.bench.compare(workload, threads, sides, others, self.rounds)
        return Found(case, threads, found, self.tuner.trials.get(key) if key else None, errors)

    def compare_all(self, wanted: Sequence[tuple[Case, int]]) -> dict[tuple[str, int], Found]:
        """Exports all that is tuned and compares cases on numbers of threads."""
        if not wanted:
            return {}
        self.export()
        found = {}
        for number, (case, threads) in enumerate(wanted):
            if number % _LOOK_EVERY == 0:
                for one in {threads for _, threads in wanted}:
                    self.look(one)
            found[case.name, threads] = self.compare(case, threads)
            self.tuner.say(f"compared {case.name} on {threads}")
        return found

    def machine(self, threads: int, found: Sequence[Found]) -> Machine:
        """The most that was seen of the machine."""
        peaks = [one.comparison.peak for one in found if one.threads == threads and one.comparison.peak]
        return best_of(self.machines[threads], peaks)

    def _why_not(self, key: tuple[str, int] | None) -> str:
        if key is None:
            return "there is no such operator"
        return self.tuner.errors.get(key) or self.libraries.errors.get(key) or "it was not tuned"

    def _ours(self, workload: Workload, key: tuple[str, int], library: Exported) -> Open:
        kernel = next(one for one in library.manifest.kernels if one.key == self.tuner.keys[key])
        said = f"{kernel.sketch} ({', '.join(kernel.intrinsics) or 'plain vector code'})"
        callers = self.callers[library.name]
        return lambda clock, source, weights: Ours(library.folder, library.name, callers, clock, kernel.threads).call(
            workload, source, weights, said
        )

    def look(self, threads: int) -> None:
        """Measures what the machine can do; more than once, since others use it too."""

        def work(report: Report) -> None:
            report("machine", self.bench.probe.machine(threads, self._overhead(threads)))

        outcome = run_in_child(work, [120.0])
        found = outcome.value("machine")
        if not isinstance(found, Machine):
            raise InternalError(f"the machine could not be measured: {outcome.value('error') or outcome.stderr}")
        self.machines.setdefault(threads, []).append(found)

    def _overhead(self, threads: int) -> float:
        for case in self.cases:
            made = self.operators.get(case.name)
            library = self.libraries.found.get((made.label, threads)) if made else None
            if library is not None:
                clock = Clock(self.bench.clock)
                ours = Ours(library.folder, library.name, self.callers[library.name], clock, threads)
                return ours.overhead(case.workload)
        return _EMPTY_CALL


def seconds(text: str) -> float:
    """Parses a duration: `90`, `90s`, `30m`, `2h`."""
    said = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not said:
        raise argparse.ArgumentTypeError(f"'{text}' is no duration such as 90s, 30m or 2h")
    return float(said[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[said[2]]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--preset", choices=["operators", "gemm"], default="operators", help="which list of cases")
    what.add_argument("--network", help=f"the layers of a network instead: {', '.join(networks())}")
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("-t", "--target", default="dlboost", help="a machine's name or file, or a family")
    parser.add_argument("--threads", type=int, nargs="*", default=sorted({1, available_threads()}))
    parser.add_argument("--trials", type=int, help=f"{TRIALS}, of layers {LAYER_TRIALS}")
    parser.add_argument("--more-trials", type=int, default=MORE_TRIALS, help="where oneDNN is faster; 0: no more")
    parser.add_argument("--budget", type=seconds, help="no tuning starts after so long, e.g. 30m")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peers", nargs="*", choices=[ONNXRUNTIME, NUMPY], default=[ONNXRUNTIME, NUMPY])
    parser.add_argument("--no-tune", action="store_true", help="only what is tuned already, and the other libraries")
    parser.add_argument("--out", type=Path, default=Path("runs/dlboost_suite"))
    return parser.parse_args()


def cases_of(arguments: argparse.Namespace) -> list[Case]:
    """The cases that were asked for."""
    if arguments.network:
        cases = network_cases(arguments.network)
    else:
        cases = {"operators": operator_cases, "gemm": gemm_cases}[arguments.preset]()
    return chosen(cases, arguments.only.split(","))


def run(arguments: argparse.Namespace) -> None:
    """Tunes, exports, compares; tunes longer where oneDNN was faster; prints and writes."""
    target = resolve_target(arguments.target)
    require_host(target)
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    cases = cases_of(arguments)
    budget = 0.0 if arguments.no_tune else arguments.budget
    suite = Suite(cases, Tuner(target, out / "runs", budget, _say), out, arguments.rounds, arguments.peers)
    first = arguments.trials or (LAYER_TRIALS if arguments.network else TRIALS)
    for threads in arguments.threads:
        suite.tune(cases, threads, first)
    found = suite.compare_all([(case, threads) for threads in arguments.threads for case in cases])
    if arguments.more_trials > first and not arguments.network:
        slower = [(one.case, one.threads) for one in found.values() if (one.comparison.ratio(OURS, ONEDNN) or 1) < 1]
        for threads in arguments.threads:
            suite.tune([case for case, number in slower if number == threads], threads, arguments.more_trials)
        found |= suite.compare_all(slower)
    machines = {threads: suite.machine(threads, list(found.values())) for threads in arguments.threads}
    rows = [row_of(one, machines[one.threads]) for one in found.values()]
    (out / "rows.json").write_text(json.dumps(to_json(rows, machines, _versions(), arguments.network), indent=2) + "\n")
    print_rows(rows, machines, arguments.network)


def _versions() -> dict[str, str]:
    """What was compared; libraries that are not installed are left out."""
    found = {}
    for name in ("heron-asp", "apache-tvm", "onednn-cpu-gomp", "onnxruntime", "numpy"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Runs the suite; exit codes as those of heron-asp."""
    try:
        run(parse())
    except HeronError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("interrupted: the same command again continues", file=sys.stderr)
        return ExitCode.INTERRUPTED
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
