"""Small launches of the attention kernels, compared with float64, with the tolerances and helpers of the tests.

A case returns the findings of a run: (rules of errors, rules of other findings, True if values are wrong). Lengths are
ragged and multiprocessors few, so that every CTA has several blocks and every ring wraps around.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import warploom
from tests.kernels import test_attention_backward as backward
from tests.kernels import test_attention_backward_varlen as backward_varlen
from tests.kernels import test_attention_fp8 as fp8
from tests.kernels.attention_cases import EXACT, SMALL, Attention, Config, jumping, operands, reference, run, weighty
from tests.kernels.decode_cases import Cache
from tests.kernels.test_attention import ERROR, LSE_ERROR
from warploom.emulator.diagnosis.report import Report
from warploom.errors import WarploomError
from warploom.kernels.hopper.attention_backward_config import BackwardConfig, backward_config
from warploom.kernels.hopper.attention_decode_config import Decode, decode_config
from warploom.operators import workspace
from warploom.operators.attention import calls
from warploom.operators.attention import decode as decode_calls
from warploom.operators.attention.captured import captured
from warploom.types import f16

Found = tuple[set[str], set[str], bool]
Case = Callable[[str], Found]
NARROW = Attention(head_dim=64, value_dim=64)
CAUSAL = replace(NARROW, window_right=True)
WINDOW = replace(CAUSAL, window_left=True)
ONE = replace(SMALL, consumers=1)
TURNING = BackwardConfig(tile_m=64)
"""Configuration for gradients whose ring wraps around at once."""
SINKS = np.array([1.5, -0.5, 200.0, -np.inf], np.float32)
SLOW = ("score", "both", "listed", "whole", "late", "functions", "varlen causal")
"""Cases that run only for bugs that name them."""
STEPS = 2_000_000
"""Most warp instructions of a launch: ten times the longest."""
TANH = 2e-2
"""Error of tanh.approx: 2^-11 of the cap."""


def judged(reports: Iterable[Any], right: bool) -> Found:
    findings = [finding for report in reports for finding in report.findings]
    errors = {finding.rule for finding in findings if finding.severity == "error"}
    return errors, {finding.rule for finding in findings} - errors, not right


def forward(
    schedule: str, *, of: Attention = NARROW, given: Any = (200, 200), heads: tuple[int, int] = (1, 1),
    config: Config = SMALL, error: float = ERROR["bf16"], lse_error: float = LSE_ERROR, levels: Any = None,
    made: Any = None, **how: Any,
) -> Found:  # fmt: skip
    if made is None:
        made = operands(*given, of, heads, 2) if levels is None else jumping(levels, of, config)
    found = run(of, *made, config, sms=1, schedule=schedule, seed=1, max_steps=STEPS, **how)
    wrong = not (found.error <= error and found.lse_error <= lse_error)
    wrong |= bool(np.isnan(found.out).any() or np.isnan(found.lse).any())
    return judged([found.report], not wrong)


def called(schedule: str, compute: Callable[[], bool]) -> Found:
    """A checked call of the library; `compute` returns True if its values are right."""
    reports: list[Any] = []
    raising = Report.raise_on_findings

    def watched(report: Report) -> Report:
        reports.append(report)
        return raising(report)

    Report.raise_on_findings = watched  # type: ignore[method-assign]
    try:
        with warploom.config.override(emulator={"check": True, "schedule": schedule, "seed": 1}):
            right = compute()
    except WarploomError:
        if not any(report.findings for report in reports):
            raise
        right = False
    finally:
        Report.raise_on_findings = raising  # type: ignore[method-assign]
    return judged(reports, right)


class Kept:
    """Workspaces that launches leave unchanged, shared by all of them, as on a GPU."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}

    def of_stream(self, name: str, shape: Any, dtype: Any, model: Any, stream: Any = None) -> Any:
        if name not in self.arrays:
            self.arrays[name] = workspace.of_stream(name, shape, dtype, model, stream)
        return self.arrays[name]

    def cleared(self) -> bool:
        """True if all counters are 0."""
        return not any(array.host.any() for name, array in self.arrays.items() if name != "decode")


