"""The gradients of attention in float64, and launches of their kernels in the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.kernels.attention_cases import reference
from warploom.kernels.hopper import attention_backward, attention_backward_rows, attention_backward_sums
from warploom.kernels.hopper.attention_backward_config import values_config
from warploom.kernels.hopper.attention_backward_reads import workspace
from warploom.operators.attention.backward import BackwardChoice, arrays_of
from warploom.runtime.machine import H200

ERROR = 4e-3
FILLED = 7.0
"""What the gradients contain before the launches."""


def exact(q, k, v, grad, last, first, hides=None):
    """dQ, dK, dV, O and LSE, (B, S, H, D) and (B, H, S), by the formulas in float64. hides: (B, H, S, T)."""
    group, scale = q.shape[2] // k.shape[2], q.shape[3] ** -0.5
    out, lse = reference(q, k, v, scale=scale, last=last, first=first, hidden=hides)
    q, k, v, g = (np.asarray(x, np.float64).transpose(0, 2, 1, 3) for x in (q, k, v, grad))
    wide_k, wide_v = (np.repeat(x, group, 1) for x in (k, v))
    i, j = np.indices((q.shape[2], k.shape[2]))
    hidden = (j > i + last if last is not None else j < 0) | (j < i + first if first is not None else j < 0)
    hidden = hidden if hides is None else hidden | hides
    p = np.where(hidden, 0, np.exp(q @ wide_k.swapaxes(2, 3) * scale - np.where(np.isinf(lse), np.inf, lse)[..., None]))
    ds = p * (g @ wide_v.swapaxes(2, 3) - (g * out.transpose(0, 2, 1, 3)).sum(-1, keepdims=True)) * scale

    def shared(x):
        return x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2).transpose(0, 2, 1, 3)

    dq = (ds @ wide_k).transpose(0, 2, 1, 3)
    return dq, shared(ds.swapaxes(2, 3) @ q), shared(p.swapaxes(2, 3) @ g), out, lse


def launch(
    of: Any, config: Any, given: Any, results: Any, numbers: Any, ends: Any = None, schedule: str = "lazy",
    sms: int = 2, section: int = 2, ptx: str | None = None, seed: int = 0, captured: Sequence[np.ndarray] = (),
    lists: dict[str, np.ndarray] | None = None,
) -> tuple[list[Any], list[np.ndarray]]:  # fmt: skip
    """The reports of all kernels, that of dK second, and dQ, dK, dV and the sums of captured gradients.

    given: Q, K, V and dO. results: O, dO and the logarithms. ends: those of packed sequences, in Q and in K. ptx: the
    text of the second kernel, instead of its own. lists: of a mask, by name.
    """
    q, k, v, grad = given
    batch, queries, heads, _ = q.shape
    choice, sequences = BackwardChoice(config), 0 if ends is None else len(ends[0])
    arrays = {
        name: np.full(shape, 77, np.float32 if dtype.name == "f32" else np.uint32)
        for name, (shape, dtype) in arrays_of(of, choice, (batch, heads, queries), k.shape[1], sequences).items()
    }
    cleared = tuple(name for name in arrays if choice.clears(name))
    packed = () if ends is None else (ends[0],)
    before = attention_backward_rows.build_rows(
        of.dtype, of.value_dim, False, config.tile_m if packed else 0, cleared=cleared
    )
    wanted = [arrays[name] for name in ("lse2", "delta", *cleared)]
    reports = [before.emulate(*results, *packed, *wanted)]
    made = {name: np.full(x.shape, FILLED, x.dtype) for name, x in (("dQ", q), ("dK", k), ("dV", v))}
    arrays |= {"Q": q, "K": k, "V": v, "dO": grad, **made}
    arrays |= {f"score_{number}": array for number, array in enumerate(captured)}
    arrays |= lists or {}
    arrays |= {} if ends is None else {"q_ends": ends[0], "k_ends": ends[1]}
    numbers = {**numbers, "section": section, "keys": k.shape[1]}
    kernels = [attention_backward.build(of, each) for each in (config, values_config(config)) if each]
    for kernel in (*kernels, attention_backward_sums.build_convert(of, config)):
        program = kernel.program()
        scalars = {parameter.source for parameter in program.scalars}
        reports.append(kernel.emulate(
            *(arrays[spec.name] for spec in program.arrays), schedule=schedule, seed=seed, machine=H200(sms=sms),
            ptx=ptx if len(reports) == 1 else None, **{name: x for name, x in numbers.items() if name in scalars},
        ))  # fmt: skip
    return reports, [*made.values(), *(arrays[name] for name in workspace(of))]


class Checked:
    """A launch that is called for its reports and results, and that knows whether these are right."""

    def check(self, **how):
        """Run, and assert that nothing is found and that the gradients are right."""
        reports, found = self(**how)
        for report in reports:
            report.raise_on_findings()
        assert self.right(found)
        return found
