"""The arrays of an attention problem, made with torch, and the exact results for comparison.

Everything is random normal unless the problem says otherwise. The exact results are those of two heads, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .attention_problem import AttentionWork, DecodeProblem, ForwardProblem
from .operands import sets_of

SCALES = ("q_scale", "k_scale", "v_scale")
_LARGEST_E4M3 = 448
_HEADS = 2
_ROWS = 2048
LIMIT = {"bf16": 4e-3, "f16": 5e-4, "e4m3": 0.125}
"""Largest ‖O − exact‖ / ‖exact‖: two roundings of half a unit in the last place, of P and of O (2^-9, 2^-12, 2^-4)."""
LSE_LIMIT = {"bf16": 1e-5, "f16": 1e-5, "e4m3": 2.0**-9}
"""Largest error of the logarithms, relative to the largest one or 1; sums of e4m3's products are truncated at 2^-13."""
_ROW_FACTOR = 8
"""Factor by which a row of O may exceed the error of all of O."""


@dataclass
class AttentionOperands:
    """One set of arrays (torch tensors), in torch's layout.

    Attributes:
        q, k, v: (B, H, S, D), (B, G, T, D), (B, G, T, E); for a paged cache the contents of its pages.
        out, lse: the results, (B, H, S, E) and (B, H, S).
        scales: for e4m3, by name.
        lengths, pages: for a cache: keys of each sequence, and (K in pages, V in pages, table).
    """

    q: Any
    k: Any
    v: Any
    out: Any
    lse: Any
    scales: dict[str, Any] = field(default_factory=dict)
    lengths: Any = None
    pages: tuple[Any, Any, Any] | None = None

    def clear(self) -> None:
        """Set everything that will be computed to NaN."""
        self.out.fill_(float("nan"))
        self.lse.fill_(float("nan"))


def make(problem: AttentionWork, sets: int = 0, device: str = "cuda", seed: int = 0) -> list[AttentionOperands]:
    """Make `sets` sets of operands; 0: more than any L2 cache holds."""
    seeds = range(seed, seed + (sets or sets_of(problem)))
    if isinstance(problem, ForwardProblem):
        return [forward(problem, device, each) for each in seeds]
    return [decode(problem, device, each) for each in seeds]


# -- forward ---------------------------------------------------------------------------------------------------------


def _scaled(q: Any, k: Any, factor: float) -> None:
    q *= factor


def _growing(q: Any, k: Any, factor: float) -> None:
    import torch

    k *= torch.logspace(0, math.log10(factor), k.shape[2], device=k.device)[None, None, :, None].to(k.dtype)


def _sink(q: Any, k: Any, score: float) -> None:
    direction = q.mean((0, 2), keepdim=True)[:, :, :1] + 1
    q += 1
    k[:, :, :1] = (direction * score / (q.shape[-1] ** 0.5)).to(k.dtype)


def _outliers(q: Any, k: Any, size: float) -> None:
    k[:, :, :, :2] *= size


DATA: dict[str, Callable[[Any, Any], None]] = {
    "deviation 16": partial(_scaled, factor=16),
    "deviation 64": partial(_scaled, factor=64),
    "keys growing 100-fold": partial(_growing, factor=100),
    "keys growing 1000-fold": partial(_growing, factor=1000),
    "keys shrinking 1000-fold": partial(_growing, factor=1e-3),
    "sink at key 0": partial(_sink, score=40.0),
    "strong sink at key 0": partial(_sink, score=400.0),
    "outlier channels": partial(_outliers, size=30),
}
"""Modifications of normal q and k."""


def forward(problem: ForwardProblem, device: str, seed: int) -> AttentionOperands:
    """q, k and v, and for e4m3 a scale for each head that maps its largest element to the type's."""
    import torch

    kinds = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
    generator = torch.Generator(device).manual_seed(seed)
    batch, heads, length, width = problem.sizes
    fp8, dtype = problem.dtype == "e4m3", kinds[problem.dtype]

    def normal(count: int, columns: int) -> Any:
        made = torch.randn((batch, count, length, columns), generator=generator, device=device)
        return made if fp8 else made.to(dtype)

    group = heads // problem.group
    made = {"q": normal(heads, width), "k": normal(group, width), "v": normal(group, problem.columns)}
    if problem.data in DATA:
        DATA[problem.data](made["q"], made["k"])
    scales = {}
    for name in made if fp8 else ():
        scale = (made[name].abs().amax((2, 3)) / _LARGEST_E4M3).contiguous()
        made[name], scales[f"{name}_scale"] = (made[name] / scale[:, :, None, None]).to(dtype), scale
    out = torch.empty((batch, heads, length, problem.columns), device=device, dtype=torch.bfloat16 if fp8 else dtype)
    return AttentionOperands(**made, out=out, lse=torch.empty(out.shape[:3], device=device), scales=scales)


def widened(one: AttentionOperands) -> AttentionOperands:
    """The values of e4m3 and its scales, in bf16."""
    import torch

    wide = {
        name: (getattr(one, name).float() * one.scales[f"{name}_scale"][:, :, None, None]).bfloat16() for name in "qkv"
    }
    return AttentionOperands(**wide, out=torch.empty_like(one.out), lse=torch.empty_like(one.lse))


# -- decode ----------------------------------------------------------------------------------------------------------


