"""All cases, and which rows of the instruction table have none."""

from __future__ import annotations

from functools import lru_cache

from . import barriers, bulk, clusters, memory, mma, scalars, tma, warp, wgmma, wmma
from .case import Case

MODULES = (scalars, memory, warp, barriers, bulk, tma, clusters, mma, wmma, wgmma)


@lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    """Every case, in the order of the instruction table's chapters. Raises ValueError for two of one name."""
    found = tuple(case for module in MODULES for case in module.cases())
    names: set[str] = set()
    for case in found:
        if case.name in names:
            raise ValueError(f"two cases are named {case.name}")
        names.add(case.name)
    return found


WITHOUT: dict[str, str] = {
    "trap": "it ends the kernel with an error",
    "brkpt": "it needs a debugger",
    "createpolicy.convert": "its operand comes from CUDA's own access properties",
    **{key: "only sm_100 and later have it" for key in (
        "ld.wide", "ld.wide_policy", "ld.wide_nc", "ld.wide_nc_policy", "st.wide", "st.wide_policy", "redux.float",
        "async_store.fill",
    )},
}  # fmt: skip
"""Rows that the emulator runs and that have no case, and why."""
