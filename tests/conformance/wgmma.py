"""Cases of the warpgroup multiply: every type with A in shared memory and in registers, widths, layouts, negation, and
a sparse A, whose metadata may be read from any thread, so all threads hold valid metadata.

CTA n multiplies a tile of class n. The host lays A and B out in shared memory (`isa.shared_layout`) and the kernel
adds the tile's address to the descriptors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tests.emulator.tensor_kernels import TILE_START, shared_image
from warploom.isa import dtypes
from warploom.isa.instructions import wgmma as rows
from warploom.isa.instructions.schema import Form
from warploom.isa.shared_layout import SharedLayout

from .case import Argument, Array, Case, output
from .elements import classes, elements
from .mma import accumulator_bound
from .pieces import Body
from .values import Source

THREADS = 128
CODES, CODES_OF_TF32 = (0x4, 0x8, 0xC, 0x9, 0xD, 0xE), (0x4, 0xE)
"""Which elements of a group are stored (PTX ISA 9.7.15.6.1)."""
_FORMS = {form.key: form for form in rows.FORMS}
_FLOATS = [
    ("f16", "f16", "f32"), ("f16", "f16", "f16"), ("bf16", "bf16", "f32"), ("tf32", "tf32", "f32"),
    *((a, b, d) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
]  # fmt: skip
_WHOLE = [(a, b, "s32") for a in ("s8", "u8") for b in ("s8", "u8")]
_SINGLE = [("b1", "b1", "s32")]


@dataclass(frozen=True)
class Product:
    """One case.

    Attributes:
        types: of A, B and D.
        n, steps: D is 64 x n; so many instructions along k accumulate in place.
        registers: A comes from registers.
        majors, swizzles: of A and B; swizzle "" is the widest that fits.
        k_tile, at: elements of k in shared memory (0: as many as the steps need), and the first one used.
        scale_d: the instruction's predicate. scale: the factors of A and B. suffix: ".satfinite" or "".
        selector: of a sparse A, of which half is stored; None: A is dense.
        tiles: classes; () stands for all of the type.
    """

    types: tuple[str, str, str]
    n: int = 16
    steps: int = 1
    registers: bool = False
    majors: tuple[str, str] = ("K", "K")
    swizzles: tuple[str, str] = ("", "")
    k_tile: int = 0
    at: int = 0
    scale_d: bool = True
    scale: tuple[int, int] = (1, 1)
    suffix: str = ""
    selector: int | None = None
    tiles: tuple[str, ...] = ()

    @property
    def sparse(self) -> bool:
        return self.selector is not None

    @property
    def stored(self) -> tuple[dtypes.DType, dtypes.DType]:
        """Types in memory: single bits lie eight to a byte."""
        a, b = (dtypes.ALL["u8" if kind == "b1" else kind] for kind in self.types[:2])
        return a, b

    @property
    def k(self) -> int:
        """Stored elements of k of one instruction."""
        return 32 // self.stored[0].bytes

    @property
    def shape(self) -> str:
        """Of one instruction; k counts what is stored and what is not."""
        return f"m64n{self.n}k{self.k * (8 if self.types[0] == 'b1' else 2 if self.sparse else 1)}"

    @property
    def registers_of_a(self) -> int:
        """Of a thread, the metadata with them."""
        return 5 if self.sparse else 4

    @property
    def name(self) -> str:
        words = [f"{self.shape} {' '.join(self.types)}"]
        if self.sparse:
            words = [f"sparse {words[0]}", f"selector {self.selector}"]
        words += [f"{self.steps} steps"] * (self.steps > 1) + ["A in registers"] * self.registers
        words += [f"{'x'.join(self.majors)}-major {' '.join(self.swizzles)} from {self.at}"] * bool(self.k_tile)
        words += ["no C"] * (not self.scale_d) + [f"scale {self.scale}"] * (self.scale != (1, 1)) + [self.suffix[1:]]
        return ", ".join(word for word in words if word)

    @property
    def form(self) -> Form:
        a, _, d = self.types
        name = {"e4m3": "fp8", "e5m2": "fp8", "s8": "int8", "u8": "int8"}.get(a, a)
        if name in ("f16", "fp8"):
            name += f"_{d}"
        return _FORMS[f"wgmma.{'sp_' * self.sparse}{name}_{'regs' if self.registers else 'desc'}"]

    @property
    def opcode(self) -> str:
        a, b, d = self.types
        tail = ".and.popc" if a == "b1" else self.suffix
        return f"wgmma.mma_async{'.sp' * self.sparse}.sync.aligned.{self.shape}.{d}.{a}.{b}{tail}"

    @property
    def immediates(self) -> str:
        if self.types[2] == "s32":
            return ""
        words = [str(factor) for factor in self.scale]
        if self.types[0] in ("f16", "bf16"):
            flags = [str(int(major == "MN")) for major in self.majors]
            words += flags[1:] if self.registers else flags
        return ", " + ", ".join(words)


def products() -> Iterator[Product]:
    for types in (*_FLOATS, *_WHOLE, *_SINGLE):
        for registers in (False, True):
            yield Product(types, registers=registers)
    one = ("ordinary",)
    for n in (8, 24, 64, 128, 248, 256):
        yield Product(("bf16", "bf16", "f32"), n, tiles=one)
    for types, n in itertools.product(
        (("f16", "f16", "f16"), ("e4m3", "e5m2", "f16"), ("tf32", "tf32", "f32")), (8, 24, 256)
    ):
        yield Product(types, n, tiles=one)
    for n in (8, 24, 48, 256):
        yield Product(("s8", "u8", "s32"), n, tiles=("random",))
    for types in _WHOLE:
        for registers in (False, True):
            yield Product(types, registers=registers, suffix=".satfinite")
    for a_major, b_major in itertools.product(("K", "MN"), repeat=2):
        for swizzle in ("NONE", "32B", "64B", "128B"):
            yield Product(
                ("f16", "f16", "f16"), 64, majors=(a_major, b_major), swizzles=(swizzle, swizzle), k_tile=64, at=32,
                tiles=one,
            )  # fmt: skip
    for swizzle in ("NONE", "32B", "64B", "128B"):
        for a, d, k_tile, at in (("e4m3", "f32", 128, 64), ("tf32", "f32", 32, 24), ("s8", "s32", 128, 32)):
            yield Product(
                (a, a, d), majors=("K", "K"), swizzles=(swizzle, swizzle), k_tile=k_tile, at=at,
                tiles=one if d == "f32" else ("random",),
            )  # fmt: skip
        yield Product(
            ("bf16", "bf16", "f32"), 64, registers=True, majors=("K", "MN"), swizzles=("", swizzle), k_tile=64, at=16,
            tiles=one,
        )  # fmt: skip
    few = ("ordinary", "special", "zeros")
    for types in (("bf16", "bf16", "f32"), ("f16", "f16", "f16"), ("tf32", "tf32", "f32"), ("e4m3", "e5m2", "f32")):
        for scale in ((1, -1), (-1, 1), (-1, -1)):
            yield Product(types, scale=scale, tiles=few)
        yield Product(types, scale=(-1, 1), registers=True, tiles=few)
        yield Product(types, scale_d=False, tiles=few)
        yield Product(types, steps=4, tiles=("ordinary", "spread", "few bits", "tiny", "zeros"))
    yield Product(("s8", "s8", "s32"), scale_d=False)
    yield Product(("s8", "s8", "s32"), steps=4)
    yield Product(("b1", "b1", "s32"), 24, steps=2)
    for types in (*_FLOATS, *_WHOLE):
        for selector in (0, 1) if types[0] in ("f16", "bf16", "tf32") else (0,):
            for registers in (False, True):
                yield Product(types, registers=registers, selector=selector)


def cases() -> Iterator[Case]:
    for product in products():
        yield _case(product)


def _layouts(product: Product) -> tuple[SharedLayout, SharedLayout]:
    k = product.k_tile or product.k * product.steps
    found = []
    for dtype, rows_, major, swizzle, columns in zip(
        product.stored, (64, product.n), product.majors, product.swizzles, (k, 2 * k if product.sparse else k),
        strict=True,
    ):  # fmt: skip
        found.append(SharedLayout.for_operand(dtype, rows_, columns, major, swizzle or None))
    return found[0], found[1]


def _case(product: Product) -> Case:
    d_kind = product.types[2]
    tiles = product.tiles or classes(product.types[0])
    layouts = _layouts(product)
    k = layouts[0].k
    count = max(product.n // (4 if d_kind == "f16" else 2), 1)
    blank = [np.zeros((layout.rows, layout.k), f"u{layout.dtype.bytes}") for layout in layouts]
    image, starts = shared_image((layouts[0], blank[0]), (layouts[1], blank[1]))
    body = _body(product, layouts, [start - TILE_START for start in starts], image.size, count)

    def arguments() -> tuple[Argument, ...]:
        images, c, a = [], [], []
        for name in tiles:
            source = Source(f"wgmma/{' '.join(product.types)}/{product.n}/{k}/{name}")
            bits = [_matrix(source, kind, layout, name) for kind, layout in zip(product.types, layouts, strict=False)]
            images.append(shared_image((layouts[0], bits[0]), (layouts[1], bits[1]))[0].view(np.uint32))
            c.append(elements(source, d_kind, 64 * product.n, name).view(np.uint32).reshape(count, THREADS))
            registers = bits[0].reshape(-1)[: 64 * product.k].view(np.uint32).reshape(4, THREADS)
            a.append(np.concatenate([registers, _metadata(product, name)]) if product.sparse else registers)
        return (
            Array(np.stack(images)), Array(np.stack(c)), Array(np.stack(a)),
            output((len(tiles), count, THREADS), np.uint32),
        )  # fmt: skip

    return Case(
        f"wgmma/{product.name}", (product.form.key, "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group"),
        body, arguments, ("array",) * 4, threads=THREADS, grid=len(tiles), labels=tiles,
        exact_bound=accumulator_bound(d_kind, product.types[0], k) if product.steps == 1 else None,
    )  # fmt: skip


def _metadata(product: Product, name: str) -> np.ndarray:
    """A register of each thread, (1, 128)."""
    draw = np.random.default_rng(len(name) + product.n)
    codes = draw.choice(CODES_OF_TF32 if product.types[0] == "tf32" else CODES, (8, THREADS)).astype(np.uint32)
    return np.bitwise_or.reduce(codes << (4 * np.arange(8, dtype=np.uint32))[:, None], axis=0)[None]


def _matrix(source: Source, kind: str, layout: SharedLayout, name: str) -> np.ndarray:
    size = layout.rows * layout.k
    return elements(source, kind, size * (8 if kind == "b1" else 1), name).reshape(layout.rows, layout.k)


def _body(
    product: Product, layouts: Sequence[SharedLayout], starts: Sequence[int], size: int, count: int
) -> str:  # fmt: skip
    tile = f".shared .align 1024 .b8 tile[{size}];"
    held = product.registers_of_a
    body = Body(THREADS, f"{tile}\nmov.u32 %r60, tile;\n.reg .b32 %d<{count}>;\n.reg .b32 %k<{held}>;")
    body.do("mov.u32 %r1, %ctaid.x;", f"mad.wide.u32 %rd1, %r1, {size}, %a0;").fill("%rd1", size)
    body.do(f"mul.lo.u32 %r2, %r1, {count * THREADS};", "add.u32 %r2, %r2, %t;", "mad.wide.u32 %rd2, %r2, 4, %a1;")
    body.do("mad.wide.u32 %rd4, %r2, 4, %a3;", f"mad.lo.u32 %r3, %r1, {held * THREADS}, %t;")
    body.do("mad.wide.u32 %rd3, %r3, 4, %a2;")
    body.do(*(f"ld.global.b32 %d{at}, [%rd2+{4 * THREADS * at}];" for at in range(count)))
    if product.registers:
        body.do(*(f"ld.global.b32 %k{at}, [%rd3+{4 * THREADS * at}];" for at in range(4)))
    if product.sparse:
        body.do(f"ld.global.b32 %k4, [%rd3+{4 * THREADS * 4}];")
    body.do("cvt.u64.u32 %rd5, %r60;", "shr.u64 %rd5, %rd5, 4;")
    body.do(f"setp.ne.u32 %p0, {int(product.scale_d)}, 0;", "setp.eq.u32 %p1, 0, 0;")
    bits = []
    for step in range(product.steps):
        for layout, start in zip(layouts, starts, strict=True):
            at = start + layout.k_offset(product.at + step * product.k)
            bits.append(layout.descriptor_bits + (at >> 4))
            body.do(f"add.u64 %rd{9 + len(bits)}, %rd5, {bits[-1]:#x};")
    accumulator = "{" + ", ".join(f"%d{at}" for at in range(count)) + "}"
    body.do("wgmma.fence.sync.aligned;")
    for step in range(product.steps):
        left = "{%k0, %k1, %k2, %k3}" if product.registers else f"%rd{10 + 2 * step}"
        adds = "%p0" if step == 0 else "%p1"
        adds = f"%k4, {product.selector}, {adds}" if product.sparse else adds
        body.do(f"{product.opcode} {accumulator}, {left}, %rd{11 + 2 * step}, {adds}{product.immediates};")
    body.do("wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;")
    body.do(*(f"st.global.b32 [%rd4+{4 * THREADS * at}], %d{at};" for at in range(count)))
    return body.text()
