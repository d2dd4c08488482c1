"""Every row of the instruction table declares its effects, in terms that some code uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from itertools import product

import pytest

from warploom.emulator.machine.counters import Counters
from warploom.emulator.machine.units import UNITS
from warploom.emulator.ops import HANDLERS, RUN_BY_THE_CORE
from warploom.isa import effects
from warploom.isa.effects import (
    Access,
    Allocates,
    Choice,
    Commits,
    Drained,
    Fences,
    Group,
    Operand,
    Signalled,
    Starts,
    Synchronises,
    Waits,
)
from warploom.isa.instructions import table, textures
from warploom.isa.instructions.schema import Form, OperandSpec

HINTS = {
    "prefetch.line", "prefetch.priority", "prefetch.uniform", "prefetch.tensormap", "applypriority", "discard",
    "createpolicy.range", "bulk.prefetch", "bulk.prefetch_hint", "tensor.prefetch", "tensor.prefetch_hint",
    *(f"tensor.prefetch_{mode}{hint}" for mode in ("gather4", "im2col", "im2col_w") for hint in ("", "_hint")),
}  # fmt: skip
"""Rows with an address that change no value and order nothing: cache control."""
SPACE = effects.STATE_SPACE
SPACES = {"", "global", "shared", "local", "const", "param", "register", "tensor"}
FENCES = {"memory", "proxy:async", "proxy:tensormap", "proxy:alias", "mbarrier_init"}
ENGINES = {unit.engine for unit in UNITS}


def parts(value: object) -> Iterator[object]:
    """A value and all that it is made of."""
    yield value
    if isinstance(value, tuple):
        for one in value:
            yield from parts(one)
    elif is_dataclass(value):
        for one in fields(value):
            yield from parts(getattr(value, one.name))


def of_kind(kind: type, form: Form) -> list:
    return [part for part in parts(form.effects) if isinstance(part, kind)]


def operand_names(form: Form) -> set[str]:
    def names(spec: OperandSpec | None) -> set[str]:
        return {spec.name, *names(spec.second)} if spec else set()

    return set().union(*map(names, form.operands))


def resolved(form: Form) -> list[tuple[effects.Effect, ...]]:
    """The effects of a row for every choice of the modifiers that they depend on."""
    slots = {slot.name: slot for slot in form.modifier_slots}
    asked = sorted({choice.slot for choice in of_kind(Choice, form)} & set(slots))
    choices = [(*slots[name].choices, *([None] if slots[name].optional else [])) for name in asked]
    return [effects.resolved(form.effects, dict(zip(asked, took, strict=True))) for took in product(*choices)]


# -- nothing is missing ------------------------------------------------------------------------------------------

SYNCHRONISING = {
    "sync", "aligned", "fence", "membar", "mbarrier", "barrier", "commit_group", "wait_group", "wait_all", "setmaxnreg",
    "griddepcontrol", "tensormap",
}  # fmt: skip
OF_REGISTERS = {"movmatrix.b16", "mbarrier.pending_count"}
"""Rows with such a word that only move values between registers."""


def test_a_row_that_touches_memory_or_meets_others_says_so():
    silent = set()
    emulated = [form for form in table.FORMS if form not in textures.FORMS]
    for form in emulated:
        words = {slot.name for slot in form.modifier_slots} | {form.base}
        addressed = any(spec.kind in ("address", "tensor_address") for spec in form.operands)
        if (addressed or words & SYNCHRONISING) and not form.effects and not form.unit:
            silent.add(form.key)
    assert silent == HINTS | OF_REGISTERS


def test_a_row_that_is_executed_together_says_by_whom():
    """A barrier without .aligned is for each thread; a load of tensor memory is the warp's, however it is spelled."""
    together = {"bar": (), "tcgen05": ("sync",)}
    aligned = {
        form.key for form in table.FORMS
        if "aligned" in form.fixed_words
        or (form.base in together and set(together[form.base]) <= set(form.fixed_words))
    }  # fmt: skip
    masked = {form.key for form in table.FORMS if "membermask" in operand_names(form)}
    assert aligned - {"bar.warp"} == {form.key for form in table.FORMS if form.converged in ("warp", "warpgroup")}
    assert masked == {form.key for form in table.FORMS if form.converged == "members:membermask"}


def test_a_row_that_starts_something_has_a_noun_for_it():
    assert [form.key for form in table.FORMS if (of_kind(Starts, form) or form.unit) and not form.noun] == []


# -- what is said has a meaning ----------------------------------------------------------------------------------


def test_effects_name_slots_and_operands_of_their_row():
    wrong = []
    for form in table.FORMS:
        slots, names = {slot.name for slot in form.modifier_slots}, operand_names(form) | {"", "b"}
        wrong += [(form.key, one) for one in of_kind(Choice, form) if one.slot not in slots and one is not SPACE]
        wrong += [(form.key, one) for one in of_kind(Operand, form) if one.name not in names]
        for effect in form.effects:
            named = {getattr(effect, name, "") for name in ("operand", "barrier", "key", "members")}
            wrong += [(form.key, name) for name in named - names]
    assert wrong == []


def test_every_choice_has_a_value_under_every_opcode():
    for form in table.FORMS:
        for found in resolved(form):
            for part in parts(found):
                assert not isinstance(part, Choice), form.key
                if isinstance(part, effects.Order):
                    assert part.sem in ("weak", "relaxed", "acquire", "release", "acq_rel", "sc"), form.key
                    assert part.scope in ("cta", "cluster", "gpu", "sys"), form.key
                if isinstance(part, Access):
                    assert part.space in SPACES, form.key


