"""Rows of tensor memory: allocation, copies to and from it, completion and order. PTX ISA 9.7.16.7 to .9, .11, .12.

Tensor memory belongs to an SM: 128 lanes of 512 columns of 32 bits, and an address is `lane << 16 | column`. Only
these instructions and `tcgen05_mma`'s access it. The rows accept what ptxas 13.0 accepts, including a load or store
without .aligned, except where it misses a check: it accepts any multiple of 32 as the number of columns to free.
"""

from __future__ import annotations

from typing import Any

from ..effects import (
    ASYNC,
    READS,
    RUN,
    TENSOR,
    UPDATES,
    WRITES,
    Access,
    Allocates,
    Arrives,
    Choice,
    Commits,
    Creates,
    Destroys,
    Drained,
    Fences,
    Frees,
    Operand,
    Order,
    Permits,
    Signalled,
    Starts,
    Synchronises,
    Waits,
)
from ..tensor_memory import COLUMNS, SIZES
from .schema import Form, Modifiers

FAMILY = "tcgen05"
"""The operations that a commit covers: mma, cp, shift."""
LOADS, STORES = "tcgen05.ld", "tcgen05.st"
"""The operations that wait::ld and wait::st cover."""
TARGETS = "sm_100f sm_101f sm_110f"
CHIP_TARGETS = "sm_100a sm_101a sm_103a sm_110a"
"""Targets that have the features of a chip rather than of its family."""
PTX = (8, 6)
_HERE: dict[str, Any] = {"arch": TARGETS, "ptx": PTX}
_TOGETHER: dict[str, Any] = {**_HERE, "converged": "warp"}
GROUPS = {"cta_group": "cta_group::1 cta_group::2"}
IN_THE_PAIR = Choice("cta_group", means={"cta_group::1": "own", "cta_group::2": "pair"})
"""The tensor and shared memory that an operation accesses: its CTA's, or the same location in both CTAs of the pair."""
OF_A_PAIR = Choice("cta_group", means={"cta_group::1": False, "cta_group::2": True})
_COLUMNS = {"n": (SIZES, "32, 64, 128, 256 or 512")}

# -- allocation --------------------------------------------------------------------------------------------------

_PAIR_MEETS = Synchronises("pair", orders=False, when=OF_A_PAIR)
_ALLOCATION = (
    Form(
        "tcgen05.alloc", "tcgen05.alloc.cta_group.sync.aligned{.space}.b32", "[dst], n:u32",
        {**GROUPS, "space": "shared::cta"}, **_TOGETHER, ranges=_COLUMNS, section="9.7.16.7.1",
        effects=(
            _PAIR_MEETS, Allocates("columns", Operand("n")), Creates("columns", "dst", Operand("n")),
            Access(WRITES, "dst", "shared", footprint="value", lanes="any"),
        ),
    ),
    Form(
        "tcgen05.dealloc", "tcgen05.dealloc.cta_group.sync.aligned.b32", "taddr:u32, n:u32", GROUPS, **_TOGETHER,
        ranges=_COLUMNS, section="9.7.16.7.1",
        effects=(_PAIR_MEETS, Destroys("columns", "taddr"), Frees("columns", Operand("n"))),
    ),
    Form(
        "tcgen05.relinquish_alloc_permit", "tcgen05.relinquish_alloc_permit.cta_group.sync.aligned", "", GROUPS,
        **_TOGETHER, section="9.7.16.7.1", effects=(Permits("columns of the next CTA"),),
    ),
)  # fmt: skip

# -- registers and tensor memory ---------------------------------------------------------------------------------

