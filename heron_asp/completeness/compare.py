"""The space of a task against what runs: does it refuse anything that would, and allow anything that would not?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from heron_asp.completeness.evidence import Evidence, Key, Part
from heron_asp.completeness.verdict import Mask, Rules, Verdict, judge, rows_of
from heron_asp.terms import Term, Value, text

Names = frozenset[str]


@dataclass
class Finding:
    """Where space and machine agree, and where not.

    Attributes:
        tried: assignments. whole: of all values. survived: those that run and are right.
        members: assignments that the space holds. programs: different ones among them.
        guarded: survivors with a split that TVM guards by a condition, which no step of the rules means.
        forms: survivors that a must refuses, while the same program is there in another form.
        pays: for each rule of thumb, the survivors that it refuses and no must does.
        must: programs that survive and that musts or lists of candidates refuse, by their names.
        failing: members that do not survive, by what is wrong.
        hollow: what only rules of thumb refuse, by their names, and yet does not survive.
        twice: members that are another member in another form.
        unlifted: survivors that are not admitted where the rules of thumb that refuse them are lifted, by their names.
        apart: assignments of which this evaluation and clingo's think otherwise.
        examples: an assignment for each kind of failure.
    """

    tried: int = 0
    whole: int = 0
    survived: int = 0
    members: int = 0
    programs: int = 0
    guarded: int = 0
    forms: int = 0
    pays: Counter[str] = field(default_factory=Counter)
    must: Counter[Names] = field(default_factory=Counter)
    failing: Counter[str] = field(default_factory=Counter)
    hollow: Counter[Names] = field(default_factory=Counter)
    twice: int = 0
    unlifted: Counter[Names] = field(default_factory=Counter)
    apart: int = 0
    examples: dict[tuple[str, object], str] = field(default_factory=dict)

    def failures(self, expected: Mapping[str, int] | None = None) -> list[str]:
        """What is wrong, in a sentence each.

        Args:
            expected: how many survivors each rule of thumb refuses; None if that is not known.
        """
        return list(self._failures(expected))

    def _failures(self, expected: Mapping[str, int] | None) -> Iterator[str]:
        for names, many in self.must.most_common():
            yield f"{many} programs survive and are refused by {_and(names)}, e.g. {self.examples['must', names]}"
        for error, many in self.failing.most_common():
            yield f"{many} members fail ({error}), e.g. {self.examples['failing', error]}"
        for names, many in self.hollow.most_common():
            yield f"{many} fail and only {_and(names)} refuses them, e.g. {self.examples['hollow', names]}"
        if self.twice:
            yield f"{self.twice} members are another member in another form, e.g. {self.examples['twice', None]}"
        for names, many in self.unlifted.most_common():
            yield f"{many} survive and lifting {_and(names)} does not admit them, e.g. {self.examples['lift', names]}"
        if self.apart:
            yield f"of {self.apart} assignments the constraint problem thinks otherwise than its constraints"
        if expected is not None:
            for name in sorted({*expected, *self.pays}):
                if self.pays[name] != expected.get(name, 0):
                    yield f"{name} refuses {self.pays[name]} survivors, and should {expected.get(name, 0)}"


def _and(names: Names) -> str:
    return " and ".join(sorted(names))


@dataclass(frozen=True)
class Judged:
    """A part, and what some rules say of it.

    Attributes:
        part: what was tried.
        verdict: what each rule says.
        survived: what runs and is right. must: what a must refuses. pays: what a rule of thumb refuses.
    """

    part: Part
    verdict: Verdict
    survived: Mask
    must: Mask
    pays: Mask

    @staticmethod
    def of(part: Part, rules: Rules) -> Judged:
        """Judges a part."""
        verdict = judge(rules, part.rows)
        must, pays = np.zeros(len(part.rows), dtype=bool), np.zeros(len(part.rows), dtype=bool)
        for name, refused in verdict.refused.items():
            mask = must if verdict.thumbs[name] is None else pays
            mask |= refused
        survived = np.array([trial.survived for trial in part.trials], dtype=bool)
        return Judged(part, verdict, survived, must, pays)

    @property
    def guarded(self) -> Mask:
        """What survives by a condition around a split."""
        guarded: Mask = self.survived & np.array(self.part.inexact, dtype=bool)
        return guarded

    def musts(self, row: int) -> Names:
        """What refuses an assignment and is no rule of thumb."""
        refused, thumbs = self.verdict.refused, self.verdict.thumbs
        return frozenset(name for name, mask in refused.items() if mask[row] and thumbs[name] is None)

    def thumbs(self, row: int) -> Names:
        """The rules of thumb that refuse an assignment."""
        refused, thumbs = self.verdict.refused, self.verdict.thumbs
        return frozenset(thumb for name, mask in refused.items() if mask[row] and (thumb := thumbs[name]) is not None)

    def key(self, row: int) -> Key:
        """What identifies an assignment."""
        return self.part.name, self.part.rows[row]

    def _chosen(self, row: int) -> list[tuple[Value, Value]]:
        pairs = zip(self.part.grid.sketch.knobs, self.part.rows[row], strict=True)
        return [(knob, value) for knob, value in pairs if isinstance(knob, Term) and knob.name != "size"]

    def shown(self, row: int) -> str:
        """An assignment as text."""
        return f"{self.part.name}: " + "; ".join(f"{text(knob)}={text(value)}" for knob, value in self._chosen(row))

    def form(self, row: int) -> tuple[str, frozenset[tuple[Value, Value]]]:
        """Equal for one program with the same tiles and places, in whatever order its loops of one step run."""
        kept = (pair for pair in self._chosen(row) if _name(pair[0]) != "inner" and pair[1] != 1)
        return self.part.trials[row].program, frozenset(kept)


def _name(knob: Value) -> str:
    return knob.name if isinstance(knob, Term) else ""


def compare(evidence: Evidence, rules: Sequence[Rules] | None = None) -> Finding:
    """Compares what survived with what the rules admit.

    Args:
        evidence: what was tried.
        rules: of each part; by default the task's.
    """
    judged = [Judged.of(*pair) for pair in zip(evidence.parts, rules or evidence.bare.rules(), strict=True)]
    finding = Finding(
        tried=sum(len(part.rows) for part in evidence.parts), whole=sum(part.grid.whole for part in evidence.parts)
    )
    _refused(finding, judged)
    forms: Counter[tuple[object, ...]] = Counter()
    for one in judged:
        finding.survived += int(one.survived.sum())
        for row in rows_of(~one.must & one.pays & ~one.guarded):
            if one.survived[row]:
                finding.pays.update(one.thumbs(row))
            else:
                finding.hollow[one.thumbs(row)] += 1
                finding.examples.setdefault(("hollow", one.thumbs(row)), one.shown(row))
        for row in rows_of(~one.must & ~one.pays):
            finding.members += 1
            error = "a split is guarded" if one.guarded[row] else one.part.trials[row].error
            if error:
                finding.failing[error] += 1
                finding.examples.setdefault(("failing", error), one.shown(row))
                continue
            forms[one.form(row)] += 1
            if forms[one.form(row)] > 1:
                finding.examples.setdefault(("twice", None), one.shown(row))
    finding.programs = len({form[0] for form in forms})
    finding.twice = sum(forms.values()) - len(forms)
    return finding


def _refused(finding: Finding, judged: Sequence[Judged]) -> None:
    """Survivors that a must refuses: in another form they may be there; of the others the least refused form counts."""
    known = {one.part.trials[row].program for one in judged for row in rows_of(one.survived & ~one.must)}
    least: dict[str, tuple[Names, str]] = {}
    for one in judged:
        finding.guarded += int((one.guarded & one.must).sum())
        for row in rows_of(one.survived & one.must & ~one.guarded):
            program, names = one.part.trials[row].program, one.musts(row)
            if program in known:
                finding.forms += 1
            elif program not in least or (len(names), sorted(names)) < (
                len(least[program][0]),
                sorted(least[program][0]),
            ):
                least[program] = names, one.shown(row)
    for names, example in least.values():
        finding.must[names] += 1
        finding.examples.setdefault(("must", names), example)


def check(evidence: Evidence) -> Finding:
    """Compares, and makes sure that the real space is what its constraints say, relaxed or not."""
    finding = compare(evidence)
    judged = [Judged.of(*pair) for pair in zip(evidence.parts, evidence.bare.rules(), strict=True)]
    mine = {one.key(row) for one in judged for row in rows_of(~one.must & ~one.pays)}
    finding.apart = len(mine ^ set(evidence.bare.members()))
    waiting: dict[Names, dict[Key, str]] = {}
    for one in judged:
        for row in rows_of(one.survived & ~one.must & one.pays & ~one.guarded):
            waiting.setdefault(one.thumbs(row), {})[one.key(row)] = one.shown(row)
    done: set[Names] = set()
    while waiting:
        names = min(waiting, key=lambda one: (len(one), sorted(one)))
        rows = waiting.pop(names)
        done.add(names)
        admitted = evidence.bare.admitted(names, rows)
        left = {key: shown for key, shown in rows.items() if key not in admitted}
        for more, further in _further(evidence, names, left).items():
            if more <= names or more | names in done:
                finding.unlifted[names] += len(further)
                finding.examples.setdefault(("lift", names), next(iter(further.values())))
            else:
                waiting.setdefault(more | names, {}).update(further)
    return finding


def _further(evidence: Evidence, names: Names, rows: Mapping[Key, str]) -> dict[Names, dict[Key, str]]:
    """Which further rules of thumb refuse assignments once some are lifted: they speak of more places then."""
    found: dict[Names, dict[Key, str]] = {}
    for part, rules in zip(evidence.parts, evidence.bare.rules(names), strict=True):
        own = [row for row in part.rows if (part.name, row) in rows]
        verdict = judge(rules, own)
        for place, row in enumerate(own):
            refusing = {verdict.thumbs[name] for name, mask in verdict.refused.items() if mask[place]}
            more = frozenset(name for name in refusing if name is not None)
            found.setdefault(more, {})[part.name, row] = rows[part.name, row]
    return found
