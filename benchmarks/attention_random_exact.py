"""Attention in float64, with bounds on what rounding explains: what random calls are compared with.

The bounds are elementwise, and follow from where the kernels round: scores are sums in f32 (in e4m3: of 13 bits), P and
the results have the type of the inputs, and O is divided by a sum of rounded P. `Exact.typical` is what an attention
that rounds only P and O gets wrong on average, as cuDNN's does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Tensor = torch.Tensor
UNITS = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float8_e4m3fn: 2.0**-4}
"""Half a unit in the last place of 1."""
SUMS = {torch.bfloat16: 2.0**-19, torch.float16: 2.0**-19, torch.float8_e4m3fn: 2.0**-9}
"""Of a sum of products, relative to the sum of their absolute values."""
FLOORS = {torch.bfloat16: 2.0**-125, torch.float16: 2.0**-24, torch.float8_e4m3fn: 2.0**-13}
"""What P is off where its type has no smaller numbers."""
SMALLEST = 2.0**-66
"""Products of a weight and a value below it may count as zero: docs/attention.md."""
TANH = 2.0**-10
"""Error of tanh.approx, and of its derivative."""
LOGARITHM = 1e-5
NORM = 1.6, 0.25
"""Most of the norm of an error: times what is typical, and in units of the last place of the result."""


@dataclass
class Rules:
    """What beside q, k and v determines the scores of one batch of sequences of the same lengths.

    Attributes:
        scale: factor of the scores.
        hidden: (..., S, T), true where a query does not see a key.
        cap: the softcap.
        sinks: (H,), float64.
        score_mod: (scores, batch, head, query, key) -> scores, with tensors of indices.
        approximate: the largest error of what `score_mod` computes by an approximate instruction.
    """

    scale: float
    hidden: Tensor
    cap: float | None = None
    sinks: Tensor | None = None
    score_mod: Callable[..., Tensor] | None = None
    approximate: float = 0.0


def indices(shape: torch.Size, device: torch.device) -> tuple[Tensor, ...]:
    """The indices of batch, head, query and key, each of which broadcasts to (B, H, S, T)."""
    return tuple(
        torch.arange(size, device=device).view(*(-1 if axis == at else 1 for axis in range(4)))
        for at, size in enumerate(shape)
    )


def repeated(x: Tensor, heads: int) -> Tensor:
    """Keys or values (B, G, T, D) for each of the query heads."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


