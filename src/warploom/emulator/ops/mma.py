"""mma.sync: a warp's multiply-accumulate, registers in, registers out. PTX ISA 9.7.14.5.14.

Each row of the table is one `numerics.Product` and three fragments; the arithmetic is `numerics`.
"""

from __future__ import annotations

from ...errors import UnsupportedInstructionError
from ...isa import dtypes
from ...isa.dtypes import DType
from ...isa.fragments import Fragment, mma_a, mma_b, mma_c, volta_a, volta_b, volta_c
from ...isa.instructions.mma import shape_of
from ..machine.frame import Frame
from ..numerics.tensor_core import NO_NUMERICS, Product, multiply_accumulate
from ..numerics.tensor_registers import gather, scatter
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()

BITS = {"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "bf16": 16, "f16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8,
        "s4": 4, "u4": 4, "b1": 1}  # fmt: skip
"""Bits of an element of each type a tensor core takes."""


def product_step(
    d: Decode,
    kind: Product,
    a: Fragment,
    b: Fragment,
    c: Fragment,
    out: Fragment,
    flops: int,
    register: DType = dtypes.b32,
) -> Step:
    """The step of one mma: gather A, B and C, multiply, scatter D."""
    a_registers, b_registers = d.registers("a", register), d.registers("b", register)
    c_registers, d_registers = d.registers("c", register), d.registers("d", register)

    def step(frame: Frame) -> None:
        frame.machine.counters.count_products("mma", frame.warps, flops)
        if frame.machine.numerics == NO_NUMERICS:
            return
        left, right = gather(a_registers.read(frame), a), gather(b_registers.read(frame), b)
        third = gather(c_registers.read(frame), c)
        if a.shape == (32, 4):  # four products of the Volta shape, stacked
            left, right = left.reshape(-1, 8, 4), right.reshape(-1, 8, 4)
            third = third.reshape(-1, 8, 8)
        result = multiply_accumulate(left, right, third, kind, frame.machine.numerics)
        d_registers.write(frame, scatter(result.reshape(frame.warps, *out.shape), out))

    return step


@HANDLERS.add(
    "mma.f16_f32", "mma.f16_f16", "mma.bf16", "mma.tf32", "mma.fp8_f32", "mma.fp8_f16", "mma.f64", "mma.int8",
    "mma.int4", "mma.b1",
)  # fmt: skip
def mma(d: Decode) -> Step:
    if d.modifier("rnd", "rn") != "rn":
        d.error(UnsupportedInstructionError, "the emulator supports mma with f64 in the rounding mode .rn only")
    m, n, k = shape_of(d.modifiers)
    key = d.match.form.key.removeprefix("mma.")
    fixed = {"f16_f32": "f16", "f16_f16": "f16"}.get(key, key)
    a_type, b_type = d.modifier("atype", fixed), d.modifier("btype", fixed)
    half = "f16" if key.endswith("_f16") else "f32"
    accumulator = {"f64": "f64", "int8": "s32", "int4": "s32", "b1": "s32"}.get(key, half)
    kind = Product(a_type, b_type, accumulator, "mma", bool(d.modifier("satfinite")), d.modifier("bitop", "multiply"))
    bits = BITS[a_type]
    c = mma_c(m, BITS[accumulator])
    register = dtypes.b64 if bits == 64 else dtypes.b32
    return product_step(d, kind, mma_a(m, k, bits), mma_b(k, bits), c, c, 2 * m * n * k, register)


@HANDLERS.add("mma.volta_f32", "mma.volta_f32_f16", "mma.volta_f16")
def volta(d: Decode) -> Step:
    key = d.match.form.key
    accumulator = "f32" if "f32" in key else "f16"
    c_type = "f16" if key.endswith("f16") else "f32"
    kind = Product("f16", "f16", accumulator, "volta", c=c_type)
    a, b = volta_a(d.modifier("alayout")), volta_b(d.modifier("blayout"))
    return product_step(d, kind, a, b, volta_c(BITS[c_type]), volta_c(BITS[accumulator]), 4 * 2 * 8 * 8 * 4)