def test_every_footprint_is_used():
    used = {access.footprint for form in table.FORMS for access in of_kind(Access, form)}
    assert set(effects.FOOTPRINTS) == used


def test_somebody_acts_on_every_effect():
    run = [row for row in table.FORMS if row.key in HANDLERS or row.key in RUN_BY_THE_CORE]
    assert {starts.engine for row in run for starts in of_kind(Starts, row)} == ENGINES
    fences = {fence.kind for row in table.FORMS for fence in of_kind(Fences, row)}
    assert fences == FENCES | {"registers:wgmma", "thread_sync:tcgen05"}
    groups = {each.kind for row in table.FORMS for each in of_kind(Synchronises, row)}
    assert groups == {"lanes", "cta", "cluster", "pair"}
    pools = {each.pool for row in table.FORMS for each in of_kind(Allocates, row)}
    assert pools == {"registers", "columns", "clusters"}


def test_every_operation_is_known_to_be_done_in_a_way_that_a_row_offers():
    def families(kind: type) -> set[str]:
        return {one.family for row in table.FORMS for one in of_kind(kind, row)}

    signals = {one.family for row in table.FORMS for one in of_kind(Commits, row) if one.signals is not None}
    waited = {wait.on for row in table.FORMS for wait in of_kind(Waits, row)}
    assert all(starts.tracked for row in table.FORMS for starts in of_kind(Starts, row))
    assert families(Commits) == families(Group) | families(Signalled)
    assert families(Signalled) <= signals
    groups, drained = families(Group), families(Drained)
    assert waited == {"phase", "grid", *(f"group:{one}" for one in groups), *(f"drained:{one}" for one in drained)}


def test_a_run_counts_the_products_of_each_matrix_unit():
    counters = Counters()
    counters.count_products("mma", 4, 10)
    assert counters.mma == counters.as_dict()["mma"] == 4 and counters.tensor_flops == 40
    assert set(counters.matrix) == {form.unit for form in table.FORMS} - {""}
    with pytest.raises(AttributeError):
        _ = counters.no_such_unit


# -- what follows ------------------------------------------------------------------------------------------------

SCHEDULING_POINTS = (
    "mbarrier.inval", "mbarrier.expect_tx", "mbarrier.complete_tx", "mbarrier.arrive*", "mbarrier.t*_wait*",
    "bar.sync", "bar.arrive", "bar.red*", "barrier.*", "cluster.arrive", "cluster.wait", "cluster.setmaxnreg",
    "cp_async.wait_*", "bulk.wait_group", "wgmma.wait_group", "atom.*", "red.*",
    "tcgen05.alloc", "tcgen05.dealloc", "tcgen05.wait_*", "clusterlaunchcontrol.try_cancel",
    "multimem.*_ordered", "multimem.red", "async_store.global*", "ld.wide_ordered*", "ld.wide_volatile",
    "st.wide_ordered*", "st.wide_volatile",
    "ld.ordered*", "ld.volatile", "ld.volatile_space_first", "ld.mmio*", "st.ordered*", "st.volatile",
    "st.volatile_space_first", "st.mmio*",
)  # fmt: skip
"""Rows at which the exhaustive search tries every order, whatever their modifiers."""
BY_MODIFIER = {
    "cluster.griddepcontrol": {"griddepcontrol.wait": True, "griddepcontrol.launch_dependents": False},
    "cp_async.mbarrier_arrive": {"cp.async.mbarrier.arrive.b64": True, "cp.async.mbarrier.arrive.noinc.b64": False},
}


def test_the_scheduling_points_are_the_rows_whose_moment_others_can_tell():
    for form in table.FORMS:
        if form.key not in BY_MODIFIER:
            expected = any(fnmatchcase(form.key, pattern) for pattern in SCHEDULING_POINTS)
            assert {effects.is_scheduling_point(found) for found in resolved(form)} == {expected}, form.key
    for opcodes in BY_MODIFIER.values():
        for opcode, expected in opcodes.items():
            (match,) = table.match(opcode)
            assert effects.is_scheduling_point(match.effects) is expected


@pytest.mark.parametrize(
    ("opcode", "sem", "scope"),
    [
        ("ld.global.b32", "weak", "cta"),
        ("ld.acquire.sys.global.b32", "acquire", "sys"),
        ("st.global.gpu.release.b32", "release", "gpu"),
        ("ld.volatile.shared.b32", "relaxed", "sys"),
        ("st.mmio.relaxed.sys.b32", "relaxed", "sys"),
        ("atom.add.u32", "relaxed", "gpu"),
        ("red.release.cluster.add.u32", "release", "cluster"),
        ("membar.gl", "sc", "gpu"),
        ("fence.cta", "acq_rel", "cta"),
        ("fence.acquire.sync_restrict::shared::cluster.cluster", "acquire", "cluster"),
        ("mbarrier.try_wait.parity.b64", "acquire", "cta"),
        ("mbarrier.arrive.relaxed.cluster.shared::cluster.b64", "relaxed", "cluster"),
        ("barrier.cluster.arrive.relaxed", "relaxed", "cluster"),
    ],
)
def test_the_memory_order_of_an_instruction(opcode: str, sem: str, scope: str):
    for match in table.match(opcode):
        assert effects.own_order(match.effects) == effects.Order(sem, scope)
