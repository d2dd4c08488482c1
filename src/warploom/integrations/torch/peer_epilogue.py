"""PyTorch: the epilogue of a communicating product before rounding: scales and a bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import ArgumentError, ArgumentTypeError
from ...isa import dtypes
from ...kernels.hopper.description import Fusion

_BIASES = {torch.float32: dtypes.f32, torch.bfloat16: dtypes.bf16, torch.float16: dtypes.f16}


@dataclass(frozen=True, eq=False)
class PeerEpilogue:
    """The epilogue of a product of A and B.

    Attributes:
        scale_a, scale_b: f32, one number each; or (rows, 1) and (1, columns).
        bias: (columns,), f32 or 16-bit.
        out_dtype: type of the result; by default bf16 for eight-bit operands, else the operands' type.
    """

    scale_a: Tensor | None = None
    scale_b: Tensor | None = None
    bias: Tensor | None = None
    out_dtype: torch.dtype | None = None

    def out(self, a: Tensor) -> torch.dtype:
        """Type of the result."""
        return self.out_dtype or (a.dtype if a.element_size() == 2 else torch.bfloat16)

    def tensors(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return scales and bias, None if missing."""
        return self.scale_a, self.scale_b, self.bias

    def name(self) -> tuple[object, ...]:
        """Return what ranks compare: the shapes of scales and bias, not their addresses."""
        given = (self.scale_a, self.scale_b, self.bias)
        return (*(None if each is None else tuple(each.shape) for each in given), str(self.out_dtype))

    def fusion(self, a: Tensor, b: Tensor, rows: int, all_rows: int) -> tuple[Fusion, bool]:
        """Return the kernel's epilogue, and True if scale_a has the scales of all ranks' rows.

        rows: rows of A here; all_rows: rows of the gathered A. Raises ArgumentError, ArgumentTypeError.
        """
        columns, kind, replicated = b.shape[1], None, False
        if (self.scale_a is None) != (self.scale_b is None):
            raise ArgumentError("both operands have scales, or none", expected="scale_a and scale_b", got=self.name())
        if self.scale_a is not None and self.scale_b is not None:
            for name, scale in (("scale_a", self.scale_a), ("scale_b", self.scale_b)):
                if not isinstance(scale, Tensor) or scale.dtype is not torch.float32 or scale.device != a.device:
                    raise ArgumentTypeError(
                        f"`{name}` has another type or place", expected=f"f32 on {a.device}",
                        got=f"{scale.dtype} on {scale.device}" if isinstance(scale, Tensor) else scale,
                    )  # fmt: skip
            of_a, of_b = self.scale_a.numel(), self.scale_b.numel()
            if of_a == of_b == 1 and (rows != 1 or columns != 1):
                kind = "tensor"
            elif of_a in (rows, all_rows) and of_b == columns:
                kind, replicated = "row", of_a != rows
            else:
                raise ArgumentError(
                    "the scales do not fit the operands",
                    expected=f"1 and 1, or {rows} (or {all_rows} of all ranks) and {columns}", got=(of_a, of_b),
                )  # fmt: skip
        bias = self.bias
        if bias is not None and (bias.dtype not in _BIASES or bias.numel() != columns or bias.device != a.device):
            raise ArgumentError(
                "the bias does not fit", expected=f"{columns} numbers of f32, bf16 or f16 on {a.device}",
                got=f"{tuple(bias.shape)} {bias.dtype} on {bias.device}",
            )  # fmt: skip
        of_bias = {"bias": "column", "bias_dtype": _BIASES[bias.dtype]} if bias is not None else {}
        return Fusion(scales=kind, **of_bias), replicated  # type: ignore[arg-type]

    def arguments(self, rows: Sequence[int]) -> list[Tensor]:
        """Return the kernel arguments. `rows`: the shape of scale_a if it has more than one number."""
        found = []
        if self.scale_a is not None and self.scale_b is not None:
            of_a = self.scale_a.detach().contiguous()
            found = [of_a.view(1 if of_a.numel() == 1 else rows), self.scale_b.detach().contiguous().view(-1)]
        return found + ([] if self.bias is None else [self.bias.detach().contiguous().view(-1)])


PLAIN = PeerEpilogue()