def decode(problem: DecodeProblem, device: str, seed: int) -> AttentionOperands:
    """A cache and the newest tokens; pages are scattered."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, device=device).to(torch.bfloat16)

    q = normal(problem.batch, problem.heads, problem.queries, problem.dim)
    k, v = (normal(problem.batch, problem.kv_heads, problem.length, problem.dim) for _ in range(2))
    pages = None
    if problem.page:
        count = problem.length // problem.page
        table = torch.randperm(problem.batch * count, generator=generator, device=device).reshape(problem.batch, count)
        pools = []
        for array in (k, v):
            pool = torch.empty(problem.batch * count, problem.kv_heads, problem.page, problem.dim, device=device,
                               dtype=q.dtype)  # fmt: skip
            cut = array.reshape(problem.batch, problem.kv_heads, count, problem.page, problem.dim)
            pool[table] = cut.transpose(1, 2)
            pools.append(pool.to(torch.float8_e4m3fn) if problem.fp8_kv else pool)
        pages = (*pools, table.to(torch.int32))
    if problem.fp8_kv:
        k, v = (array.to(torch.float8_e4m3fn) for array in (k, v))
    lengths = torch.tensor(problem.lengths, dtype=torch.int32, device=device)
    lse = torch.empty(q.shape[:3], device=device)
    return AttentionOperands(q, k, v, torch.empty_like(q), lse, lengths=lengths, pages=pages)


# -- exact results ---------------------------------------------------------------------------------------------------


@dataclass
class AttentionReference:
    """Exact O and logarithms of some heads.

    Attributes:
        rows: (batch, head) of each.
        exact: O and the logarithms of each, f64.
        facts: the errors of the last result that was checked, for an evidence row.
    """

    problem: AttentionWork
    operands: AttentionOperands
    rows: list[tuple[int, int]]
    exact: list[tuple[Any, Any]]
    facts: dict[str, float] = field(default_factory=dict)

    def errors(self, out: Any) -> tuple[float, bool]:
        """(‖O − exact‖ / ‖exact‖, whether that, each row and, if there are any, the logarithms are right)."""
        limit, off, norm, right = LIMIT[self._type], 0.0, 0.0, True
        worst = largest = 0.0
        for (batch, head), (exact, sums) in zip(self.rows, self.exact, strict=True):
            difference = (out[batch, head].double() - exact).norm(dim=-1)
            sizes = exact.norm(dim=-1)
            right = right and bool((difference <= _ROW_FACTOR * limit * sizes).all())
            off, norm = off + float(difference.square().sum()), norm + float(sizes.square().sum())
            worst = max(worst, float((self.operands.lse[batch, head].double() - sums).abs().max()))
            largest = max(largest, float(sums.abs().max()))
        error = (off / norm) ** 0.5
        self.facts = {}
        if not bool(self.operands.lse.isnan().all()):
            allowed = LSE_LIMIT[self._type] * max(1.0, largest)
            finite = not bool(self.operands.lse.isnan().any())
            right = right and finite and worst <= allowed
            self.facts = {"lse_error": worst, "lse_largest": largest}
        return error, right and error <= limit

    @property
    def _type(self) -> str:
        return self.problem.dtype


def reference(problem: AttentionWork, operands: AttentionOperands) -> AttentionReference:
    """The exact results of the first head and of one in the middle; for a cache also those of the last sequence."""
    if isinstance(problem, ForwardProblem):
        heads = problem.sizes[1]
        rows = [(0, head) for head in sorted({0, heads // _HEADS})]
        exact = [_forward(problem, operands, head) for _, head in rows]
    else:
        rows = sorted({(0, 0), (problem.batch - 1, problem.heads - 1)})
        exact = [_decode(problem, operands, batch, head) for batch, head in rows]
    return AttentionReference(problem, operands, rows, exact)


def _forward(problem: ForwardProblem, one: AttentionOperands, head: int) -> tuple[Any, Any]:
    """O and the logarithms of a head of the first batch."""
    import torch

    at = {"q": head, "k": head // problem.group, "v": head // problem.group}
    q, k, v = (getattr(one, name)[0, number].double() for name, number in at.items())
    if one.scales:
        q, k, v = (x * one.scales[f"{n}_scale"][0, at[n]].double() for n, x in zip("qkv", (q, k, v), strict=True))
    columns, outs, sums = torch.arange(problem.length, device=q.device), [], []
    for begin in range(0, problem.length, _ROWS):
        scores = q[begin : begin + _ROWS] @ k.T / math.sqrt(problem.head_dim)
        rows = torch.arange(begin, begin + len(scores), device=q.device)[:, None]
        if problem.causal:
            scores.masked_fill_(columns > rows, -math.inf)
        if problem.window:
            left, right = problem.window
            scores.masked_fill_((columns < rows - left) | (columns > rows + right), -math.inf)
        outs.append(torch.softmax(scores, -1) @ v)
        sums.append(torch.logsumexp(scores, -1))
    return torch.cat(outs), torch.cat(sums)


def _decode(problem: DecodeProblem, one: AttentionOperands, batch: int, head: int) -> tuple[Any, Any]:
    """O and the logarithms of a head of a sequence."""
    import torch

    length = problem.lengths[batch]
    group = head * problem.kv_heads // problem.heads
    k, v = (array[batch, group, :length].double() for array in (one.k, one.v))
    scores = one.q[batch, head].double() @ k.T / math.sqrt(problem.dim)
    ends = length - problem.queries + 1 + torch.arange(problem.queries, device=k.device)[:, None]
    scores.masked_fill_(torch.arange(length, device=k.device) >= ends, -math.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)
