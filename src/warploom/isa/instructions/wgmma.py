"""Rows of Hopper's warpgroup multiply-accumulate `wgmma`. PTX ISA 9.7.15.5 and 9.7.15.7.

For each input type there is a row with A by a descriptor (`_desc`) and one with A in registers (`_regs`), and the same
two for a sparse A (`sp_`), of which half is stored and k counts all (PTX ISA 9.7.15.6).
The accumulator is one operand that is read and written: n/2 32-bit registers per thread (n/4 for f16).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..effects import (
    ASYNC,
    READS,
    RUN,
    UPDATES,
    WRITES,
    Access,
    Commits,
    Effect,
    Fences,
    Group,
    Operand,
    Starts,
    Waits,
)
from .mma import shape_of
from .schema import Form, Modifiers

SECTION = "9.7.15.5.2"
FLOAT_N = tuple(range(8, 257, 8))
"""The n of the floating-point shapes."""
INTEGER_N = (8, 16, 24, 32, *range(48, 257, 16))
"""The n of the integer and single-bit shapes. (The ISA's text lists the integer ones to 224 only; its table, and
ptxas, have 240 and 256 too.)"""

SPARSE_K_OF_BYTES = 64
"""The k of a sparse MMA of bytes, whose metadata fills a register of every thread, so that nothing is selected."""


def _float_n(modifiers: Modifiers) -> str | None:
    n = shape_of(modifiers)[1]
    return None if n in FLOAT_N else f"n must be a multiple of 8 from 8 to 256, and is {n}"


def _integer_n(modifiers: Modifiers) -> str | None:
    n = shape_of(modifiers)[1]
    return None if n in INTEGER_N else f"n must be 8, 16, 24, 32 or a multiple of 16 from 48 to 256, and is {n}"


def _accumulators(per_register: int) -> Callable[[Modifiers], int]:
    return lambda modifiers: max(shape_of(modifiers)[1] // 2 // per_register, 1)


FAMILY = "wgmma"
_OWNER = "warpgroup"
"""A wgmma belongs to its warpgroup: a wait by any of the four warps proves its completion."""
_STARTS = Starts(
    "warpgroup_mma", (Group(FAMILY, _OWNER),), parts="warpgroup", forks="fence", pipeline="accumulator and shape"
)
_B = Access(READS, "b", "shared", ASYNC, "descriptor", at=RUN)
_D = (
    Access(UPDATES, "d", "register", footprint="register", at=RUN, when=Operand("scale_d")),
    Access(WRITES, "d", "register", footprint="register", at=RUN),
)
_A = {
    "desc": Access(READS, "a", "shared", ASYNC, "descriptor", at=RUN),
    "regs": Access(READS, "a", "register", footprint="register", at=RUN),
}


def _effects(a: str) -> tuple[Effect, ...]:
    return (_STARTS, _A[a], _B, *_D)


_TRANSPOSABLE = ("ia:imm, ib:imm, ta:imm, tb:imm", "ia:imm, ib:imm, tb:imm")
_SCALABLE = ("ia:imm, ib:imm", "ia:imm, ib:imm")
_PLAIN = ("", "")
_RANGES: Mapping[str, tuple[tuple[int, ...], str]] = {
    **dict.fromkeys(("scale_d", "ta", "tb"), ((0, 1), "0 or 1")),
    **dict.fromkeys(("ia", "ib"), ((-1, 1), "-1 or 1")),
}
_NO_SLOTS: Mapping[str, str] = {}


def _pair(
    name: str,
    opcode: str,
    k: int,
    accumulator: str,
    immediates: tuple[str, str],
    per_register: int = 1,
    slots: Mapping[str, str] = _NO_SLOTS,
    sparse: bool = False,
) -> tuple[Form, Form]:
    """The two rows of one input type: A by descriptor, A in registers."""
    check = _float_n if accumulator != "s32" else _integer_n
    forms = []
    if sparse:
        name, k = f"sp_{name}", 2 * k
    word, chosen = (".sp", "meta:b32!, sel:imm, ") if sparse else ("", "")
    selectors = 1 if k == SPARSE_K_OF_BYTES else 2
    packed, floats = "^f16x2" if accumulator == "b32" else "", "!" if accumulator == "s32" else "^f16x2"
    for suffix, a, rest in (("desc", "a:b64~", immediates[0]), ("regs", f"a:b32{floats}*4", immediates[1])):
        operands = f"+d:{accumulator}{packed}*n, {a}, b:b64~, {chosen}scale_d:pred" + (f", {rest}" if rest else "")
        forms.append(
            Form(
                f"wgmma.{name}_{suffix}",
                f"wgmma.mma_async{word}.sync.aligned.shape{opcode}",
                operands,
                {"shape": rf"re:m64n\d+k{k}", **slots},
                arch="sm_90a",
                ptx=(8, 2) if sparse else (8, 0),
                check=check,
                lengths={"n": _accumulators(per_register)},
                section=SECTION,
                effects=_effects(suffix),
                converged="warpgroup",
                unit="wgmma",
                noun="wgmma",
                example=_example(opcode, k, accumulator, a, rest, per_register, slots, sparse),
                ranges={"sel": (range(selectors), " or ".join(map(str, range(selectors)))), **_RANGES},
            )
        )
    return (forms[0], forms[1])


def _example(
    opcode: str, k: int, accumulator: str, a: str, rest: str, per_register: int, slots: Mapping[str, str],
    sparse: bool,
) -> str:  # fmt: skip
    """One whole instruction, at n = 16."""
    registers = {"f32": "%f", "b32": "%r", "s32": "%r"}[accumulator]
    d = ", ".join(f"{registers}{i}" for i in range(8 // per_register))
    words = [slots.get(word, word).split()[0] for word in re.sub(r"\{.*?\}", "", opcode).split(".")[1:]]
    matrix = "%rd0" if a.endswith("b64~") else "{%r8, %r9, %r10, %r11}"
    ones = "".join(", 1" if part.strip() in ("ia:imm", "ib:imm") else ", 0" for part in rest.split(",") if part)
    word, chosen = (".sp", "%r12, 0, ") if sparse else ("", "")
    shape = f"m64n16k{k}"
    return f"wgmma.mma_async{word}.sync.aligned.{shape}.{'.'.join(words)} {{{d}}}, {matrix}, %rd1, {chosen}%p0{ones};"


_FP8 = {"atype": "e4m3 e5m2", "btype": "e4m3 e5m2"}
_INT8 = {"saturate": "satfinite", "atype": "s8 u8", "btype": "s8 u8"}
# ptxas accepts .satfinite in the position of the ISA's syntax line and in that of its examples.
_INTEGERS = "{.saturate}.s32.atype.btype{.satfinite}"

FORMS: tuple[Form, ...] = (
    *(
        form
        for sparse in (False, True)
        for pair in (
            _pair("f16_f32", ".f32.f16.f16", 16, "f32", _TRANSPOSABLE, sparse=sparse),
            _pair("f16_f16", ".f16.f16.f16", 16, "b32", _TRANSPOSABLE, 2, sparse=sparse),
            _pair("bf16", ".f32.bf16.bf16", 16, "f32", _TRANSPOSABLE, sparse=sparse),
            _pair("tf32", ".f32.tf32.tf32", 8, "f32", _SCALABLE, sparse=sparse),
            _pair("fp8_f32", ".f32.atype.btype", 32, "f32", _SCALABLE, slots=_FP8, sparse=sparse),
            _pair("fp8_f16", ".f16.atype.btype", 32, "b32", _SCALABLE, 2, _FP8, sparse),
            _pair("int8", _INTEGERS, 32, "s32", _PLAIN, slots=_INT8, sparse=sparse),
        )
        for form in pair
    ),
    *_pair("b1", ".s32.b1.b1.and.popc", 256, "s32", _PLAIN),
    Form(
        "wgmma.fence", "wgmma.fence.sync.aligned", "", arch="sm_90a", ptx=(8, 0), section="9.7.15.7.1",
        converged="warp", effects=(Fences(f"registers:{FAMILY}"),),
    ),
    Form(
        "wgmma.commit_group", "wgmma.commit_group.sync.aligned", "", arch="sm_90a", ptx=(8, 0), section="9.7.15.7.2",
        converged="warp", effects=(Commits(FAMILY, _OWNER),),
    ),
    Form(
        "wgmma.wait_group", "wgmma.wait_group.sync.aligned", "n:imm", arch="sm_90a", ptx=(8, 0), section="9.7.15.7.3",
        ranges={"n": (range(1 << 32), "0 or more")},
        converged="warp", effects=(Waits(f"group:{FAMILY}", newest=Operand("n")),),
    ),
)  # fmt: skip