@dataclass
class Exact:
    """The result of q, k and v (float64, (B, H or G, rows, columns)), and what is needed to bound errors of it.

    Attributes:
        p: the weights; `slope`: derivative of a score in q k.
        off: (B, H, S, 1) how far a row's scores may be off.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor
    p: Tensor
    slope: Tensor
    off: Tensor
    scale: float
    dtype: torch.dtype

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, rules: Rules, dtype: torch.dtype) -> Exact:
        """Compute in float64. dtype: that of the inputs."""
        heads = q.shape[1]
        k, v = repeated(k, heads), repeated(v, heads)
        plain = q @ k.mT * rules.scale
        score, slope = plain, torch.ones_like(plain)
        size = (q.abs() @ k.abs().mT * abs(rules.scale)).nan_to_num(0, 0, 0)
        error = SUMS[dtype] * size
        if rules.cap is not None:
            bent = torch.tanh(score / rules.cap)
            score, slope = rules.cap * bent, 1 - bent**2
            error = error + rules.cap * TANH
        if rules.score_mod is not None:
            given = score.detach().requires_grad_()
            score = rules.score_mod(given, *indices(score.shape, q.device))
            (changed,) = torch.autograd.grad(score.masked_fill(rules.hidden, 0).nan_to_num(0, 0, 0).sum(), given)
            slope, score = slope * changed, score.detach()
            error = error * changed.abs().clamp(min=1) + rules.approximate
            error = error + 2.0**-21 * score.abs().nan_to_num(0, 0, 0)
        score = score.masked_fill(rules.hidden, -torch.inf)
        seen = score > -torch.inf
        off = (error + 2.0**-21 * score.abs().nan_to_num(0, 0, 0)).masked_fill(~seen, 0)
        off = off.amax(-1, keepdim=True) if off.shape[-1] else off.new_zeros(*off.shape[:-1], 1)
        top = score.amax(-1, keepdim=True) if score.shape[-1] else score.new_full((*score.shape[:-1], 1), -torch.inf)
        sink = None if rules.sinks is None else rules.sinks.view(1, -1, 1, 1)
        top = top if sink is None else torch.maximum(top, sink)
        base = torch.where(top == -torch.inf, 0, top)
        p = torch.exp(score - base)
        total = p.sum(-1, keepdim=True)
        total = total if sink is None else total + torch.exp(sink - base)
        lse = (total.log() + base)[..., 0]
        p = p / torch.where(total > 0, total, 1)
        visible = v.masked_fill(v.isinf() | v.isnan(), 0)
        return cls(q, k, visible, p @ visible, lse, p, slope, off, rules.scale, dtype)

    @property
    def weighted(self) -> Tensor:
        """Sums of P |V|."""
        return self.p @ self.v.abs()

    def bound(self, result: torch.dtype) -> Tensor:
        """Most that an element of O is off."""
        rounded, largest = UNITS[self.dtype], self.v.abs().amax(-2, keepdim=True) if self.v.shape[-2] else 0.0
        spread = 2.2 * rounded + 2 * torch.expm1(self.off)
        least = max(torch.finfo(result).smallest_normal * 2.0**-6, SMALLEST)
        return 1.05 * UNITS[result] * self.out.abs() + spread * self.weighted + largest * FLOORS[self.dtype] + least

    def typical(self, result: torch.dtype) -> Tensor:
        """Norm of what rounding P, and then O, makes of the result."""
        largest = self.p.amax(-1, keepdim=True) if self.p.shape[-1] else 1.0
        largest = torch.where(torch.as_tensor(largest) > 0, largest, 1.0)
        p = (self.p / largest).to(self.dtype).double() * largest
        model = (p @ self.v).to(result).double()
        wrong = (model - self.out).nan_to_num(0, 0, 0).norm() + (2 * torch.expm1(self.off) * self.weighted).norm()
        return NORM[0] * wrong + NORM[1] * UNITS[result] * self.out.norm()

    def gradients(self, out: Tensor, grad: Tensor, lse_grad: Tensor | None) -> dict[str, tuple[Tensor, Tensor]]:
        """dq, dk and dv, each with its bound. out: the result from which the rows' sums of dO O are computed. dk and dv
        are of the repeated keys and values: `folded` adds those of one key head."""
        unit, sums = UNITS[self.dtype], SUMS[self.dtype]
        relative = torch.expm1(2 * self.off + 2.0**-20 * self.lse.abs().nan_to_num(0, 0, 0)[..., None])
        dp = grad @ self.v.mT
        delta = (grad * self.out).sum(-1, keepdim=True)
        of_delta = (delta - (grad * out).sum(-1, keepdim=True)).abs() + sums * (grad * out).abs().sum(-1, keepdim=True)
        rest = dp - delta + (0 if lse_grad is None else lse_grad[..., None])
        ds = self.p * self.slope * rest
        bent = TANH * 2 * self.p * rest.abs() * (self.slope != 1)
        of_ds = ds.abs() * (relative + 1.1 * unit) + bent
        of_ds = of_ds + self.p * self.slope.abs() * (sums * (grad.abs() @ self.v.abs().mT) + of_delta)
        of_ds = of_ds + FLOORS[self.dtype] * (1 + rest.abs())
        p, of_p = self.p, self.p * (relative + 1.1 * unit) + FLOORS[self.dtype]
        k = self.k.masked_fill(self.k.isinf(), 0)
        found = {
            "dq": (ds @ k * self.scale, of_ds @ k.abs() * self.scale),
            "dk": (ds.mT @ self.q * self.scale, of_ds.mT @ self.q.abs() * self.scale),
            "dv": (p.mT @ grad, of_p.mT @ grad.abs()),
        }
        least = torch.finfo(self.dtype).smallest_normal * 2.0**-6
        return {
            name: (x, 1.1 * (bound + sums * x.abs()) + 1.05 * unit * x.abs() + least)
            for name, (x, bound) in found.items()
        }  # fmt: skip


def folded(x: Tensor, heads: int) -> Tensor:
    """The sums over the query heads that share a key head."""
    return x if x.shape[1] == heads else x.unflatten(1, (heads, -1)).sum(2)


def off_by(found: Tensor, wanted: Tensor, bound: Tensor, most: float = torch.inf) -> str:
    """What is wrong with a result; "" if it is within the bound. most: numbers beyond it may be infinite."""
    if found.shape != wanted.shape:
        return f"shape {tuple(found.shape)} instead of {tuple(wanted.shape)}"
    found = found.double()
    known = wanted.isfinite() & (wanted.abs() < most)
    strange = known & ~found.isfinite()
    if bool(strange.any()):
        where = strange.nonzero()
        return f"{len(where)} of {found.numel()} not finite, first at {where[0].tolist()}: {found[strange][0].item()}"
    infinite = wanted.isinf()
    if not torch.equal(found[infinite], wanted[infinite]):
        return f"{int((found[infinite] != wanted[infinite]).sum())} should be infinite"
    ratio = torch.where(known, (found - wanted).abs() / bound.expand_as(wanted).clamp(min=1e-300), 0.0)
    if not ratio.numel() or float(ratio.max()) <= 1:
        return ""
    at = int(ratio.argmax())
    place = [int(x) for x in torch.unravel_index(torch.tensor(at), ratio.shape)]
    return (
        f"{float(ratio.max()):.3g} of the bound at {place}: {found.flatten()[at].item():.6g} instead of "
        f"{wanted.flatten()[at].item():.6g}; {int((ratio > 1).sum())} of {ratio.numel()}"
    )
