"""Plant bugs by rule into texts of nvcc, Triton and others, and count how many `warploom check` reports as errors.

    python benchmarks/planted_bugs.py [--set slips] [--each 2] [--texts FOLDER …] [--json FILE] [--only PATTERN]
    python benchmarks/planted_bugs.py --again FILE [--outcomes missed warned …] [--texts FOLDER …]

`--set tcgen05` plants in the texts for Blackwell (`tests/foreign/blackwell/current`), whose runs are emulated.

For each text and rule, up to `--each` places are drawn with a fixed seed. The verdicts on a bug:

    error         `warploom check` with its defaults reports an error
    warned        no error, but a warning of a rule that the unchanged text does not break
    explored      neither, but one of the other schedules of `--schedule explore` reports an error that the unchanged
                  text has under none of them
    not executed  the run does not reach the changed instruction: no bug was planted
    harmless      `planted/harmless.py`, or `harmless.toml` next to the text, says why the text is as correct as before
    missed        none of these

`--texts` takes folders of texts with launch descriptions next to them. Their `[[expect]]` has the expected results, and
`harmless.toml` in the folder may say why changes are harmless. `--launches` takes folders of launches that programs
made on the mock runtime; there, memory must match that of the unchanged text.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.planted.captured import CapturedText, launches_of  # noqa: E402 - the root has to be on the path
from benchmarks.planted.harmless import reason  # noqa: E402
from benchmarks.planted.rules import RULES, trapped, trapped_at_bound, trapped_at_guard  # noqa: E402
from benchmarks.planted.slips import SLIPS  # noqa: E402
from benchmarks.planted.texts import BLACKWELL, Text, texts, texts_of  # noqa: E402
from benchmarks.zoo import tcgen05  # noqa: E402
from benchmarks.zoo.mutate import ORDERS, Mutant, mutants  # noqa: E402
from benchmarks.zoo.mutations import Mutation  # noqa: E402
from warploom.asm.nodes import Module  # noqa: E402
from warploom.errors import WarploomError  # noqa: E402
from warploom.sanitizer.explore import EXPLORED  # noqa: E402

SEED = 0
STEPS = 4
"""Limit of a run's warp instructions, as a multiple of the unchanged text's."""
TRAP = Mutation("trap", lambda instruction: True, trapped)
AT_GUARD = Mutation("trap", lambda instruction: True, trapped_at_guard)
AT_BOUND = Mutation("trap", lambda instruction: instruction.opcode.startswith("setp"), trapped_at_bound)
SETS = {"first": RULES, "slips": SLIPS, "tcgen05": (*RULES, *tcgen05.MUTATIONS)}
ORDERS_OF = {"first": ORDERS, "slips": {}, "tcgen05": {**ORDERS, **tcgen05.ORDERS}}
OUTCOMES = ("error", "warned", "explored", "missed", "harmless", "not executed")
PLANTED = ("error", "warned", "explored", "missed")
UNLISTED = ("error", "not executed")
"""The evidence counts bugs of these outcomes, and lists those of the others."""
AnyText: TypeAlias = Text | CapturedText


@dataclass(frozen=True)
class Bug:
    """The verdict on a planted bug; `found`: rules and codes of the errors."""

    text: str
    kind: str
    site: str
    variant: int
    line: int
    what: str
    outcome: str
    found: tuple[str, ...] = ()
    schedule: str = "lazy 0"
    reason: str = ""


def chosen(text: AnyText, each: int, of: str = "first") -> Iterator[Mutant]:
    """Up to `each` mutants of each kind of a set of rules."""
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in mutants(text.module, mutations=SETS[of], orders=ORDERS_OF[of]):
        by_kind.setdefault(mutant.kind, []).append(mutant)
    for kind, some in sorted(by_kind.items()):
        yield from random.Random(f"{SEED} {text.name} {kind}").sample(some, min(each, len(some)))


def judge(text: AnyText, mutant: Mutant, folder: Path, why: str = "") -> Bug | None:
    """None if the result is no longer a PTX text. `why` it is harmless, if no list of `reason` has it."""
    head = (f"{text.source}/{text.name}", mutant.kind, mutant.site, mutant.variant, mutant.instruction.ptx_line,
            mutant.what)  # fmt: skip
    try:
        found, others = rules(text, mutant.module, folder)
        if found:
            return Bug(*head, "error", found)
        if not executed(text, mutant, folder):
            return Bug(*head, "not executed")
        if why := reason(text.name, mutant, text.path.parent) or why:
            return Bug(*head, "harmless", reason=why)
        if warned := tuple(sorted(set(others) - set(own(text)[1]))):
            return Bug(*head, "warned", warned)
        found, _ = rules(text, mutant.module, folder, schedule="explore")
        found = tuple(sorted(set(found) - own_explored(text))) if found else ()
    except WarploomError as error:
        print(f"    {text.name} {mutant}: {error}", file=sys.stderr)
        return None
    if found:
        return Bug(*head, "explored", found, schedule="explore")
    return Bug(*head, "missed")


def rules(text: AnyText, module: Module, folder: Path, **options: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rules and codes of all errors that `check` reports for a changed text, and those of its other findings."""
    checked = text.check(folder, module, max_steps=STEPS * own(text)[0], **options)
    found = {finding.rule for finding in checked.errors}
    return tuple(sorted(found)), tuple(sorted({finding.rule for finding in checked.findings} - found))


