"""Blackwell's instructions with every choice of their modifiers, the illegal ones too, as texts by family.

What ptxas said of each on each target is recorded in `verdicts/blackwell.json`; `python -m tests.isa.blackwell_space`
asks it again, all of it, and writes that file. Registers are those of `examples.kernel_text`.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.isa import blackwell_beside
from tests.isa.assembling import find_ptxas, refused

TARGETS = ("sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_110a", "sm_110f", "sm_120a")
VERSION = (9, 0)
FILE = Path(__file__).with_name("verdicts") / "blackwell.json"
GROUPS = ("", ".cta_group::1", ".cta_group::2")
PAIR = GROUPS[1:]
NUMBERS = (1, 2, 4, 8, 16, 32, 64, 128)
EACH = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
product = itertools.product


def vector(count: int) -> str:
    return "{" + ", ".join(f"%b32_{number}" for number in range(count)) + "}"


def allocation() -> Iterator[str]:
    amounts = ("0", "16", "32", "48", "64", "96", "128", "160", "256", "512", "1024", "%r1")
    for group, aligned, space, amount in product(
        GROUPS, (".aligned", ""), (".shared::cta", "", ".shared", ".shared::cluster"), amounts
    ):
        address = "%rd0" if not space else "%r0"
        yield f"tcgen05.alloc{group}.sync{aligned}{space}.b32 [{address}], {amount};"
    for group, amount, address in product(GROUPS, amounts, ("%r0", "%rd0", "0", "%f0")):
        yield f"tcgen05.dealloc{group}.sync.aligned.b32 {address}, {amount};"
    for group, aligned in product(GROUPS, (".aligned", "")):
        yield f"tcgen05.relinquish_alloc_permit{group}.sync{aligned};"


def register_copies() -> Iterator[str]:
    for shape, number, packed in product(EACH, NUMBERS, (False, True)):
        count = EACH[shape] * number
        for registers, split in product((count, count + 1), ("", ", 0", ", 16", ", %r9")):
            if registers > 129 or (registers != count and split in (", 16", ", %r9")):
                continue
            values = vector(registers)
            load, store = ".pack::16b" * packed, ".unpack::16b" * packed
            yield f"tcgen05.ld.sync.aligned.{shape}.x{number}{load}.b32 {values}, [%r0+4]{split};"
            yield f"tcgen05.st.sync.aligned.{shape}.x{number}{store}.b32 [%r0+4]{split}, {values};"
    for shape in EACH:
        one = vector(EACH[shape])
        for address, values in product(("%rd0", "0", "%f0", "smem"), (one, "%r0", "{_}", "{1}")):
            yield f"tcgen05.ld.sync.aligned.{shape}.x1.b32 {values}, [{address}];"
            yield f"tcgen05.st.sync.aligned.{shape}.x1.b32 [{address}], {values};"
        yield f"tcgen05.ld.cta_group::1.sync.aligned.{shape}.x1.b32 {one}, [%r0];"
    for what, aligned in product(("wait::ld", "wait::st", "wait::mma"), (".aligned", "")):
        yield f"tcgen05.{what}.sync{aligned};"


def reducing_loads() -> Iterator[str]:
    for shape, number, operation, size, nan in product(
        ("32x32b", "16x32bx2", "16x64b"), NUMBERS, ("min", "max"), ("", ".abs"), ("", ".NaN")
    ):
        for kind, split in product(("f32", "u32", "s32"), ("", ", 16")):
            head = f"tcgen05.ld.red.sync.aligned.{shape}.x{number}.{operation}{size}{nan}.{kind}"
            values = "{" + ", ".join(f"%{kind}_{at}" for at in range(number)) + "}"
            yield f"{head} {values}, %{kind}_{130}, [%r0]{split};"


def copies() -> Iterator[str]:
    shapes = ("128x256b", "4x256b", "128x128b", "64x128b", "32x128b", "16x256b")
    casts = ("", ".warpx4", ".warpx2::02_13", ".warpx2::01_23")
    formats = ("", ".b8x16.b6x16_p32", ".b8x16.b4x16_p64", ".b6x16_p32")
    for group, shape, cast, form in product(GROUPS, shapes, casts, formats):
        yield f"tcgen05.cp{group}.{shape}{cast}{form} [%r0], %rd0;"
    for group in GROUPS:
        yield f"tcgen05.shift{group}.down [%r0];"
        yield f"tcgen05.shift{group} [%r0];"


KINDS = ("f16", "tf32", "f8f6f4", "i8")
BLOCKS = ("mxf8f6f4", "mxf4", "mxf4nvf4")
USES = ("", *(f".collector::a::{use}" for use in ("fill", "use", "lastuse", "discard")))
A = {"desc": "%rd0", "tmem": "[%r1]"}


def products() -> Iterator[str]:
    for group, kind, sparse, a, shift, use, mask, scale in product(
        PAIR, KINDS, ("", ".sp"), A, ("", ".ashift"), USES, (0, 1), ("", ", 3")
    ):
        lanes = vector(8 if group.endswith("2") else 4) + ", " if mask else ""
        metadata = "[%r4], " if sparse else ""
        head = f"tcgen05.mma{sparse}{group}.kind::{kind}{shift}{use}"
        yield f"{head} [%r0], {A[a]}, %rd1, {metadata}%r2, {lanes}%p0{scale};"


def operands_of_products() -> Iterator[str]:
    """Other operands, the wrong number of masks, missing modifiers, numbers out of range."""
    for kind in (*KINDS, *BLOCKS):
        yield f"tcgen05.mma.cta_group::1.kind::{kind} [%r0], %rd0, %rd1, %r2, %p0;"
    head = "tcgen05.mma.cta_group::1.kind::f16"
    for d, a, b, idesc, p in product(
        ("[%r0]", "[%r0+32]", "%r0", "[%u32_0]", "[%rd0]"), ("%rd0", "[%r1+8]", "5"), ("%rd1", "[%r1]", "5"),
        ("%r2", "7", "%u32_2", "%f2", "%rd2"), ("%p0", "!%p0", "1", "0", "2", "%r3"),
    ):  # fmt: skip
        yield f"{head} {d}, {a}, {b}, {idesc}, {p};"
    for count, group in product((3, 4, 5, 7, 8, 9), PAIR):
        yield f"tcgen05.mma{group}.kind::f16 [%r0], %rd0, %rd1, %r2, {vector(count)}, %p0;"
    for scale in ("0", "15", "16", "-1", "%r3"):
        yield f"{head} [%r0], %rd0, %rd1, %r2, %p0, {scale};"
    yield "tcgen05.mma.kind::f16 [%r0], %rd0, %rd1, %r2, %p0;"
    yield "tcgen05.mma.cta_group::1 [%r0], %rd0, %rd1, %r2, %p0;"
    yield f"{head} [%r0], %rd0, %rd1, %r2;"


def block_scaled() -> Iterator[str]:
    vectors = ("", *(f".scale_vec::{count}X" for count in (1, 2, 4)), ".block16", ".block32")
    for group, kind, sparse, a, scaled, size, use in product(
        PAIR, BLOCKS, ("", ".sp"), A, (".block_scale", ""), vectors, USES
    ):
        metadata = "[%r4], " if sparse else ""
        head = f"tcgen05.mma{sparse}{group}.kind::{kind}{scaled}{size}{use}"
        yield f"{head} [%r0], {A[a]}, %rd1, {metadata}%r2, [%r5], [%r6], %p0;"
    for kind, tail in product(BLOCKS, (f"{vector(4)}, %p0", "%p0, 3", "%p0")):
        scale = "[%r5], [%r6], " if tail != "%p0" else ""
        size = ".block16" if kind == "mxf4nvf4" else ""
        yield f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale{size} [%r0], %rd0, %rd1, %r2, {scale}{tail};"
        shifted = f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale{size}.ashift"
        yield f"{shifted} [%r0], [%r1], %rd1, %r2, [%r5], [%r6], %p0;"


def weight_stationary() -> Iterator[str]:
    buffers = ("a", "b0", "b1", "b2", "b3")
    uses = ("", *(f".collector::{one}::{use}" for one in buffers for use in ("fill", "use", "lastuse", "discard")))
    for group, kind, sparse, a, use, zeros in product(PAIR, (*KINDS, "mxf4"), ("", ".sp"), A, uses, ("", ", %rd4")):
        if group.endswith("2") and (use or zeros):
            continue
        metadata = "[%r4], " if sparse else ""
        yield f"tcgen05.mma.ws{sparse}{group}.kind::{kind}{use} [%r0], {A[a]}, %rd1, {metadata}%r2, %p0{zeros};"
    yield "tcgen05.mma.ws.cta_group::1.kind::f16.ashift [%r0], [%r1], %rd1, %r2, %p0;"
    yield f"tcgen05.mma.ws.cta_group::1.kind::f16 [%r0], %rd0, %rd1, %r2, {vector(4)}, %p0;"


def completion() -> Iterator[str]:
    for group, space, multicast, mask in product(
        GROUPS, ("", ".shared::cluster", ".shared::cta"), ("", ".multicast::cluster"), ("", ", %h0", ", %r3", ", 3")
    ):
        address = "%rd0" if not space else "%r0+8"
        yield f"tcgen05.commit{group}.mbarrier::arrive::one{space}{multicast}.b64 [{address}]{mask};"
    for fence in ("before_thread_sync", "after_thread_sync", "thread_sync"):
        yield f"tcgen05.fence::{fence};"


def launch_control() -> Iterator[str]:
    for space, bytes_, multicast in product(
        ("", ".shared::cta", ".shared::cluster"), (".mbarrier::complete_tx::bytes", ""),
        ("", ".multicast::cluster::all", ".multicast::cluster"),
    ):  # fmt: skip
        address = "%rd" if not space else "%r"
        yield f"clusterlaunchcontrol.try_cancel.async{space}{bytes_}{multicast}.b128 [{address}0], [{address}1];"
    head = "clusterlaunchcontrol.query_cancel"
    for result, response in product(("%p0", "%r0"), ("%q0", "%rd0")):
        yield f"{head}.is_canceled.pred.b128 {result}, {response};"
    for axis, result in product("xyzw", ("%r0", "%rd0")):
        yield f"{head}.get_first_ctaid::{axis}.b32.b128 {result}, %q0;"
    for result in ("{%r0, %r1, %r2, %r3}", "{%r0, %r1, %r2, _}", "{%r0, %r1, %r2}"):
        yield f"{head}.get_first_ctaid.v4.b32.b128 {result}, %q0;"


def tensor_copies() -> Iterator[str]:
    bytes_ = ".mbarrier::complete_tx::bytes"
    coordinates = {2: "{%r1, %r2}", 3: "{%r1, %r2, %r3}", 4: "{%r1, %r2, %r3, %r4}", 5: "{%r1, %r2, %r3, %r4, %r5}"}
    infos = {"": "", "1": ", {%h1}", "2": ", {%h1, %h2}", "3": ", {%h1, %h2, %h3}"}
    modes = ("", ".tile", ".tile::gather4", ".im2col", ".im2col::w", ".im2col::w::128")
    for dim, mode, to, group in product((2, 3, 5), modes, ("shared::cta", "shared::cluster"), GROUPS):
        counts = {dim, 5} if "gather4" in mode else {dim}
        for count, info in product(sorted(counts), infos.values()):
            if info and "im2col" not in mode:
                continue
            place = f"[%r0], [%rd0, {coordinates[count]}], [%r6]{info}"
            head = f"cp.async.bulk.tensor.{dim}d.{to}.global{mode}{bytes_}"
            yield f"{head}{group} {place};"
            if to == "shared::cluster":
                yield f"{head}.multicast::cluster{group} {place}, %h9;"
    for dim, mode in product((2, 3), ("", ".tile", ".tile::scatter4", ".im2col_no_offs")):
        for count in sorted({dim, 5} if "scatter4" in mode else {dim}):
            place = f"[%rd0, {coordinates[count]}], [%r6]"
            yield f"cp.async.bulk.tensor.{dim}d.global.shared::cta{mode}.bulk_group {place};"
            yield f"cp.reduce.async.bulk.tensor.{dim}d.global.shared::cta.add{mode}.bulk_group {place};"


FAMILIES: dict[str, Callable[[], Iterator[str]]] = {
    family.__name__: family
    for family in (
        allocation, register_copies, reducing_loads, copies, products, operands_of_products, block_scaled,
        weight_stationary, completion, launch_control, tensor_copies, *blackwell_beside.FAMILIES,
    )
}  # fmt: skip


def texts(family: str) -> list[str]:
    """The instructions of a family, each once."""
    return list(dict.fromkeys(FAMILIES[family]()))


def fingerprint(family: str) -> str:
    return hashlib.sha256("\n".join(texts(family)).encode()).hexdigest()[:16]


def recorded() -> dict[str, dict[str, np.ndarray]]:
    """Family -> target -> whether ptxas accepts each of its texts."""
    stored = json.loads(FILE.read_text())["families"]
    found: dict[str, dict[str, np.ndarray]] = {}
    for family, entry in stored.items():
        assert entry["texts"] == fingerprint(family), f"{family} has changed: python -m tests.isa.blackwell_space"
        count = len(texts(family))
        found[family] = {
            target: np.unpackbits(np.frombuffer(base64.b85decode(packed), np.uint8))[:count].astype(bool)
            for target, packed in entry["accepted"].items()
        }
    return found


def ask(family: str, target: str) -> np.ndarray:
    """What ptxas says of a family now."""
    instructions = texts(family)
    bad = refused(instructions, target, VERSION)
    return np.array([index not in bad for index in range(len(instructions))])


def main() -> None:
    ptxas = find_ptxas()
    assert ptxas is not None
    said = subprocess.run([ptxas, "--version"], capture_output=True, text=True).stdout
    families = {}
    for family in FAMILIES:
        accepted = {}
        for target in TARGETS:
            verdicts = ask(family, target)
            accepted[target] = base64.b85encode(np.packbits(verdicts).tobytes()).decode()
            print(f"{family:24s} {target:8s} {verdicts.sum():5d} of {verdicts.size}", flush=True)
        families[family] = {"texts": fingerprint(family), "accepted": accepted}
    version = re.search(r"V([\d.]+)", said)
    record = {"ptxas": version[1] if version else "", "version": list(VERSION), "families": families}
    FILE.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
