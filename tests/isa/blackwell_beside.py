"""Blackwell's instructions other than tensor memory, with every choice of modifiers, including illegal ones, by family.

Packed and mixed arithmetic, narrow conversions, reductions of f32, three operands, 256-bit accesses, multimem, byte
masks, fields of tensor maps, matrices of 8 bits. `blackwell_space` queries ptxas.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

product = itertools.product
ROUNDED = ("", ".rn", ".rz", ".rm", ".rp")
NARROW = ("e2m1x2", "e2m3x2", "e3m2x2", "e4m3x2", "e5m2x2", "ue8m0x2")
REGISTER = {
    "b16": "%h", "f16": "%h", "bf16": "%h", "f32": "%f", "f64": "%fd", "b32": "%r", "u32": "%r", "s32": "%r",
    "b64": "%rd", "u64": "%rd", "s64": "%rd", "e4m3": "%b8_", "e5m2": "%b8_", "e4m3x2": "%h", "e5m2x2": "%h",
}  # fmt: skip


def several(kind: str, count: int) -> str:
    """Registers of a type; more than one in braces."""
    names = [f"{REGISTER.get(kind, '%r')}{number}" for number in range(count)]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def pairs_of_f32() -> Iterator[str]:
    for operation, rounded, more in product(("add", "sub", "mul", "fma"), ROUNDED, ("", ".ftz", ".sat", ".ftz.sat")):
        third = ", %rd3" if operation == "fma" else ""
        yield f"{operation}{rounded}{more}.f32x2 %rd0, %rd1, %rd2{third};"
    for operation in ("min", "max", "div.rn"):
        yield f"{operation}.f32x2 %rd0, %rd1, %rd2;"


def halves_into_f32() -> Iterator[str]:
    kinds = ("f16", "bf16", "f16x2", "tf32")
    for operation, rounded, flush, saturated, kind in product(
        ("add", "sub", "mul", "fma"), ROUNDED, ("", ".ftz"), ("", ".sat"), kinds
    ):
        second = "%h1, " if operation == "fma" else ""
        yield f"{operation}{rounded}{flush}{saturated}.f32.{kind} %f0, %h0, {second}%f1;"


def extremes() -> Iterator[str]:
    flags = [("", ".ftz"), ("", ".NaN"), ("", ".xorsign"), ("", ".abs")]
    for operation, *words in product(("min", "max"), *flags):
        for operands in ("%f0, %f1, %f2, %f3", "%f0, %f1, %f2"):
            yield f"{operation}{''.join(words)}.f32 {operands};"
    for operation, size, nan, kind in product(("min", "max", "add"), ("", ".abs"), ("", ".NaN"), ("f32", "u32", "b32")):
        yield f"redux.sync.{operation}{size}{nan}.{kind} {REGISTER[kind]}0, {REGISTER[kind]}1, -1;"


def narrow_conversions() -> Iterator[str]:
    for rounded, saturated, relu, narrow in product(
        ("", ".rn", ".rz", ".rp", ".rna"), ("", ".satfinite"), ("", ".relu"), NARROW
    ):
        register = "%b8_0" if narrow == "e2m1x2" else "%h0"
        for wide in ("f32", "f16x2", "bf16x2"):
            source = "%f0, %f1" if wide == "f32" else "%r1"
            yield f"cvt{rounded}{saturated}{relu}.{narrow}.{wide} {register}, {source};"
            yield f"cvt{rounded}{saturated}{relu}.{wide}.{narrow} %r0, {register};"
        yield f"cvt{rounded}{saturated}{relu}.tf32.f32 %r0, %f0;"


def stochastic_rounding() -> Iterator[str]:
    kinds = ("f16x2", "bf16x2", "e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1x4", "ue8m0x4")
    for words, kind in product(("", ".relu", ".satfinite", ".relu.satfinite", ".satfinite.relu"), kinds):
        to = "%h0" if kind == "e2m1x4" else "%r0"
        source = "%f0, %f1" if kind.endswith("16x2") else "{%f0, %f1, %f2, %f3}"
        yield f"cvt.rs{words}.{kind}.f32 {to}, {source}, %r1;"


def wide_accesses() -> Iterator[str]:
    kept = ("", ".L2::evict_last", ".L2::evict_first", ".L2::evict_normal", ".L1::evict_last.L2::evict_first")
    kinds = ("v8.b32", "v4.b64", "v8.f32", "v4.f64", "v4.u64", "v8.s32", "v2.b64", "v4.b32")
    for kind, hint in product(kinds, kept):
        values = several(kind[3:], int(kind[1]))
        for order, space in product(("", ".weak", ".relaxed.gpu", ".volatile"), (".global", ".shared", "", ".local")):
            address = "[%rd8]"
            yield f"ld{order}{space}{hint}.{kind} {values}, {address};"
            yield f"st{order}{space}{hint}.{kind} {address}, {values};"
        yield f"ld.global.nc{hint}.{kind} {values}, [%rd8];"


def bytes_and_fills() -> Iterator[str]:
    for space, hint, mask in product((".shared::cta", ".shared::cluster", ""), (0, 1), (0, 1)):
        words = ".L2::cache_hint" * hint + ".cp_mask" * mask
        tail = ", %rd2" * hint + ", %h0" * mask
        yield f"cp.async.bulk.global{space}.bulk_group{words} [%rd0], [%r0], %r1{tail};"
    for value in ("0", "1", "8", "%rd1", "%r1"):
        yield f"st.bulk.weak.shared::cta [%r0], %rd1, {value};"


def tensor_map_fields() -> Iterator[str]:
    fields = ("swizzle_atomicity", "elemtype", "swizzle_mode", "interleave_layout", "fill_mode")
    for field, value, space in product(fields, (*range(-1, 18), "%r1"), ("global", "shared::cta")):
        yield f"tensormap.replace.tile.{field}.{space}.b1024.b32 [{'%rd0' if space == 'global' else '%r0'}], {value};"


def matrices_of_bytes() -> Iterator[str]:
    shapes = ("m8n8", "m16n16", "m8n16", "m16n8")
    kinds = ("b16", "b8", "b8x16.b6x16_p32", "b8x16.b4x16_p64")
    for shape, number, turned, kind in product(shapes, (1, 2, 4), ("", ".trans"), kinds):
        for count in (number, 2 * number):
            values = "{" + ", ".join(f"%r{at}" for at in range(count)) + "}"
            yield f"ldmatrix.sync.aligned.{shape}.x{number}{turned}.shared.{kind} {values}, [%r9];"
            if kind in ("b16", "b8"):
                yield f"stmatrix.sync.aligned.{shape}.x{number}{turned}.shared.{kind} [%r9], {values};"


def multimem() -> Iterator[str]:
    kinds = (
        "f16",
        "bf16",
        "f16x2",
        "bf16x2",
        "e4m3",
        "e5m2",
        "e4m3x2",
        "e5m2x2",
        "e4m3x4",
        "e5m2x4",
        "f32",
        "u32",
        "s64",
    )
    vectors = ("", ".v2", ".v4", ".v8")
    for operation, held, vector, kind in product(("add", "min", "and"), ("", ".acc::f32", ".acc::f16"), vectors, kinds):
        values = several(kind, int(vector[2:]) if vector else 1)
        yield f"multimem.ld_reduce.relaxed.gpu.global.{operation}{held}{vector}.{kind} {values}, [%rd5];"
        if not held:
            yield f"multimem.red.relaxed.gpu.global.{operation}{vector}.{kind} [%rd5], {values};"


def operands_of_others() -> Iterator[str]:
    """Registers of other types and constants in place of registers, where ptxas is often lenient."""
    registers, constants = ("%b8_0", "%h0", "%r0", "%f0", "%rd0"), ("3", "-1", "65535", "65536")
    for held, kind in product((".acc::f16", ".acc::f32"), ("f16x2", "bf16x2", "f32", "u32", "f64")):
        yield f"multimem.red.relaxed.gpu.global.add{held}.{kind} [%rd5], {REGISTER.get(kind, '%r')}0;"
    for kind, register in product(("f16x2", "bf16x2", "e4m3x4", "e5m2x4", "f32"), registers):
        yield f"multimem.ld_reduce.relaxed.gpu.global.add.{kind} {register}, [%rd5];"
        yield f"multimem.st.relaxed.gpu.global.{kind} [%rd5], {register};"
    for register in registers:
        yield f"cvt.rn.bf16x2.ue8m0x2 {register}, %h1;"
        yield f"cvt.rz.satfinite.ue8m0x2.bf16x2 %h0, {register};"
        yield f"cvt.rn.satfinite.e2m1x2.f16x2 %b8_0, {register};"
    for shape, turned, formats in product(
        ("m8n8", "m16n8"), ("", ".trans"), ("b8x16.b4x16_p64", "b8.b4x16_p64", "b8.b6x16_p32", "b16.b4x16_p64")
    ):
        yield f"stmatrix.sync.aligned.{shape}.x1{turned}.shared.{formats} [%r9], {{%r0}};"
    pixels = "cp.async.bulk.tensor.3d.shared::cta.global.{}.mbarrier::complete_tx::bytes [%r0], [%rd0, {}], [%r6], {};"
    for mask in (*registers, *constants, "1.0"):
        yield f"cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r0], %r1, {mask};"
        yield pixels.format("im2col", "{%r1, %r2, %r3}", f"{{{mask}}}")
        yield pixels.format("im2col::w", "{%r1, %r2, %r3}", f"{{%h1, {mask}}}")
        yield pixels.format("im2col::w", f"{{{mask}, %r2, %r3}}", "{%h1, %h2}")
    multiply = "tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd0, %rd1, %r2,"
    for value in (*registers, *constants, "0", "1"):
        yield f"{multiply} {{{value}, %r4, %r5, %r6}}, %p0;"
        yield f"{multiply} {{{value}, {value}, {value}, {value}}}, %p0;"
        yield f"{multiply} {value};"
        yield f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, {value};"
        yield f"clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p0, {value};"
        yield f"clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r0, {value};"
        yield f"add.f32.bf16 %f0, {value}, %f1;"
        yield f"fma.rn.f32.f16 %f0, {value}, %h1, %f1;"
    for register in registers:
        for space, barrier in (("", "%rd1"), (".shared::cta", "%r1")):
            words = f"clusterlaunchcontrol.try_cancel.async{space}.mbarrier::complete_tx::bytes.b128"
            yield f"{words} [{register}], [{barrier}];"
        yield f"tcgen05.ld.red.sync.aligned.32x32b.x2.max.u32 {{%r1, %r2}}, {register}, [%r0];"
        yield f"tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32 {{%r1, %r2}}, {register}, [%r0];"


def orders_of_words() -> Iterator[str]:
    """The words of a few legal texts in other orders, and each of them left out."""
    whole = (
        ("tcgen05", ("alloc", "cta_group::1", "sync", "aligned", "shared::cta", "b32"), " [%r0], 64;"),
        ("tcgen05", ("ld", "sync", "aligned", "32x32b", "x1", "pack::16b", "b32"), " {%r1}, [%r0];"),
        ("tcgen05", ("st", "sync", "aligned", "16x64b", "x1", "b32"), " [%r0], {%r1};"),
        ("tcgen05", ("ld", "red", "sync", "aligned", "32x32b", "x2", "min", "u32"), " {%r1, %r2}, %r3, [%r0];"),
        ("tcgen05", ("cp", "cta_group::1", "64x128b", "warpx2::02_13", "b8x16", "b6x16_p32"), " [%r0], %rd0;"),
        ("tcgen05", ("commit", "cta_group::1", "mbarrier::arrive::one", "shared::cluster", "multicast::cluster", "b64"),
         " [%r0], %h0;"),
        ("tcgen05", ("mma", "cta_group::1", "kind::mxf4", "block_scale", "block32", "collector::a::fill"),
         " [%r0], %rd0, %rd1, %r2, [%r5], [%r6], %p0;"),
        ("clusterlaunchcontrol", ("try_cancel", "async", "shared::cta", "mbarrier::complete_tx::bytes",
                                  "multicast::cluster::all", "b128"), " [%r0], [%r1];"),
    )  # fmt: skip
    for name, words, operands in whole:
        for first, second in itertools.combinations(range(1, len(words)), 2):
            swapped = list(words)
            swapped[first], swapped[second] = swapped[second], swapped[first]
            yield ".".join((name, *swapped)) + operands
        for left in range(1, len(words)):
            yield ".".join((name, *words[:left], *words[left + 1 :])) + operands


FAMILIES = (
    pairs_of_f32, halves_into_f32, extremes, narrow_conversions, stochastic_rounding, wide_accesses, bytes_and_fills,
    tensor_map_fields, matrices_of_bytes, multimem, orders_of_words, operands_of_others,
)  # fmt: skip
