"""All cases, and which rows of the instruction table have none."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from warploom.isa import arch
from warploom.isa.instructions import table

from . import barriers, bulk, clusters, im2col, memory, mma, scalars, tma, warp, wgmma, wmma
from .case import NEWEST, Case

MODULES = (scalars, memory, warp, barriers, bulk, tma, im2col, clusters, mma, wmma, wgmma)


_FROM_SM80 = ("cp_async/", "warp/shfl", "warp/vote", "warp/match", "control/", "atomics/contended", "floating/fma.")
"""Cases, by the start of their names, that also run as a text for sm_80: where shared memory starts is another matter
there, the results are not."""


@lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    """Every case, in the order of the instruction table's chapters. Raises ValueError for two of one name."""
    made = [case for module in MODULES for case in module.cases()]
    older = [case for case in made if case.name.startswith(_FROM_SM80)]
    found = (*made, *(replace(case, name=f"{case.name} from sm_80", target="sm_80") for case in older))
    names: set[str] = set()
    for case in found:
        if case.name in names:
            raise ValueError(f"two cases are named {case.name}")
        names.add(case.name)
    return found


WITHOUT: dict[str, str] = {
    "trap": "it ends the kernel with an error",
    "brkpt": "it needs a debugger",
    **{form.key: "it needs a multicast object" for form in table.FORMS if form.key.startswith("multimem.")},
    "createpolicy.convert": "its operand comes from CUDA's own access properties",
    **{form.key: "ptxas 13.0 does not know it" for form in table.FORMS if form.ptx > NEWEST},
    **{
        form.key: "only sm_100 and later have it"
        for form in table.FORMS
        if form.arch and min(arch.get(name).number for name in form.arch.split()) >= 100
    },
}
"""Rows that the emulator runs and that have no case, and why."""
PENDING: dict[str, str] = {
    "wmma/wmma.mma.sync.aligned.row.col.m8n8k32": "added after the recording",
    "wmma/wmma.mma.xor.popc": "added after the recording",
    "wmma/wmma.mma.and.popc": "added after the recording",
}
"""Beginnings of the names of cases that run here and are still to be recorded, and why."""