def twice() -> bool:
    """Two launches that share the queue's counter."""
    q, k, v = (x.transpose(0, 2, 1, 3) for x in operands(300, 64, CAUSAL, (3, 1)))
    wanted = reference(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)), scale=0.125)[0].transpose(0, 2, 1, 3)
    kept = Kept()
    calls.of_stream = kept.of_stream  # of this process alone
    found = [np.asarray(warploom.attention(q, k, v), np.float64) for _ in range(2)]
    right = all(np.linalg.norm(each - wanted) <= ERROR["bf16"] * np.linalg.norm(wanted) for each in found)
    return right and kept.cleared()


LENGTHS = (90, 0, 1, 65, 130), (100, 5, 70, 65, 64)


def varlen(causal: bool) -> bool:
    q, k, v = (x[0] for x in operands(sum(LENGTHS[0]), sum(LENGTHS[1]), NARROW, (2, 1)))
    ends = [np.concatenate([[0], np.cumsum(each)]).astype(np.int32) for each in LENGTHS]
    out, lse = warploom.attention_varlen(q, k, v, *ends, causal=causal, return_lse=True)
    right = True
    for begin, end, first, last in zip(ends[0][:-1], ends[0][1:], ends[1][:-1], ends[1][1:], strict=True):
        if begin == end:
            continue
        edge = int(last - first) - int(end - begin) if causal else None
        wanted, sums = reference(q[None, begin:end], k[None, first:last], v[None, first:last], scale=0.125, last=edge)
        off = np.asarray(out[begin:end], np.float64) - wanted[0]
        right &= bool(np.linalg.norm(off) <= ERROR["bf16"] * np.linalg.norm(wanted))
        finite = np.isfinite(sums)
        right &= bool(np.array_equal(np.isinf(lse[:, :, begin:end]), ~finite))
        right &= bool(np.allclose(lse[:, :, begin:end][finite], sums[finite], rtol=LSE_ERROR, atol=LSE_ERROR))
    return right


