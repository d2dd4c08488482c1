"""Mutants of the package's kernels are found by the right rule at the right place, or are equivalent for a reason."""

from __future__ import annotations

from fnmatch import fnmatch
from functools import cache

import pytest

from benchmarks.mutant_zoo import chosen, counts, run
from benchmarks.zoo import Healthy, Sites, judge, subject, subjects
from benchmarks.zoo.equivalents import EQUIVALENT
from benchmarks.zoo.judge import RIGHT
from benchmarks.zoo.mutate import mutants
from benchmarks.zoo.mutations import MUTATIONS, ORDERS

SAMPLE, PARTS = 40, 8
in_parts = pytest.mark.parametrize("part", range(PARTS))


@cache
def have() -> dict[str, int]:
    """How many mutants each kernel has. Kept for the tests: whoever only collects them builds no kernel."""
    return counts()


def missed(picked: dict[str, list[int]], part: int) -> list[str]:
    """Those that are not found, of every PARTS-th kernel."""
    verdicts = [verdict for task in list(picked.items())[part::PARTS] for verdict in run(task)[1]]
    return [
        f"{v.kernel}: {v.kind} at {v.site} ({v.place}): {v.what}; {v.seen}" for v in verdicts if v.outcome == "missed"
    ]


@pytest.mark.sample(0, all=1)
@in_parts
def test_a_sample_of_all_mutants_is_found(part: int):
    assert missed(chosen(have(), SAMPLE), part) == []


@pytest.mark.slow
@in_parts
def test_every_mutant_is_found(part: int):
    assert missed(chosen(have(), None), part) == []


def test_every_kind_of_mutation_has_its_rules():
    assert set(RIGHT) == {mutation.kind for mutation in MUTATIONS} | set(ORDERS)


@pytest.mark.full
def test_at_most_a_tenth_is_equivalent_and_every_entry_of_the_list_names_some_mutant():
    named, equivalent = set(), 0
    for name, each in subjects().items():
        for mutant in mutants(each.module):
            fits = [
                entry
                for entry in EQUIVALENT
                if fnmatch(name, entry[0]) and fnmatch(mutant.kind, entry[1]) and fnmatch(mutant.site, entry[2])
            ]
            named.update(fits)
            equivalent += bool(fits)
    assert named == set(EQUIVALENT)
    assert equivalent <= sum(have().values()) / 10


def test_a_finding_at_another_place_does_not_count():
    """The fence of one box left out: the store of another box is not what it guards."""
    r19 = subject("r19_stmatrix")
    fences = [mutant for mutant in mutants(r19.module, ["drop-proxy-fence"])]
    sites = Sites(r19)
    assert judge(r19, fences[1], sites, Healthy(r19)).outcome == "found"
    stores = [i.ptx_line for i in sites.code if "global.shared" in i.opcode]
    assert stores[1] in sites.of(fences[1])
    assert stores[3] not in sites.of(fences[1])


def test_a_dependent_launch_without_its_wait_is_found_though_the_text_does_not_speak_of_it():
    walk = subject("walkthrough")
    (mutant,) = mutants(walk.module, ["drop-grid-wait"])
    assert walk.program.pdl and "griddepcontrol" not in mutant.module.to_text()
    assert judge(walk, mutant, Sites(walk), Healthy(walk)).rule == "before-grid-wait"


def test_a_turn_passed_on_before_the_additions_are_complete_is_found_at_the_additions():
    backward = subject("attention_backward")
    sites = Sites(backward)
    mutant = next(mutants(backward.module, ["wait-for-reads-only"]))
    additions = [i.ptx_line for i in sites.code if i.opcode.startswith("cp.reduce.async.bulk")]
    assert additions[0] in sites.of(mutant)
    assert judge(backward, mutant, sites, Healthy(backward)).rule == "copy-to-global-not-complete"
