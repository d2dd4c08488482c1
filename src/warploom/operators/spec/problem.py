"""A problem without its arrays: sizes, types, layouts, and the fused epilogue.

A `Problem` is frozen and hashable: it is the key of a kernel choice, and everything the model needs to know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ...collective.epilogue.spec import EIGHT_BIT_FLOATS, Fusion, Product, check_pair
from ...errors import ArgumentError, ArgumentTypeError
from ...isa import dtypes
from ...isa.dtypes import DType, bf16, e4m3, e5m2, f16, f32, s8, s32, tf32
from ...plural import counted

OPERANDS = (bf16, f16, f32, e4m3, e5m2, s8)
"""Types of A and B as arrays have them; f32 is multiplied as tf32."""
LAYOUTS = ("tn", "nn", "nt", "tt")
TMA_BYTES = 16
"""Address and strides of an array that TMA reads or writes are multiples of this (PTX ISA 5.5)."""


@dataclass(frozen=True)
class Problem:
    """D (m, n) = A (m, k) times B (k, n), `batch` times, with its fused epilogue.

    Attributes:
        m, n, k: sizes of one product. Of a grouped product, m counts the rows of all groups, valid or not.
        product: types, and which dimension of A and of B is contiguous.
        fusion: the epilogue.
        batch: leading sizes; () for one product.
        accumulate: "default", "fast" (the tensor core's own, fewer bits for fp8) or "precise".
        constant_weights: the promise that no kernel still running writes B.
        scale_a_major, scale_b_major: for block scales: "K" if the blocks of k are contiguous, else "MN".
        groups: groups of rows of A, each with its own B; 0: one B for all rows.
        limits: what tells the groups' rows, if there are groups: "offsets" or "sizes", as in `grouped_matmul`.
    """

    m: int
    n: int
    k: int
    product: Product = Product()
    fusion: Fusion = Fusion()
    batch: tuple[int, ...] = ()
    accumulate: str = "default"
    constant_weights: bool = False
    scale_a_major: str = "MN"
    scale_b_major: str = "K"
    groups: int = 0
    limits: str = "offsets"

    @classmethod
    def of(
        cls, m: int, n: int, k: int, dtype: object = bf16, *, out: object = None, layout: str = "tn",
        b_dtype: object = None, fusion: Fusion = Fusion(), batch: tuple[int, ...] = (),  # noqa: B008 - frozen
    ) -> Problem:  # fmt: skip
        """A problem by its sizes, as the command line names it.

        Args:
            dtype, b_dtype: types of A and B ("bf16", "float8_e4m3fn", a NumPy or torch dtype); B's defaults to A's.
            out: type of D; the default is A's for 16-bit types, bf16 for fp8, f32 for f32, s32 for s8.
            layout: one letter for A and one for B, as in cuBLAS. A is "t" if it is row-major (k contiguous) and "n" if
            it
                is column-major; B is "n" if k is contiguous (stored N x K, like a torch weight) and "t" if it is
                row-major. "tn" is `F.linear`, "tt" is `a @ b` of two row-major matrices.

        Raises ArgumentError for sizes below 1 or an unknown layout, ArgumentTypeError for types.
        """
        for name, size in (("m", m), ("n", n), ("k", k)):
            if not isinstance(size, int) or size < 1:
                raise ArgumentError(f"{name} is not a size", expected="an integer of at least 1", got=repr(size))
        if layout not in LAYOUTS:
            raise ArgumentError("unknown layout", expected=", ".join(LAYOUTS), got=repr(layout))
        a = dtypes.of(dtype)
        b = a if b_dtype is None else dtypes.of(b_dtype)
        product = product_of(a, b, None if out is None else dtypes.of(out))
        product = replace(product, a_major="K" if layout[0] == "t" else "MN", b_major="K" if layout[1] == "n" else "MN")
        return cls(m, n, k, product, fusion, batch)

    @property
    def count(self) -> int:
        """The number of products."""
        return prod(self.batch)

    @property
    def promoted(self) -> bool:
        """True if eight-bit sums go to f32 registers every 128 of k: block scales, or precise accumulation."""
        eight = self.product.a in EIGHT_BIT_FLOATS
        return self.fusion.scales == "block128" or (eight and self.accumulate == "precise")

    @property
    def flops(self) -> int:
        """Number of multiplications and additions of all products."""
        return 2 * self.m * self.n * self.k * self.count

    @property
    def bytes(self) -> int:
        """Bytes of A, every B, D, and a fused gate and C, each once."""
        results = 1 + self.fusion.gate + self.fusion.addend
        return self.count * (
            self.m * self.k * self.product.a.bytes
            + max(1, self.groups) * self.n * self.k * self.product.b.bytes
            + self.m * self.n * self.product.out.bytes * results
        )

    @property
    def layout(self) -> str:
        """ "tn" and so on, as in `of`."""
        return ("t" if self.product.a_major == "K" else "n") + ("n" if self.product.b_major == "K" else "t")

    def describe(self) -> str:
        """ "4096x4096x4096 bf16 x bf16 -> bf16, tn", with the fused operations."""
        batch = "x".join(map(str, self.batch)) + " of " if self.batch else ""
        if self.groups:
            batch = f"{counted(self.groups, 'group')} in "
        words = [
            f"{batch}{self.m}x{self.n}x{self.k} {self.product.a} x {self.product.b} -> {self.product.out}",
            self.layout,
        ]
        if not self.fusion.empty:
            words.append("fused: " + ", ".join(fused_words(self.fusion)))
        return ", ".join(words)


def fused_words(fusion: Fusion) -> list[str]:
    """The fused operations, in order of execution."""
    words = []
    if fusion.scales:
        words.append(f"{fusion.scales} scales")
    if fusion.alpha:
        words.append("alpha")
    if fusion.bias:
        words.append(f"bias of the {fusion.bias}")
    if fusion.activation:
        words.append(fusion.activation)
    if fusion.gate:
        words.append("gate")
    if fusion.addend:
        words.append("beta C")
    if fusion.scale_out:
        words.append("scale of the output")
    if fusion.amax:
        words.append("amax")
    return words


def product_of(a: DType, b: DType, out: DType | None) -> Product:
    """The product of arrays of these types; f32 arrays are multiplied as tf32.

    Raises ArgumentTypeError for types that cannot be combined.
    """
    for name, dtype in (("a", a), ("b", b)):
        if dtype not in OPERANDS and dtype is not tf32:
            raise ArgumentTypeError(
                f"`{name}` has a type that matmul does not multiply",
                expected=", ".join(map(str, OPERANDS)),
                got=dtype,
                hint="convert it first" if dtype.is_float else None,
            )
    check_pair(f32 if a is tf32 else a, f32 if b is tf32 else b)
    read_a, read_b = (tf32 if dtype is f32 else dtype for dtype in (a, b))
    if out is None:
        out = s32 if a is s8 else bf16 if a in EIGHT_BIT_FLOATS else f32 if read_a is tf32 else a
    product = Product(read_a, read_b, f32 if out is tf32 else out)
    product.check()
    return product