def functions(kind: str) -> bool:
    """Functions of scores and masks, and a block mask, compared with float64."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    queries, keys, batch, heads = 150, 200, 2, 2
    q, k, v = (
        torch.from_numpy(x.astype(np.float32)).bfloat16().transpose(1, 2)
        for x in operands(queries, keys, NARROW, (heads, 1), batch)
    )
    slopes, documents = torch.tensor([0.02, 0.3]), torch.arange(keys) // 40

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + slopes[h] * (j - i) * 0.1 + b

    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (documents[i] == documents[j]) | (i < 2 * j - 30 * b)

    def whole(b: Any, h: Any, i: Any, j: Any) -> Any:  # blocks of 64 that are seen wholly, or not at all
        return i // 64 == j // 64

    def late(b: Any, h: Any, i: Any, j: Any) -> Any:  # whole blocks again; the first 64 queries see nothing
        return (i // 64 >= 1) & (j // 64 <= i // 64)

    seen = {"whole": whole, "late": late}.get(kind, mask)
    i, j = torch.arange(queries)[:, None], torch.arange(keys)
    s = q.double() @ k.double().repeat_interleave(heads, 1).transpose(2, 3) * 0.125
    b, h = torch.arange(batch).view(-1, 1, 1, 1), torch.arange(heads).view(1, -1, 1, 1)
    options: dict[str, Any] = {}
    if kind in ("score", "both"):
        options["score_mod"], s = score, score(s, b, h, i, j)
    if kind in ("listed", "whole", "late"):
        options["block_mask"] = create_block_mask(seen, batch, None, queries, keys, device="cpu", BLOCK_SIZE=64)
    if kind == "late":  # blocks alone, without a function
        told = options["block_mask"]
        parts = told.kv_num_blocks, told.kv_indices, told.full_kv_num_blocks, told.full_kv_indices
        options["block_mask"] = type(told).from_kv_blocks(*parts, BLOCK_SIZE=64)
    elif kind not in ("score", "listed", "whole"):
        options["mask_mod"] = mask
    if kind != "score":
        s = s.masked_fill(~seen(b, h, i, j), -torch.inf)
    lse = torch.logsumexp(s, -1)
    wanted = torch.exp(s - torch.where(lse.isinf(), 0, lse)[..., None]) @ v.double().repeat_interleave(heads, 1)
    found, sums = warploom.attention(q, k, v, return_lse=True, **options)
    off = torch.linalg.vector_norm(found.double() - wanted) / torch.linalg.vector_norm(wanted)
    return bool(off <= ERROR["bf16"]) and torch.allclose(sums.double(), lse, atol=1e-4, rtol=1e-5)


def eight_bits(schedule: str, **how: Any) -> Found:
    return forward(schedule, **{"of": fp8.OF, "config": fp8.SMALL, "error": fp8.ERROR, **how})


def scaled(schedule: str) -> Found:
    draw = np.random.default_rng(3)
    scales = [draw.uniform(0.25, 2, (2, heads)).astype(np.float32) for heads in (4, 2, 2)]
    of = replace(fp8.CAUSAL, scaled=True)
    return eight_bits(schedule, of=of, given=(70, 100), heads=(4, 2), last=30, scales=scales, config=fp8.ONE)


def decode(cache: Cache, error: float = 4e-3, times: int = 1) -> bool:
    wanted, sums = cache.exact()
    right, kept = True, Kept()
    decode_calls.of_stream = kept.of_stream  # of this process alone
    for _ in range(times):
        out, lse = cache.call()
        finite = np.isfinite(sums)
        right &= bool(np.linalg.norm(out - wanted) <= error * max(np.linalg.norm(wanted), 1e-30))
        right &= bool(np.array_equal(np.isinf(lse), ~finite))
        right &= bool(np.allclose(lse[finite], sums[finite], rtol=LSE_ERROR, atol=LSE_ERROR)) and kept.cleared()
    return right


def gradients(
    schedule: str, of: Attention = NARROW, given: Any = (129, 200), config: BackwardConfig | None = TURNING,
    heads: tuple[int, int] = (2, 1), **how: Any,
) -> Found:  # fmt: skip
    run = backward.Run(of, config or backward_config(of), *given, heads=heads, **how)
    reports, found = run(schedule=schedule)
    return judged(reports, run.right(found))


def gradients_far_below_zero(schedule: str) -> Found:
    """Scores so far below 0 that the weight of a key of zeros overflows; only that the results are finite is judged."""
    reports, found = backward.Run(NARROW, TURNING, 64, 70, loud=60.0)(schedule=schedule)
    return judged(reports, all(np.isfinite(np.asarray(array, np.float64)).all() for array in found))


def gradients_varlen(schedule: str, of: Attention, edges: Any) -> Found:
    reports, errors, found = backward_varlen.run(
        of, backward_varlen.LENGTHS, edges=edges, schedule=schedule, config=TURNING
    )
    behind = all((array[:, -backward_varlen.UNWRITTEN :] == backward_varlen.FILLED).all() for array in found)
    return judged(reports, max(errors) <= backward_varlen.ERROR and behind)


def gradients_of_functions() -> bool:
    """Gradients through a function of scores and one of masks, by the library, compared with float64 autograd.

    The functions read arrays that end with the last head, query and key.
    """
    import torch

    slopes, steps, ramp = torch.tensor([0.5, 2.0]), torch.linspace(0, 1, 70), torch.linspace(-1, 1, 100)
    given = [
        torch.from_numpy(x.astype(np.float32)).bfloat16().transpose(1, 2) for x in operands(70, 100, NARROW, (2, 1))
    ]
    exact = [x.double().requires_grad_() for x in given]
    given = [x.clone().requires_grad_() for x in given]

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return torch.tanh(s * 0.5) * 3 + slopes[h] * s + steps[i] * ramp[j]

    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i - j) % 7 != 3

    i, j, h = torch.arange(70)[:, None], torch.arange(100), torch.arange(2).view(1, -1, 1, 1)
    k, v = (x.repeat_interleave(2, 1) for x in exact[1:])
    s = score(exact[0] @ k.transpose(2, 3) * 0.125, 0, h, i, j).masked_fill(~mask(0, h, i, j), -torch.inf)
    grad = torch.randn(1, 2, 70, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).bfloat16()
    (torch.softmax(s, -1) @ v).backward(grad.double())
    warploom.attention(*given, score_mod=score, mask_mod=mask).backward(grad)
    offs = [
        torch.linalg.vector_norm(x.grad.double() - y.grad) / torch.linalg.vector_norm(y.grad)
        for x, y in zip(given, exact, strict=True)
    ]
    return max(offs) <= 1e-2  # tanh.approx


def _decode_config(page: int = 0, tokens: int | None = 100, **more: Any) -> Any:
    of = Decode(head_dim=64, value_dim=64, paged=bool(page), **more)
    return decode_config(of, 2, page or None, tokens)


def _clusters(size: int) -> Any:
    return replace(_decode_config(), cluster=size)


def _cases(family: str) -> dict[str, Case]:
    capped, sunk = replace(NARROW, softcap=True), replace(CAUSAL, sinks=True)
    exact, both = replace(ONE, guarded=False), captured(lambda s, b, h, i, j: s * 2 - s, "score_mod").function
    scales = {name: np.array([[0.5, 2.0], [1.5, 0.75]], np.float32) * at
              for at, name in enumerate(("k_scale", "v_scale"), 1)}  # fmt: skip
    three = Config(tile_n=64, consumers=3, key_stages=2, value_stages=2)
    one_slot = replace(SMALL, query_stages=1)
    return {
        "forward": {
            "full": partial(forward),
            "long": partial(forward, given=(130, 500)),
            "causal": partial(forward, of=CAUSAL, given=(200, 200), heads=(4, 2), last=0),
            "fewer keys": partial(forward, of=CAUSAL, given=(200, 129), last=-71),
            "window": partial(forward, of=WINDOW, given=(150, 330), config=ONE, first=-70, last=100),
            "late window": partial(forward, of=WINDOW, given=(150, 330), first=100, last=300),
            "cap": partial(forward, of=capped, cap=2.0, error=TANH, lse_error=4 * 2**-11),
            "capped causal": partial(forward, of=replace(capped, window_right=True), cap=2.0, last=0, error=TANH,
                                     lse_error=4 * 2**-11),
            "sinks": partial(forward, of=sunk, given=(70, 130), heads=(4, 2), last=60, sinks=SINKS),
            "jump": partial(forward, config=ONE, levels=(0, 133, 141)),
            "rise": partial(forward, config=ONE, levels=(0, 60, 133, 141, 150)),
            "climb": partial(forward, config=ONE, levels=(1, *range(200, 1700, 200))),
            "sections": partial(forward, of=CAUSAL, given=(150, 64), heads=(6, 2), last=0, section_=2),
            "peak": partial(forward, config=ONE, levels=(200, 0, 330)),
            "grow": partial(forward, config=exact, levels=(0, 9, 13, 133, 141)),
            "heavy": partial(forward, config=replace(ONE, tile_n=128), error=EXACT,
                             made=weighty(NARROW, 256, dict.fromkeys((0, 1, 32, 100), 40))),
            "f16": partial(forward, of=replace(NARROW, dtype=f16), config=ONE, levels=(0, 70, 84), error=ERROR["f16"]),
            "three": partial(forward, config=three),
            "short": partial(forward, given=(500, 60), config=replace(SMALL, key_stages=3)),
            "one slot": partial(forward, config=one_slot, given=(300, 130)),
            "score": partial(called, compute=partial(functions, "score")),
            "both": partial(called, compute=partial(functions, "both")),
            "listed": partial(called, compute=partial(functions, "listed")),
            "whole": partial(called, compute=partial(functions, "whole")),
            "late": partial(called, compute=partial(functions, "late")),
            "varlen": partial(called, compute=partial(varlen, False)),
            "varlen causal": partial(called, compute=partial(varlen, True)),
            "twice": partial(called, compute=twice),
        },
        "fp8": {
            "full": partial(eight_bits),
            "causal": partial(eight_bits, of=fp8.CAUSAL, given=(200, 200), heads=(4, 2), last=0),
            "renewed": partial(eight_bits, config=fp8.RENEWED, given=(129, 200)),
            "parts": partial(eight_bits, config=replace(fp8.ONE, promoted_columns=16), given=(130, 200)),
            "wide": partial(eight_bits, config=replace(fp8.ONE, tile_n=160), given=(64, 360)),
            "jump": partial(eight_bits, config=fp8.ONE, levels=(0, 3, 6, 9, 12)),
            "leap": partial(eight_bits, config=fp8.ONE, levels=(0, 133, 141)),
            "scaled": scaled,
        },
        "decode": {
            name: partial(called, compute=partial(decode, cache, *more))
            for name, (cache, *more) in {
                "few": (Cache((129, 300), heads=(2, 1), options={"config": _decode_config()}),),
                "clusters": (Cache((129, 300, 0, 1), heads=(2, 1), options={"config": _clusters(4)}),),
                "cluster's window": (
                    Cache((300,), heads=(2, 1), options={"config": _clusters(8), "window": 100}),
                ),
                "rounds": (
                    Cache((190,), heads=(2, 1), options={"config": replace(_decode_config(), splits_per_read=2)}),
                ),
                "many": (Cache((63, 0, 1, 300)),),
                "twice": (Cache((129, 300), heads=(2, 1), options={"config": _decode_config()}), 4e-3, 2),
                "pages": (Cache((129, 300, 0), page=16, heads=(2, 1), options={"config": _decode_config(16)}),),
                "odd pages": (Cache((70, 3), page=5, heads=(2, 1)),),
                "tokens": (Cache((70, 2), 5, (4, 1)),),
                "tokens at edges": (Cache((64, 80), 5, (4, 1)),),
                "chunks": (Cache((70, 40), 9, (10, 2)),),
                "steep": (Cache((300,), heads=(2, 1), options={"scale": 4.0, "config": _decode_config()}),),
                "two blocks": (Cache((70, 40), 5, (10, 2)),),
                "window": (Cache((140, 1), 2, (2, 1), options={"window": 20}),),
                "sinks": (Cache((140, 1), 2, (2, 1), options={"sinks": np.array([300, -2.5], np.float32)}),),
                "wide": (Cache((70, 200), heads=(2, 1), dim=(256, 256)),),
                "cap": (Cache((70,), heads=(2, 1), options={"softcap": 3.0}), TANH),
                "eight bits": (Cache((130, 33), fp8_kv=True, options=scales),),
                "eight bits, pages": (Cache((70, 300), 5, (8, 2), fp8_kv=True, page=16,
                                            options={"k_scale": 0.5, "v_scale": 3.0}),),
            }.items()
        },
        "backward": {
            "full": partial(gradients),
            "far below zero": gradients_far_below_zero,
            "causal": partial(gradients, of=CAUSAL, last=71),
            "fewer keys": partial(gradients, of=CAUSAL, given=(130, 64), last=-66),
            "window": partial(gradients, of=WINDOW, given=(129, 300), first=-70, last=0),
            "late window": partial(gradients, of=WINDOW, given=(129, 300), first=100, last=171),
            "wide": partial(
                gradients, of=Attention(head_dim=128, value_dim=64, window_right=True), given=(70, 100), last=30
            ),
            "apart": partial(gradients, of=Attention(head_dim=256, value_dim=256), given=(70, 100), heads=(1, 1),
                             config=None),
            "modified": partial(gradients, of=replace(NARROW, score_mod=both), given=(70, 100)),
            "functions": partial(called, compute=gradients_of_functions),
            "varlen": partial(gradients_varlen, of=backward_varlen.NARROW, edges=(None, None)),
            "varlen causal": partial(
                gradients_varlen, of=replace(backward_varlen.NARROW, window_right=True), edges=(0, None)
            ),
        },
    }[family]  # fmt: skip


def case_of(family: str, name: str) -> Case:
    """A case by its name, made in the process that runs it."""
    return _cases(family)[name]


def names_of(family: str) -> list[str]:
    """The cases of a family, in order."""
    return list(_cases(family))


def outcome(family: str, name: str, schedule: str) -> Found:
    """Run a case; an exception counts as an error."""
    try:
        return case_of(family, name)(schedule)
    except WarploomError as error:
        return {getattr(error, "code", "") or type(error).__name__}, set(), False