@cache
def own(text: AnyText) -> tuple[int, tuple[str, ...]]:
    """Warp instructions of the unchanged text, which must have no error, and the rules of its warnings."""
    with tempfile.TemporaryDirectory() as folder:
        checked = text.check(Path(folder), text.module)
    if (checked.errors and isinstance(text, Text)) or not checked.counters:
        raise SystemExit(f"{text.name} is not clean before anything is planted: {checked.summary()}")
    return max(5000, int(checked.counters["instructions"])), tuple({finding.rule for finding in checked.findings})


@cache
def own_explored(text: AnyText) -> frozenset[str]:
    """The rules of all errors that the unchanged text has under any schedule of `--schedule explore`."""
    found: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for schedule, seed in EXPLORED:
            checked = text.check(Path(folder), text.module, schedule=schedule, seed=seed)
            found.update(finding.rule for finding in checked.errors)
    return frozenset(found)


def executed(text: AnyText, mutant: Mutant, folder: Path) -> bool:
    """True if the run reaches the changed instruction, a bound at its edge, or a guard that is false: a trap stops
    it."""
    trap = {"off-by-one": AT_BOUND, "drop-guard": AT_GUARD}.get(mutant.kind, TRAP)
    same = (one for one in mutants(text.module, ("trap",), (trap,)) if one.site == mutant.site)
    return bool(rules(text, next(same).module, folder)[0])


def planted_in(options: argparse.Namespace) -> Iterator[AnyText]:
    """The texts selected by the command line."""
    some: Iterator[AnyText]
    if options.launches:
        some = (text for folder in options.launches for text in launches_of(folder))
    else:
        some = texts_of(BLACKWELL) if options.set == "tcgen05" else texts(options.texts)
    if not options.source:
        return some
    given = {folder.parent if options.launches else folder for folder in (*options.launches, *options.texts)}
    return (replace(one, source=options.source) if one.source in {at.name for at in given} else one for one in some)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=2, help="most bugs of one rule in one text")
    parser.add_argument("--texts", type=Path, nargs="*", default=[], help="folders with more texts")
    parser.add_argument(
        "--launches", type=Path, nargs="*", default=[], help="folders of tests/outside/captured.py, instead of texts"
    )
    parser.add_argument("--only", default="*", help="texts whose name fits the pattern")
    parser.add_argument(
        "--set", choices=SETS, default="first", help="which rules: `planted/rules.py`, `slips.py` or `zoo/tcgen05.py`"
    )
    parser.add_argument("--json", type=Path, help="write the evidence there")
    parser.add_argument("--source", help="the name of the given texts' origin in the evidence, instead of the folder's")
    parser.add_argument(
        "--again", type=Path, help="judge the bugs of this evidence again, and write the verdicts there"
    )
    parser.add_argument(
        "--outcomes", nargs="*", default=("missed", "warned", "explored", "harmless"), help="those judged again"
    )
    options = parser.parse_args()
    if options.again:
        return min(1, again(options.again, planted_in(options), options.outcomes, options.only)["missed"])
    bugs: list[Bug] = []
    with tempfile.TemporaryDirectory() as folder:
        for text in planted_in(options):
            if not fnmatch(text.name, options.only):
                continue
            started, before = time.perf_counter(), len(bugs)
            bugs += filter(
                None, (judge(text, mutant, Path(folder)) for mutant in chosen(text, options.each, options.set))
            )
            counts = Counter(bug.outcome for bug in bugs[before:])
            print(f"{text.source}/{text.name}: {dict(counts)}, {time.perf_counter() - started:.0f} s", flush=True)
            if options.json:
                write(options.json, bugs[before:], options.each, options.set)
            for bug in bugs[before:]:
                if bug.outcome in ("warned", "explored", "missed"):
                    print(f"    {bug.outcome}: {bug.kind} at {bug.site} (line {bug.line}): {bug.what} {bug.found}")
    table = totals(bugs)
    print(table)
    return 1 if table["missed"] else 0


def totals(bugs: list[Bug]) -> dict[str, int]:
    """Totals by verdict; `bugs` counts those that are executed and not harmless."""
    counts = Counter(bug.outcome for bug in bugs)
    planted = sum(counts[outcome] for outcome in PLANTED)
    return {"bugs": planted, **{outcome: counts[outcome] for outcome in OUTCOMES}}


