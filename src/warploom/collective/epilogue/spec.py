"""The description of a product, and of the operations on its elements before they are stored."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ArgumentError, ArgumentTypeError
from ...isa.dtypes import DType, bf16, e4m3, e5m2, f16, f32, s8, s32, tf32

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
SCALES = ("tensor", "row")
BIASES = ("column", "row")
BIAS_TYPES = (f32, bf16, f16)
EIGHT_BIT_FLOATS = (e4m3, e5m2)
MULTIPLIED = (bf16, f16, tf32, *EIGHT_BIT_FLOATS, s8)
"""Element types of the matrix units' operands."""
FLOAT_RESULTS = (bf16, f16, f32, *EIGHT_BIT_FLOATS)

TILE_K_BYTES = 128
"""Bytes of a row of an operand tile: the span of the widest swizzle."""


@dataclass(frozen=True)
class Product:
    """D (M, N) = A (M, K) times B (K, N).

    Attributes:
        a, b: element types. Equal, or two of the eight-bit floats. bf16, f16, tf32, e4m3, e5m2, s8.
        out: type of D: bf16, f16, f32, e4m3, e5m2; s32 for s8.
        a_major, b_major: "K" if k is contiguous in memory (A stored M x K, B stored N x K), "MN" if the other dimension
            is (A stored K x M, B stored K x N). "MN" for 16-bit types only (PTX ISA 9.7.15.5.1.2).
    """

    a: DType = bf16
    b: DType = bf16
    out: DType = bf16
    a_major: str = "K"
    b_major: str = "K"

    def check(self) -> None:
        """Raise ArgumentTypeError for an unsupported combination of types."""
        for name, dtype in (("a", self.a), ("b", self.b)):
            if dtype not in MULTIPLIED:
                raise ArgumentTypeError(
                    f"`{name}` has a type that the kernels do not multiply", expected=", ".join(map(str, MULTIPLIED)),
                    got=dtype,
                )  # fmt: skip
        check_pair(self.a, self.b)
        wanted = (s32,) if self.a is s8 else FLOAT_RESULTS
        if self.out not in wanted:
            raise ArgumentTypeError(
                f"{self.a} x {self.b} does not give {self.out}", expected=", ".join(map(str, wanted)), got=self.out,
                hint="see out_dtype=",
            )  # fmt: skip

    @property
    def accumulator(self) -> DType:
        """s32 for integers, f32 for floats."""
        return f32 if self.a.is_float else s32

    @property
    def tile_k(self) -> int:
        """Elements of k per stage: 128 bytes' worth."""
        return TILE_K_BYTES // self.a.bytes


def check_pair(a: DType, b: DType) -> None:
    """Raise ArgumentTypeError unless the types of `a` and `b` are equal or two eight-bit floats."""
    if a is not b and not (a in EIGHT_BIT_FLOATS and b in EIGHT_BIT_FLOATS):
        raise ArgumentTypeError(
            f"`a` is {a} and `b` is {b}, but both must have one type", expected="one type, or e4m3 with e5m2",
            got=f"{a} and {b}", hint=f"convert one of them, for example both to {a if a.bits >= b.bits else b}",
        )  # fmt: skip


@dataclass(frozen=True)
class Fusion:
    """The operations on the accumulators, in this order, each in f32.

        x = alpha * scale_a * scale_b * acc      scales: one number each ("tensor"), or scale_a[row] * scale_b[column]
        x = x + bias                             per column (N,) or per row (M,)
        x = activation(x)
        x = x * gate                             (M, N), of D's type
        x = x + beta * C                         (M, N), of D's type (a residual is beta = 1); not read if beta is 0
        D = x * scale_out                        one number, for eight-bit outputs

    The factor of the row is applied first. A factor and the addition that follows it are one fma.

    Attributes:
        alpha: there is an `alpha` argument.
        scales: None, "tensor" or "row".
        bias: None, "column" or "row".
        bias_dtype: f32, bf16 or f16; by default D's type, or f32 if that has eight bits.
        activation: None, "relu", "gelu" (by erf), "gelu_tanh", "silu".
        gate: there is a gate.
        addend: there are `C` and `beta`.
        scale_out: there is a scale of the output.
        amax: the largest |x| before `scale_out` is stored to a buffer of one f32, by atomic maximum; NaN is the
        largest.
    """

    alpha: bool = False
    scales: str | None = None
    bias: str | None = None
    bias_dtype: DType | None = None
    activation: str | None = None
    gate: bool = False
    addend: bool = False
    scale_out: bool = False
    amax: bool = False

    @property
    def empty(self) -> bool:
        """True if the accumulators are stored unchanged."""
        return self == Fusion()

    def bias_type(self, out: DType) -> DType:
        """Type of the bias's elements, for an output of that type."""
        return self.bias_dtype or (out if out.bits > 8 else f32)

    def check(self, out: DType) -> None:
        """Raise ArgumentError if no kernel supports this epilogue with an output of that type."""
        for what, value, known in (
            ("scales", self.scales, SCALES), ("bias", self.bias, BIASES), ("activation", self.activation, ACTIVATIONS),
        ):  # fmt: skip
            if value not in (None, *known):
                raise ArgumentError(f"{what} of the epilogue is unknown", expected=", ".join(known), got=repr(value))
        if self.bias_dtype not in (None, *BIAS_TYPES):
            raise ArgumentError("the bias has another type", expected="f32, bf16 or f16", got=self.bias_dtype)
        if self.scale_out and out not in EIGHT_BIT_FLOATS:
            raise ArgumentError("an output that is scaled has eight bits", expected="e4m3 or e5m2", got=out)
        if not self.empty and not out.is_float:
            raise ArgumentError("nothing is fused into the sums of integers", expected="a float output", got=out)
