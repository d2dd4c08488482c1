"""Work to be timed: what is computed, on which types, and the amount of work.

A row of evidence is about one `Work`: a product here, attention in `attention_problem`. `GemmWork.posed` gives the
`operators.Problem` for the library. Everything here is data; nothing needs a GPU or a framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol

from ..collective.epilogue.spec import Fusion
from ..errors import ArgumentError
from ..isa import dtypes
from ..operators.spec.problem import Problem
from ..plural import counted

KINDS = ("gemm", "gelu", "swiglu", "grouped")
SCALES = ("", "tensor", "row", "block128")
LAYOUTS = {"forward": "tn", "input-gradient": "tt", "weight-gradient": "nt"}
"""The directions of a linear layer, and the memory layout of its operands, as `Problem.of` names it: "tn": A (M, K) and
B (N, K), contiguous in k; "tt": B contiguous in n; "nt": A contiguous in m and B in n.
"""


class Work(Protocol):
    """The properties that the benchmark needs of any problem: a product, or attention."""

    @property
    def shape(self) -> str:
        """The problem's name in messages."""

    @property
    def dtype(self) -> str:
        """Type of the operands."""

    @property
    def kind(self) -> str:
        """The kind of computation; contenders declare the kinds they support."""

    @property
    def scales(self) -> str:
        """Scales of eight-bit operands."""

    @property
    def flops(self) -> int:
        """Number of necessary multiplications and additions."""

    @property
    def bytes(self) -> int:
        """Number of bytes that must be read and written."""

    def as_dict(self) -> dict[str, Any]:
        """The problem's entries in an evidence row."""

    def rates(self, seconds: float) -> dict[str, Any]:
        """Further entries of a row, for a run that took that many seconds."""


@dataclass(frozen=True)
class GemmWork:
    """D (M, N) = A (M, K) times B (N, K) transposed, all row-major, with an epilogue.

    Attributes:
        m, n, k: sizes; in a grouped product m is the sum over the experts.
        dtype: of A and B.
        out: of D.
        kind: "gemm"; "gelu": gelu(A Bᵀ + bias); "swiglu": silu(A Gᵀ) * (A Uᵀ), two products; "grouped": each group of
            rows of A has its own B.
        scales: for fp8 operands: "tensor", "row" or "block128"; "" without.
        rows: rows of each expert, for a grouped product.
        layout: one of `LAYOUTS`, the memory layout of A and B; their shapes are the same.
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    out: str = "bf16"
    kind: str = "gemm"
    scales: str = ""
    rows: tuple[int, ...] = ()
    layout: str = "tn"

    @property
    def products(self) -> int:
        """Number of matrix products of this size."""
        return 2 if self.kind == "swiglu" else 1

    @property
    def flops(self) -> int:
        """Multiplications and additions of the products; the epilogue is not counted."""
        return 2 * self.m * self.n * self.k * self.products

    @property
    def bytes(self) -> int:
        """Bytes of A, B and D, each once."""
        operand, weights = dtypes.of(self.dtype).bytes, max(len(self.rows), 1) * self.products
        return (self.m * self.k + weights * self.n * self.k) * operand + self.m * self.n * dtypes.of(self.out).bytes

    @property
    def shape(self) -> str:
        """ "8192x8192x8192", with what else distinguishes it from others of the same size."""
        kind, layout = self.kind if self.kind != "gemm" else "", self.layout if self.layout != "tn" else ""
        extra = [word for word in (kind, self.scales, layout) if word]
        experts = (
            [counted(len(self.rows), "expert") + ("" if len(set(self.rows)) == 1 else ", skewed")] if self.rows else []
        )
        return " ".join([f"{self.m}x{self.n}x{self.k}", *extra, *experts])

    @property
    def posed(self) -> Problem:
        """The problem for `matmul`, `linear` or `grouped_matmul`."""
        fusion = Fusion(scales=self.scales or None)
        if self.kind == "gelu":
            fusion = replace(fusion, bias="column", bias_dtype=dtypes.of(self.out), activation="gelu")
        elif self.kind == "swiglu":  # the second of its two launches
            fusion = replace(fusion, activation="silu", gate=True)
        made = Problem.of(self.m, self.n, self.k, self.dtype, out=self.out, layout=self.layout, fusion=fusion)
        return replace(made, groups=len(self.rows))

    def rates(self, seconds: float) -> dict[str, Any]:
        """None: a row has the FLOP of every problem already."""
        return {}

    def as_dict(self) -> dict[str, Any]:
        """The fields for an evidence row."""
        values = asdict(self)
        if not self.rows:
            del values["rows"]
        for name in ("kind", "scales"):
            if values[name] in ("gemm", ""):
                del values[name]
        return values

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> GemmWork:
        """The problem of an evidence row, whatever else the row has."""
        values: dict[str, Any] = {each.name: row[each.name] for each in fields(cls) if each.name in row}
        return cls(**{**values, "rows": tuple(values.get("rows", ()))})


def parse_shapes(text: str, like: GemmWork) -> tuple[GemmWork, ...]:
    """The problems of "4096x4096x4096,512x8192x8192", otherwise like `like`. Raises ArgumentError for other texts."""
    found = []
    for word in text.split(","):
        sizes = word.strip().lower().split("x")
        if len(sizes) != 3 or not all(size.isdigit() and int(size) > 0 for size in sizes):
            raise ArgumentError("this is not a shape", expected="MxNxK, as in 4096x4096x4096,512x8192x8192", got=word)
        m, n, k = map(int, sizes)
        found.append(replace(like, m=m, n=n, k=k, rows=()))
    return tuple(found)
