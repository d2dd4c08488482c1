"""The arrays of a problem on a GPU, made with torch, and the exact result for comparison.

Data is random normal by default: zeros and small numbers need less power, so a GPU runs them faster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .work import GemmWork, Work

ROTATED_BYTES = 260_000_000
"""Operand sets are made until their total reaches this size: four times the L2 of an H200."""
MOST_SETS = 64
DATA = ("normal", "zeros", "small-int")
_BLOCK = 128
_ROWS_WITHOUT_F64 = 256
_EXACT_F64 = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))
_CHUNK = 2048
ROUNDINGS = {"gelu": 2, "swiglu": 4}
"""Roundings to D's type if each intermediate is rounded: the product and D; both products, silu's value and D."""
STRETCH = 1.13
"""Largest slope of gelu and silu, rounded up."""


@dataclass
class Operands:
    """One set of arrays of a problem (torch tensors).

    Attributes:
        a: (M, K); b: (N, K), or (experts, N, K) for a grouped product; both as views of the arrays in memory.
        out: (M, N).
        scale_a, scale_b: f32: one number each, (M, 1) and (N, 1), or (M, K / 128), whose columns are contiguous, and
            (N / 128, K / 128).
        bias: (N,), for "gelu"; up: (N, K), the other weights of "swiglu".
        ends: (experts,) s32, the row after the last one of each, for a grouped product.
    """

    a: Any
    b: Any
    out: Any
    scale_a: Any = None
    scale_b: Any = None
    bias: Any = None
    up: Any = None
    ends: Any = None

    def clear(self) -> None:
        """Set everything that will be computed to NaN."""
        self.out.fill_(float("nan"))


def stored(array: Any, major: str) -> Any:
    """An operand as it is in memory, its contiguous dimension last: (M, K) if `major` is "K", (K, M) if it is "MN".
    The strides do not tell them apart if K is 1."""
    return array if major == "K" else array.T


def sets_of(problem: Work) -> int:
    """Number of operand sets to rotate through, so that no call finds its own in the L2 cache."""
    return max(1, min(MOST_SETS, -(-ROTATED_BYTES // max(problem.bytes, 1))))


def make(problem: GemmWork, data: str = "normal", sets: int = 1, device: str = "cuda", seed: int = 0) -> list[Operands]:
    """Make `sets` sets of operands. data: "normal", "zeros" or "small-int" (-2 to 2, whose sums are exact)."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    types = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn,
             "e5m2": torch.float8_e5m2}  # fmt: skip

    def values(*shape: int) -> Any:
        if data == "zeros":
            return torch.zeros(shape, device=device)
        if data == "small-int":
            return torch.randint(-2, 3, shape, device=device, generator=generator).float()
        return torch.randn(shape, device=device, generator=generator)

    def one() -> Operands:
        b_shape = (problem.n, problem.k)
        if problem.rows:
            b = torch.empty(len(problem.rows), *b_shape, dtype=types[problem.dtype], device=device)
            scale_b = torch.empty(len(problem.rows), problem.n, 1, device=device) if problem.scales else None
            for expert in range(len(problem.rows)):
                plain, scale = quantised(values(*b_shape), problem.scales, types[problem.dtype], "b")
                b[expert] = plain
                if scale_b is not None:
                    scale_b[expert] = scale
        else:
            b, scale_b = quantised(values(*b_shape), problem.scales, types[problem.dtype], "b")
        a, scale_a = quantised(values(problem.m, problem.k), problem.scales, types[problem.dtype], "a")
        if problem.scales == "block128":
            scale_a = scale_a.T.contiguous().T  # contiguous along m, the layout that all contenders accept
        if problem.layout[0] == "n":
            a = a.T.contiguous().T
        if problem.layout[1] == "t":
            b = b.T.contiguous().T
        made = Operands(a, b, torch.empty(problem.m, problem.n, dtype=types[problem.out], device=device),
                        scale_a, scale_b)  # fmt: skip
        if problem.kind == "gelu":
            made.bias = values(problem.n).to(types[problem.out])
        elif problem.kind == "swiglu":
            made.up = values(*b_shape).to(types[problem.dtype])
        elif problem.rows:
            made.ends = torch.tensor(problem.rows, device=device).cumsum(0).to(torch.int32)
        return made

    return [one() for _ in range(sets)]