REGISTERS_OF_X1 = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""Registers that each thread reads or writes, by shape, at `.x1`."""
MOST_REGISTERS = 128


def repeats(modifiers: Modifiers) -> int:
    """The number after the x of `.x1` to `.x128`."""
    return int(str(modifiers["num"])[1:])


def registers(modifiers: Modifiers) -> int:
    """Registers per thread; also with `.pack::16b` and `.unpack::16b`."""
    return REGISTERS_OF_X1[str(modifiers["shape"])] * repeats(modifiers)


def _fits(modifiers: Modifiers) -> str | None:
    each = REGISTERS_OF_X1[str(modifiers["shape"])]
    if registers(modifiers) > MOST_REGISTERS:
        return f".{modifiers['shape']} goes up to .x{MOST_REGISTERS // each}: a thread reads or writes {each} at .x1"
    return None


_WHOLE = {"shape": "32x32b 16x64b 16x128b 16x256b"}
_SPLIT = {"shape": "16x32bx2"}
_NUMBERS = {"num": "x1 x2 x4 x8 x16 x32 x64 x128"}
_SEVERAL = {"num": "x2 x4 x8 x16 x32 x64 x128"}
_HALF = {"split": (range(COLUMNS), "a column of tensor memory, 0 to 511")}
_REGISTERS: dict[str, Any] = {
    **_TOGETHER, "lengths": {"n": registers}, "check": _fits, "section": "9.7.16.8.3",
}  # fmt: skip


def _moves(family: str, how: str, register: str) -> dict[str, Any]:
    """The effects of a copy between the registers of a warp and tensor memory."""
    other = WRITES if how == READS else READS
    return {
        "effects": (
            Starts("tensor_memory", (Drained(family),), parts="warp"),
            Access(how, "taddr", "tensor", TENSOR, "fragment_cells", at=RUN, lanes="any"),
            Access(other, register, "register", footprint="register", at=RUN if other == WRITES else "issue"),
        ),
        "noun": family,
    }


_LOADED, _STORED = _moves(LOADS, READS, "r"), _moves(STORES, WRITES, "r")
_REDUCED = {
    **_LOADED,
    "effects": (*_LOADED["effects"], Access(WRITES, "redval", "register", footprint="register", at=RUN)),
}
_RED = "tcgen05.ld.red.sync{.aligned}.shape.num.op"
_REDUCTIONS: dict[str, Any] = {**_REGISTERS, "arch": "sm_103f sm_101f sm_110f", "ptx": (8, 8), "check": None}


def _reductions(name: str, shape: dict[str, str], tail: str) -> tuple[Form, ...]:
    """Loads that also reduce each thread's values; `tail`: the operands after the address."""
    operands = f">r:type*n, >redval:type, [taddr@tensor]{tail}"
    ranges = _HALF if tail else {}
    slots = {**shape, **_SEVERAL, "op": "min max"}
    return (
        Form(f"tcgen05.ld_red{name}_float", f"{_RED}{{.abs}}{{.NaN}}.type", operands, {**slots, "type": "f32"},
             **_REDUCTIONS, **_REDUCED, ranges=ranges),
        Form(f"tcgen05.ld_red{name}_integer", f"{_RED}.type", operands, {**slots, "type": "u32 s32"},
             **_REDUCTIONS, **_REDUCED, ranges=ranges),
    )  # fmt: skip


_REGISTER_COPIES = (
    Form(
        "tcgen05.ld", "tcgen05.ld.sync{.aligned}.shape.num{.pack::16b}.b32", ">r:b32*n, [taddr@tensor]",
        {**_WHOLE, **_NUMBERS}, **_REGISTERS, **_LOADED,
    ),
    Form(
        "tcgen05.ld_split", "tcgen05.ld.sync{.aligned}.shape.num{.pack::16b}.b32",
        ">r:b32*n, [taddr@tensor], split:imm", {**_SPLIT, **_NUMBERS}, **_REGISTERS, **_LOADED, ranges=_HALF,
    ),
    *_reductions("", {"shape": "32x32b"}, ""),
    *_reductions("_split", _SPLIT, ", split:imm"),
    Form(
        "tcgen05.st", "tcgen05.st.sync{.aligned}.shape.num{.unpack::16b}.b32", "[taddr@tensor], r:b32!*n",
        {**_WHOLE, **_NUMBERS}, **{**_REGISTERS, "section": "9.7.16.8.4"}, **_STORED,
    ),
    Form(
        "tcgen05.st_split", "tcgen05.st.sync{.aligned}.shape.num{.unpack::16b}.b32",
        "[taddr@tensor], split:imm, r:b32!*n", {**_SPLIT, **_NUMBERS},
        **{**_REGISTERS, "section": "9.7.16.8.4"}, **_STORED, ranges=_HALF,
    ),
    Form(
        "tcgen05.wait_ld", "tcgen05.wait::ld.sync.aligned", "", **_TOGETHER, section="9.7.16.8.5",
        effects=(Waits(f"drained:{LOADS}"),),
    ),
    Form(
        "tcgen05.wait_st", "tcgen05.wait::st.sync.aligned", "", **_TOGETHER, section="9.7.16.8.5",
        effects=(Waits(f"drained:{STORES}"),),
    ),
)  # fmt: skip

