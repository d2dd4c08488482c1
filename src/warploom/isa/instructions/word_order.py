"""The order of an opcode's modifiers: which words stay in front, and which may move.

ptxas takes modifiers in any order behind the words that name the operation, as long as those of one role keep theirs
(measured with ptxas 13.0: each word of each row at each other place).
"""

from __future__ import annotations

from functools import cache

from .. import dtypes
from .schema import Form
from .table import match, rows_of

_MOST_MOVED = 11
_ROLES = {
    **dict.fromkeys((*dtypes.ALL, "b1", "s2", "u2", "s4", "u4"), "type"),
    **dict.fromkeys(("global", "shared", "shared::cta", "shared::cluster"), "space"),
    **dict.fromkeys(("b8x16", "b6x16_p32", "b4x16_p64"), "format"),
    **dict.fromkeys(("and", "xor", "popc"), "operation"),
    **dict.fromkeys(("row", "col"), "layout"),
    **dict.fromkeys(("L2::evict_first", "L2::evict_last", "L2::evict_normal", "L2::evict_unchanged"), "priority"),
}
"""Words of one role keep their order among themselves."""
NAMES = (
    "bar.arrive", "bar.cta.arrive", "bar.cta.red", "bar.cta.sync", "bar.red", "bar.sync", "bar.warp.sync",
    "barrier.arrive", "barrier.cluster.arrive", "barrier.cluster.wait", "barrier.cta.arrive", "barrier.cta.red",
    "barrier.red", "barrier.sync", "clusterlaunchcontrol.query_cancel",
    "clusterlaunchcontrol.try_cancel.async", "cp.async", "cp.async.bulk", "cp.async.bulk.commit_group",
    "cp.async.bulk.prefetch", "cp.async.bulk.prefetch.tensor", "cp.async.bulk.tensor", "cp.async.bulk.wait_group",
    "cp.async.mbarrier.arrive", "cp.reduce.async.bulk", "cp.reduce.async.bulk.tensor", "createpolicy.cvt",
    "createpolicy.fractional", "createpolicy.range", "cvt.pack", "fence.proxy", "griddepcontrol.launch_dependents",
    "griddepcontrol.wait", "mbarrier.arrive", "mbarrier.arrive.expect_tx", "mbarrier.arrive_drop",
    "mbarrier.arrive_drop.expect_tx", "mbarrier.complete_tx", "mbarrier.expect_tx", "mbarrier.init", "mbarrier.inval",
    "mbarrier.pending_count", "mbarrier.test_wait", "mbarrier.test_wait.parity", "mbarrier.try_wait",
    "mbarrier.try_wait.parity", "multimem.ld_reduce", "multimem.red", "multimem.st", "red.async", "setmaxnreg.dec",
    "setmaxnreg.inc", "shf.l", "shf.r", "st.async", "st.bulk", "tcgen05.alloc", "tcgen05.commit", "tcgen05.cp",
    "tcgen05.dealloc", "tcgen05.ld", "tcgen05.ld.red", "tcgen05.mma", "tcgen05.mma.ws",
    "tcgen05.relinquish_alloc_permit", "tcgen05.shift", "tcgen05.st", "tcgen05.wait::ld", "tcgen05.wait::st",
    "tensormap.cp_fenceproxy", "tensormap.replace", "wgmma.commit_group", "wgmma.fence", "wgmma.mma_async",
    "wgmma.mma_async.sp", "wgmma.wait_group", "wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.mma", "wmma.store.d",
)  # fmt: skip
"""Opcodes whose first words are the name of the operation and stay in front; of all others every modifier may move."""
BEFORE_THE_TYPE = {
    "mul": ("lo", "hi", "wide"),
    "mad": ("lo", "hi", "wide"),
    "mul24": ("lo", "hi"),
    "mad24": ("lo", "hi"),
    "dp2a": ("lo", "hi"),
}
"""Modifiers that ptxas wants before the type."""


@cache
def canonical(opcode: str) -> str:
    """The opcode with its modifiers in the order of the ISA's syntax lines; as it is if no row reads it so."""
    if match(opcode):
        return opcode
    base, *words = opcode.split(".")
    name = _name(opcode)
    fixed = name.count(".")
    if len(words) > _MOST_MOVED + fixed:
        return opcode
    types = [at for at, word in enumerate(words) if word in dtypes.ALL]
    early = [at for at, word in enumerate(words) if word in BEFORE_THE_TYPE.get(base, ())]
    if types and any(at > types[0] for at in early):
        return opcode
    for form in rows_of(base):
        if form.fixed_words.issubset(words):
            order = _ordered(form, tuple(words[fixed:]), tuple(words[:fixed]))
            if order is not None and _name(found := ".".join((base, *order))) == name:
                return found
    return opcode


def _name(opcode: str) -> str:
    """The words that name the operation and keep their place, "" where it is the first one alone."""
    return max((name for name in NAMES if f"{opcode}.".startswith(f"{name}.")), key=len, default="")


def _ordered(form: Form, words: tuple[str, ...], before: tuple[str, ...]) -> tuple[str, ...] | None:
    """The words after `before` in the order of a row's slots; None if it does not take them all."""
    slots = form.modifier_slots

    def place(at: int, left: tuple[str, ...], taken: tuple[str, ...]) -> tuple[str, ...] | None:
        if at == len(slots):
            return taken if not left and taken[: len(before)] == before else None
        passed = set()
        for number, word in enumerate(left):
            role = _ROLES.get(word)
            if slots[at].accepts(word) and role not in passed:
                found = place(at + 1, left[:number] + left[number + 1 :], (*taken, word))
                if found is not None:
                    return found
            if role is not None:
                passed.add(role)
        return place(at + 1, left, taken) if slots[at].optional else None

    return place(0, (*before, *words), ())