def quantised(values: Any, scales: str, dtype: Any, side: str) -> tuple[Any, Any]:
    """Values in a type, and the scales to multiply them by (None without): the largest maps to the type's largest."""
    import torch

    if not scales:
        return values.to(dtype), None
    most = torch.finfo(dtype).max
    rows, columns = values.shape
    if scales == "tensor":
        blocks = values.reshape(1, rows, 1, columns)
    elif scales == "row":
        blocks = values.reshape(rows, 1, 1, columns)
    else:
        height = 1 if side == "a" else _BLOCK
        partial = (0, -columns % _BLOCK, 0, -rows % height)  # the last blocks may be partial
        padded = torch.nn.functional.pad(values, partial)
        blocks = padded.reshape(padded.shape[0] // height, height, padded.shape[1] // _BLOCK, _BLOCK)
    factor = (blocks.abs().amax((1, 3), keepdim=True) / most).clamp(min=1e-12)
    scaled = blocks / factor
    plain = scaled.reshape(scaled.shape[0] * scaled.shape[1], -1)[:rows, :columns].to(dtype)
    factor = factor.reshape(factor.shape[0], factor.shape[2])
    return plain, factor.reshape(()) if scales == "tensor" else factor.contiguous()


def wide(values: Any, scale: Any, scales: str, side: str) -> Any:
    """The values of a quantised array, in f64."""
    result = values.double()
    if scales == "block128":
        factor = scale.double().repeat_interleave(_BLOCK, 1)
        factor = factor if side == "a" else factor.repeat_interleave(_BLOCK, 0)
        result = result * factor[: values.shape[0], : values.shape[1]]
    elif scales:
        result = result * scale.double()
    return result


@dataclass
class Reference:
    """The exact result, accumulated in f64, and the allowed difference from it.

    Attributes:
        rows: the rows of D that are compared: all if the GPU has fast f64, otherwise some, evenly spread.
        exact: those rows, f64.
        slack: largest difference that the order and width of accumulation, and roundings of intermediates between the
            products and D, explain: one number, or one for each element of `exact`.
        limit: largest ‖D − exact‖ / ‖exact‖.
        facts: further entries of an evidence row about the result that was compared last.
    """

    problem: GemmWork
    rows: Any
    exact: Any
    slack: Any
    limit: float
    facts: dict[str, float] = field(default_factory=dict)

    def errors(self, out: Any) -> tuple[float, bool]:
        """(‖D − exact‖ / ‖exact‖, whether that and every element are right)."""
        squared = norm = 0.0
        right = True
        for start in range(0, len(self.rows), _CHUNK):
            exact = self.exact[start : start + _CHUNK]
            slack = self.slack if isinstance(self.slack, float) else self.slack[start : start + _CHUNK]
            found = out[self.rows[start : start + _CHUNK]].double()
            difference = (found - exact).abs()
            right = right and bool((difference <= exact.abs() * self.rounding + slack).all())
            squared += float(difference.square().sum())
            norm += float(exact.square().sum())
        if squared != squared:
            return float("nan"), False
        error = (squared / norm) ** 0.5 if norm else squared**0.5
        return error, right and error <= self.limit

    @property
    def rounding(self) -> float:
        """One unit in the last place of D, relative."""
        return {"bf16": 2**-7, "f16": 2**-10, "f32": 2**-22}[self.problem.out]


def reference(problem: GemmWork, operands: Operands) -> Reference:
    """The exact result of a set of operands.

    An element may differ from it by one unit in the last place of D, and by 2 (K / k) 2^-23 |A||B|, where k is the
    depth
    of one tensor core instruction: the width of its accumulator. |A||B| is estimated as K times the means of both. The
    fast accumulation of fp8 has 2^-13 instead of 2^-23 (docs/emulator.md); there the intermediate sums, which are what
    is truncated, are estimated as eight times the result's root mean square, because the other bound would accept
    anything.
    All elements together are closer: a quarter of a unit in the last place, and the accumulator's part once.

    Between a product and D, other contenders round to D's type at each step; the bounds allow for it. For an element:
    half a unit of each intermediate, times the factor of the following steps (silu and gelu stretch by less than 1.13).
    For all together: roundings are independent, so `ROUNDINGS` of them weigh as the root of their number.
    """
    import torch

    device = operands.a.device
    count = problem.m
    if device.type == "cuda" and torch.cuda.get_device_capability(device) not in _EXACT_F64:
        count = min(count, _ROWS_WITHOUT_F64)
    rows = torch.linspace(0, problem.m - 1, count, device=device).round().long()
    a = wide(operands.a[rows], operands.scale_a[rows] if problem.scales in ("row", "block128") else operands.scale_a,
             problem.scales, "a")  # fmt: skip
    exact = torch.empty(len(rows), problem.n, dtype=torch.float64, device=device)
    stretch: Any = None
    between: Any = None
    half = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-23}[problem.out]
    first = 0
    for expert, height in enumerate(problem.rows or (problem.m,)):
        last = first + height
        mine = (rows >= first) & (rows < last)
        weights, scale = operands.b, operands.scale_b
        if problem.rows:
            weights, scale = weights[expert], None if scale is None else scale[expert]
        product = a[mine] @ wide(weights, scale, problem.scales, "b").T
        if problem.kind == "gelu":
            product += operands.bias.double()
            stretch, between = STRETCH, half * STRETCH * product.abs()
            product = torch.nn.functional.gelu(product)
        elif problem.kind == "swiglu":
            up, gate = a[mine] @ operands.up.double().T, torch.nn.functional.silu(product)
            stretch = STRETCH * up.abs() + gate.abs()
            between = half * (STRETCH * (product * up).abs() + 2 * (gate * up).abs())
            product = gate * up
        exact[mine] = product
        first = last
    per_instruction = 32 if problem.scales else 16
    unit = 2.0**-13 if problem.scales else 2.0**-23
    sizes = float(a.abs().mean()) * float(wide_mean(operands, problem))
    steps = problem.k / per_instruction
    slack = 2 * steps * unit * problem.k * sizes
    mean_square = float(exact.square().mean()) ** 0.5 if exact.numel() else 0.0
    if problem.scales:
        slack = min(slack, 2 * steps * unit * 8 * mean_square)
    made = Reference(problem, rows, exact, slack, 0.0)
    made.limit = made.rounding / 4 + steps * unit
    if between is not None:
        made.slack = slack * stretch + between
        made.limit = made.rounding / 4 * ROUNDINGS[problem.kind] ** 0.5 + 2 * steps * unit
    return made


def wide_mean(operands: Operands, problem: GemmWork) -> float:
    """Mean magnitude of B."""
    if problem.rows:
        first = operands.scale_b[0] if operands.scale_b is not None else None
        return float(wide(operands.b[0], first, problem.scales, "b").abs().mean())
    return float(wide(operands.b, operands.scale_b, problem.scales, "b").abs().mean())


__all__ = ["DATA", "Operands", "Reference", "make", "quantised", "reference", "sets_of", "wide"]