# -- shared memory to tensor memory ------------------------------------------------------------------------------

MULTICAST_OF = {
    "128x256b": (None,), "4x256b": (None,), "128x128b": (None,), "64x128b": ("warpx2::02_13", "warpx2::01_23"),
    "32x128b": ("warpx4",),
}  # fmt: skip
"""The quarters of the lanes that receive copies, by shape of tcgen05.cp; None: each row goes to one lane."""


def _multicast(modifiers: Modifiers) -> str | None:
    shape, took = str(modifiers["shape"]), modifiers["multicast"]
    allowed = MULTICAST_OF[shape]
    if took in allowed:
        return None
    if allowed == (None,):
        return f".{shape} has no .{took}: each of its rows goes to one lane"
    return f".{shape} needs {' or '.join(f'.{one}' for one in allowed)}"


def _started(pipeline: str) -> Starts:
    return Starts("umma", (Signalled(FAMILY),), pipeline=pipeline)


_COPIES = tuple(
    Form(
        f"tcgen05.cp{name}", f"tcgen05.cp.cta_group.shape{{.multicast}}{formats}", "[taddr@tensor], desc:u64",
        {**GROUPS, "shape": " ".join(MULTICAST_OF), "multicast": "warpx2::02_13 warpx2::01_23 warpx4",
         "source": "b6x16_p32 b4x16_p64"},
        **_HERE, check=_multicast, section="9.7.16.9.2", noun="tcgen05.cp",
        effects=(
            _started("copies"),
            Access(READS, "desc", "shared", ASYNC, "descriptor", at=RUN, rank=IN_THE_PAIR),
            Access(WRITES, "taddr", "tensor", TENSOR, "copied_cells", at=RUN, rank=IN_THE_PAIR),
        ),
    )
    for name, formats in (("", ""), ("_widened", ".b8x16.source"))
)  # fmt: skip
_SHIFT = Form(
    "tcgen05.shift", "tcgen05.shift.cta_group.down", "[taddr@tensor]", GROUPS, arch=CHIP_TARGETS, ptx=PTX,
    section="9.7.16.9.3", noun="tcgen05.shift",
    effects=(
        _started("copies"),
        Access(UPDATES, "taddr", "tensor", TENSOR, "shifted_cells", at=RUN, rank=IN_THE_PAIR),
    ),
)  # fmt: skip

# -- completion and order ----------------------------------------------------------------------------------------


def _commit(rank: str) -> tuple[Commits, Fences]:
    """The effects of a commit: an arrival when all operations of the thread are complete, and a preceding fence."""
    arrival = Arrives("mbar", order=Order("release", "cluster"), rank=rank, engine="umma")
    return (
        Commits(FAMILY, covers="all", signals=arrival),
        Fences(f"thread_sync:{FAMILY}", direction="release"),
    )


_MBARRIER = "tcgen05.commit.cta_group.mbarrier::arrive::one{.space}"
_COMPLETION = (
    Form(
        "tcgen05.commit", f"{_MBARRIER}.b64", "[mbar]", {**GROUPS, "space": "shared::cluster"}, **_HERE,
        section="9.7.16.12.1", effects=_commit("any"), narrow=True,
    ),
    Form(
        "tcgen05.commit_multicast", f"{_MBARRIER}.multicast::cluster.b64", "[mbar], mask:u16!",
        {**GROUPS, "space": "shared::cluster"}, **_HERE, section="9.7.16.12.1", effects=_commit("mask:mask"),
        narrow=True,
    ),
    Form(
        "tcgen05.fence", "tcgen05.fence", "", {"fence": "fence::before_thread_sync fence::after_thread_sync"},
        **_HERE, section="9.7.16.11.1",
        effects=(
            Fences(
                f"thread_sync:{FAMILY}",
                direction=Choice("fence", means={
                    "fence::before_thread_sync": "release", "fence::after_thread_sync": "acquire",
                }),
            ),
        ),
    ),
)  # fmt: skip

FORMS: tuple[Form, ...] = (*_ALLOCATION, *_REGISTER_COPIES, *_COPIES, _SHIFT, *_COMPLETION)