def write(path: Path, bugs: list[Bug], each: int, of: str) -> None:
    """The evidence: totals, a row for each text, and every bug that is not an error by default.

    Rows of other texts and sets in the file are kept.
    """
    from warploom.lab import evidence

    before = json.loads(path.read_text())["rows"] if path.exists() else []
    done = {(bug.text, of) for bug in bugs}
    rows = [row for row in before if (row["text"], row.get("set", "first")) not in done]
    for name in dict.fromkeys(bug.text for bug in bugs):
        mine = [bug for bug in bugs if bug.text == name]
        kinds: dict[str, Counter[str]] = {}
        for bug in mine:
            kinds.setdefault(bug.kind, Counter())[bug.outcome] += 1
        rows.append({
            "text": name, "set": of, **totals(mine), "kinds": {kind: dict(count) for kind, count in kinds.items()},
            "rules": dict(Counter(rule for bug in mine if bug.outcome == "error" for rule in bug.found).most_common()),
            "others": [recording(bug) for bug in mine if bug.outcome not in UNLISTED],
        })  # fmt: skip
    head = evidence.header("planted-bugs", command=f"python benchmarks/planted_bugs.py --each {each} --set {of}")
    total = {name: sum(row.get(name, 0) for row in rows) for name in ("bugs", *OUTCOMES)}
    evidence.write(path, {**head, "seed": SEED, "total": total}, rows)


def again(path: Path, some: Iterable[AnyText], of_outcomes: Sequence[str], only: str) -> Counter[str]:
    """Judge bugs that the evidence has with these outcomes again, and write the new verdicts there.

    `some`: the texts at hand. Returns how many verdicts there are of each outcome. Raises SystemExit if a text no
    longer has the place of a bug.
    """
    from warploom.lab import evidence

    document = json.loads(path.read_text())
    rows, verdicts, at_hand = document.pop("rows"), Counter[str](), {f"{one.source}/{one.name}": one for one in some}
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            old = [other for other in row["others"] if other["outcome"] in of_outcomes and fnmatch(row["text"], only)]
            if old and row["text"] not in at_hand:
                print(f"{row['text']}: {len(old)} not judged again, the text is not given")
                continue
            for other in old:
                text = at_hand[row["text"]]
                bug = judge(text, recorded(text, row, other), Path(folder), other.get("reason", ""))
                assert bug is not None, f"{row['text']}: {other} is no PTX any more"
                verdicts[bug.outcome] += 1
                replaced(row, other, bug)
                if other["outcome"] != bug.outcome:
                    print(
                        f"{row['text']}: {bug.kind} at {bug.site}: {other['outcome']} became {bug.outcome}", flush=True
                    )
    document["total"] = {name: sum(row.get(name, 0) for row in rows) for name in ("bugs", *OUTCOMES)}
    head = evidence.header("planted-bugs")
    document["again"] = {"date": head["date"], "source_sha256": head["source_sha256"], "outcomes": list(of_outcomes)}
    evidence.write(path, document, rows)
    print(document["total"])
    return verdicts


def recorded(text: AnyText, row: dict[str, Any], other: dict[str, Any]) -> Mutant:
    """The change of a text that a row of the evidence names by kind, site and variant."""
    of, place = row.get("set", "first"), (other["kind"], other["site"], other.get("variant", 0))
    for one in mutants(text.module, (other["kind"],), mutations=SETS[of], orders=ORDERS_OF[of]):
        if (one.kind, one.site, one.variant) == place:
            return one
    raise SystemExit(f"{text.name} has no {other['kind']} at {other['site']}: it is another text than the evidence's")


def replaced(row: dict[str, Any], other: dict[str, Any], bug: Bug) -> None:
    """Put a new verdict in the place of a row's old one."""
    at = row["others"].index(other)
    row["others"][at : at + 1] = [recording(bug)] if bug.outcome not in UNLISTED else []
    rules_of, kind = Counter(row["rules"]), Counter(row["kinds"][bug.kind])
    if bug.outcome == "error":
        rules_of.update(bug.found)
    kind.update({bug.outcome: 1})
    kind.subtract({other["outcome"]: 1})
    row["rules"], row["kinds"][bug.kind] = (
        dict(rules_of.most_common()),
        {name: count for name, count in kind.items() if count},
    )
    counts = Counter({name: row.get(name, 0) for name in OUTCOMES})
    counts.update({bug.outcome: 1})
    counts.subtract({other["outcome"]: 1})
    row |= {"bugs": sum(counts[name] for name in PLANTED), **{name: counts[name] for name in OUTCOMES}}


def recording(bug: Bug) -> dict[str, Any]:
    """What the evidence has of a bug that is not an error."""
    return {key: value for key, value in asdict(bug).items() if value and key != "text"}


if __name__ == "__main__":
    sys.exit(main())
