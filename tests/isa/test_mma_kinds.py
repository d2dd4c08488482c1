"""mma.sync and mma.sp with a kind: the instruction table and ptxas 13.0 accept and refuse the same texts.

2,000 texts, legal and not, on eight targets. ptxas's verdicts are in `verdicts/mma_kinds.json`;
`python -m tests.isa.test_mma_kinds` queries it again and writes that file.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.isa.assembling import find_ptxas, refused
from tests.isa.test_instruction_table import refused_by_verifier
from warploom.isa.instructions import nearest

FILE = Path(__file__).with_name("verdicts") / "mma_kinds.json"
TARGETS = ("sm_90a", "sm_100", "sm_100a", "sm_103f", "sm_110a", "sm_120", "sm_120a", "sm_120f", "sm_121a")
VERSION = (9, 0)
TYPES = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
VECTORS = ("", ".scale_vec::1X", ".scale_vec::2X", ".scale_vec::4X", ".block16", ".block32")
A, B, DEEP_B = ("{" + ", ".join(f"%b32_{at}" for at in range(first, first + count)) + "}"
                for first, count in ((0, 4), (4, 2), (4, 4)))  # fmt: skip
F32, F16 = "{%f32_0, %f32_1, %f32_2, %f32_3}", "{%b32_8, %b32_9}"
FACTORS = ("%b32_10, {0, 0}, %b32_11, {0, 0}", "%b32_10, {%b16_0, %b16_1}, %b32_11, {%b16_2, 1}")
WE_REFUSE = {r"mma\.(?!.*block_scale).*kind::mx": "ptxas does not look at a kind that scales where nothing is scaled"}
"""What ptxas takes and we refuse, with the reason."""


def texts() -> Iterator[str]:
    """Each once, in an order that stays."""
    return iter(dict.fromkeys((*_plain(), *_scaled(), *_ids(), *_odd())))


def _plain() -> Iterator[str]:
    for a, b, (d, c) in itertools.product((*TYPES, "s8", "f16"), TYPES, (("f32", F32), ("f16", F16))):
        for head in ("m16n8k32.row.col.kind::f8f6f4", "kind::f8f6f4.m16n8k32.row.col", "m16n8k32.row.col"):
            yield f"mma.sync.aligned.{head}.{d}.{a}.{b}.{d} {c}, {A}, {B}, {c};"
        small = "{%b32_0, %b32_1}, {%b32_4}"
        yield f"mma.sync.aligned.m16n8k16.row.col.kind::f8f6f4.{d}.{a}.{b}.{d} {c}, {small}, {c};"
        for sparse, k in itertools.product(("sp", "sp::ordered_metadata"), (32, 64)):
            head = f"mma.{sparse}.sync.aligned.m16n8k{k}.row.col.kind::f8f6f4.{d}.{a}.{b}.{d}"
            yield f"{head} {c}, {A}, {DEEP_B}, {c}, %b32_12, 0;"


def _scaled() -> Iterator[str]:
    kinds = ("mxf8f6f4", "mxf4", "mxf4nvf4", "f8f6f4")
    for kind, vector, scale, deep in itertools.product(kinds, VECTORS, ("ue8m0", "ue4m3"), (32, 64, 128)):
        for types, factors in itertools.product(("e2m1.e2m1", "e4m3.e2m3"), FACTORS):
            tail = f"m16n8k{deep}.row.col.kind::{kind}.block_scale{vector}.f32.{types}.f32.{scale}"
            yield f"mma.sync.aligned.{tail} {F32}, {A}, {B}, {F32}, {factors};"
            yield f"mma.sp::ordered_metadata.sync.aligned.{tail} {F32}, {A}, {DEEP_B}, {F32}, %b32_12, 0, {factors};"
    for a, b in itertools.product(TYPES, TYPES):
        tail = f"row.col.kind::mxf8f6f4.block_scale.f32.{a}.{b}.f32.ue8m0"
        yield f"mma.sync.aligned.m16n8k32.{tail} {F32}, {A}, {B}, {F32}, {FACTORS[0]};"
        deep = f"{A}, {DEEP_B}, {F32}, %b32_12, 0, {FACTORS[0]}"
        yield f"mma.sp::ordered_metadata.sync.aligned.m16n8k64.{tail} {F32}, {deep};"


HEADS = (
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
)


def _ids() -> Iterator[str]:
    for head, byte, thread in itertools.product(HEADS, range(-1, 6), range(-1, 5)):
        yield f"{head} {F32}, {A}, {B}, {F32}, %b32_10, {{{byte}, {thread}}}, %b32_11, {{0, 0}};"
        yield f"{head} {F32}, {A}, {B}, {F32}, %b32_10, {{0, 0}}, %b32_11, {{{byte}, {thread}}};"
    sparse = HEADS[0].replace("mma.", "mma.sp::ordered_metadata.").replace("k32", "k64")
    for selector in range(-1, 4):
        yield f"{sparse} {F32}, {A}, {DEEP_B}, {F32}, %b32_12, {selector}, {FACTORS[0]};"


def _odd() -> Iterator[str]:
    head = HEADS[0]
    for factors in (
        "127, {0, 0}, %b32_11, {0, 0}", "%f32_9, {0, 0}, %b32_11, {0, 0}", "%b32_10, {%b32_13, 0}, %b32_11, {0, 0}",
        "%b32_10, %b32_11", "%b32_10, {0}, %b32_11, {0, 0}", "%b32_10, {0, 0, 0}, %b32_11, {0, 0}", "%b32_10, {0, 0}",
        "%b64_0, {0, 0}, %b32_11, {0, 0}", "%b32_10, {%u16_0, %s16_0}, %b32_11, {0, 0}",
    ):  # fmt: skip
        yield f"{head} {F32}, {A}, {B}, {F32}, {factors};"
    yield f"{head.replace('.block_scale.scale_vec::1X', '').replace('.ue8m0', '')} {F32}, {A}, {B}, {F32};"
    yield f"{head.replace('.kind::mxf8f6f4', '')} {F32}, {A}, {B}, {F32}, {FACTORS[0]};"
    yield f"{head.replace('.ue8m0', '')} {F32}, {A}, {B}, {F32}, {FACTORS[0]};"


def verdicts(target: str, ptxas: bool) -> list[bool]:
    """Of each text, whether ptxas takes it, or our verifier."""
    every = list(texts())
    bad = (refused if ptxas else refused_by_verifier)(every, target, VERSION)
    return [at not in bad for at in range(len(every))]


def recorded(target: str) -> list[bool]:
    return [mark == "1" for mark in json.loads(FILE.read_text())[target]]


@pytest.fixture(autouse=True)
def no_suggestions(monkeypatch):
    monkeypatch.setattr(nearest, "suggest", lambda opcode: "")


@pytest.mark.sample(3, all=4)
@pytest.mark.parametrize("target", TARGETS)
def test_the_table_takes_and_refuses_what_ptxas_does(target: str):
    every, ours, theirs = list(texts()), verdicts(target, ptxas=False), recorded(target)
    assert len(every) == len(theirs)
    only_ptxas = [text for text, mine, its in zip(every, ours, theirs, strict=True) if its and not mine]
    assert [text for text in only_ptxas if not any(re.match(pattern, text) for pattern in WE_REFUSE)] == []
    assert [text for text, mine, its in zip(every, ours, theirs, strict=True) if mine and not its] == []


def test_all_of_it_is_for_sm_120a():
    assert sum(recorded("sm_120a")) > 250 and sum(recorded("sm_90a")) < sum(recorded("sm_100a")) < 60


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas here")
def test_a_sample_is_asked_again():
    every, theirs = list(texts()), recorded("sm_120a")
    chosen = random.Random(0).sample(range(len(every)), 150)
    bad = refused([every[at] for at in chosen], "sm_120a", VERSION)
    assert [at not in bad for at in range(len(chosen))] == [theirs[at] for at in chosen]


def main() -> None:
    rows = {target: "".join("01"[good] for good in verdicts(target, ptxas=True)) for target in TARGETS}
    FILE.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
