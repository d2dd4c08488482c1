"""wmma: loads and stores of matrices in a warp's registers, and their product. PTX ISA 9.7.14.4.

PTX leaves it unspecified which thread holds which element. The emulator's choice is `isa.fragments.wmma`, and for
elements of four bits and of one the fragments that PTX documents for `mma` with the same shape.
"""

from __future__ import annotations

import numpy as np

from ...isa import dtypes
from ...isa.dtypes import DType
from ...isa.fragments import Fragment, mma_a, mma_b, mma_c, wmma
from ...isa.instructions.mma import shape_of
from ...isa.instructions.wmma import registers
from ..machine.frame import Frame
from ..numerics.tensor_core import Product
from ..numerics.tensor_registers import join, split
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .mma import BITS, product_step

HANDLERS = Handlers()

_RAW = {1: dtypes.b32, 4: dtypes.b32, 8: dtypes.b8, 16: dtypes.b16, 32: dtypes.b32, 64: dtypes.b64}
"""What one access moves, by bits of an element: an element, or a register of elements below eight bits."""
_SUBBYTE = ("m8n8k32", "m8n8k128")
"""The shapes of elements of four bits and of one."""


def _fragment(d: Decode, name: str, kind: str) -> Fragment:
    """The fragment of operand "a", "b" (as n x k) or "c" with elements of that type."""
    m, n, k = shape_of(d.modifiers)
    bits = BITS[kind]
    if d.modifiers["shape"] in _SUBBYTE:
        return {"a": mma_a(m, k, bits), "b": mma_b(k, bits), "c": mma_c(m, bits)}[name]
    shape = {"a": (m, k), "b": (n, k), "c": (m, n)}[name]
    return wmma(shape, bits, registers(name, d.modifiers, bits, kind == "bf16"))


def _register(bits: int) -> DType:
    return dtypes.b64 if bits == 64 else dtypes.b32


class _Places:
    """Where a fragment's elements are in memory, from the address, layout and stride of a load or store.

    Those below eight bits are adjacent in memory if they share a register: layouts are along k (PTX ISA 9.7.14.4.3).
    """

    def __init__(self, d: Decode, name: str, fragment: Fragment) -> None:
        self.address = d.address("p")
        self.bits = fragment.bits
        self.together = fragment.per_register if fragment.bits < 8 else 1
        self.stride = d.source("stride", dtypes.u32) if d.has("stride") else -1
        # B is treated as transposed (n x k), so its rows are the columns in memory.
        by_rows = (d.modifier("layout") == "row") != (name == "b")
        self.outer, self.inner = (fragment.rows, fragment.columns) if by_rows else (fragment.columns, fragment.rows)
        self.least = fragment.shape[1] if by_rows else fragment.shape[0]

    def of(self, frame: Frame) -> list[np.ndarray]:
        """Return the addresses, (lanes,), of each access of a thread."""
        base = self.address.compute(frame)
        stride = np.uint64(self.least) if self.stride < 0 else np.asarray(frame.values[self.stride]).astype(np.uint64)
        places = []
        for element in range(0, self.outer.shape[1], self.together):
            outer, inner = (np.tile(part[:, element], frame.warps) for part in (self.outer, self.inner))
            bits = (outer.astype(np.uint64) * stride + inner.astype(np.uint64)) * np.uint64(self.bits)
            # Rounded up: a stride that is no multiple of a register's bits gives a misaligned access.
            places.append(base + (bits + np.uint64(7)) // np.uint64(8))
        return places


@HANDLERS.add(
    "wmma.load.f16", "wmma.load.bf16", "wmma.load.tf32", "wmma.load.int8", "wmma.load.int4", "wmma.load.b1",
    "wmma.load.f64", "wmma.load.c.f16", "wmma.load.c.f32", "wmma.load.c.s32", "wmma.load.c.f64",
)  # fmt: skip
def load(d: Decode) -> Step:
    accumulator = d.match.form.key.startswith("wmma.load.c.")
    name = "c" if accumulator else d.modifiers["fragment"] or ""
    fragment = _fragment(d, name, d.match.form.key.split(".")[-1] if accumulator else d.modifiers["type"] or "")
    places, out = _Places(d, name, fragment), d.registers("r", _register(fragment.bits))

    def step(frame: Frame) -> None:
        elements = [frame.load(places.address.space, at, _RAW[fragment.bits])[0] for at in places.of(frame)]
        by_register = np.stack(elements).reshape(fragment.registers, -1, frame.lanes).transpose(0, 2, 1)
        out.write(frame, _joined(np.ascontiguousarray(by_register)))

    return step


def _joined(elements: np.ndarray) -> np.ndarray:
    """Pack elements (…, per register), also 8-bit ones, into registers (…)."""
    return elements.view(np.uint32)[..., 0] if elements.dtype.itemsize == 1 else join(elements)


@HANDLERS.add("wmma.store.f16", "wmma.store.f32", "wmma.store.s32", "wmma.store.f64")
def store(d: Decode) -> Step:
    fragment = _fragment(d, "c", d.match.form.key.split(".")[-1])
    places, source = _Places(d, "c", fragment), d.registers("r", _register(fragment.bits))

    def step(frame: Frame) -> None:
        elements = split(source.read(frame), fragment.bits).reshape(fragment.registers, frame.lanes, -1)
        by_element = elements.transpose(0, 2, 1).reshape(fragment.elements, frame.lanes)
        for at, values in zip(places.of(frame), by_element, strict=True):
            frame.store(places.address.space, at, _RAW[fragment.bits], values[None])

    return step


@HANDLERS.add(
    "wmma.mma.f16_f16", "wmma.mma.f16_f32", "wmma.mma.f32_f16", "wmma.mma.f32_f32", "wmma.mma.bf16", "wmma.mma.tf32",
    "wmma.mma.s8", "wmma.mma.u8", "wmma.mma.s4", "wmma.mma.u4", "wmma.mma.b1", "wmma.mma.f64", "wmma.mma.f64_rn",
)  # fmt: skip
def multiply(d: Decode) -> Step:
    key = d.match.form.key.removeprefix("wmma.mma.").removesuffix("_rn")
    m, n, k = shape_of(d.modifiers)
    if "_" in key:
        factor, (accumulator, addend) = "f16", key.split("_")
    else:
        factor = key
        accumulator = addend = "f64" if key == "f64" else "f32" if key in ("bf16", "tf32") else "s32"
    # An H200 computes wmma's tf32 as two products with k = 4 (tests/golden/conformance.npz), and mma's as one.
    passes = 2 if factor == "tf32" else 1
    kind = Product(
        factor, factor, accumulator, "mma", bool(d.modifier("satfinite")), d.modifier("bitop", "multiply"), c=addend,
        passes=passes,
    )  # fmt: skip
    return product_step(
        d, kind, _fragment(d, "a", factor), _fragment(d, "b", factor), _fragment(d, "c", addend),
        _fragment(d, "c", accumulator), 2 * m * n * k, _register(BITS[factor]),
    )  # fmt: skip
