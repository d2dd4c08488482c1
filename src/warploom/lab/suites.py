"""The suites of `warploom bench`: their problems, contenders, and default protocols."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..errors import ArgumentError
from .attention_problem import DECODES, FORWARDS, AttentionWork
from .work import GemmWork


@dataclass(frozen=True)
class Suite:
    """A named set of problems.

    Attributes:
        name: for `--suite`.
        file: stem of its evidence file.
        problems: the problems to time.
        against: contenders besides warploom, in the order of the table; ratios are relative to the first.
        protocols: the default protocols.
        method: "products" (device time of a call), "launch" (a chain of calls, launched in several ways) or
            "host" (host time of a call).
        configs: ours, as for `--config`; "" is the library's choice.
        launch: how calls reach the GPU: "graph" replays or "stream" launches.
    """

    name: str
    file: str
    problems: tuple[GemmWork, ...] | tuple[AttentionWork, ...]
    against: tuple[str, ...]
    protocols: tuple[str, ...] = ("interleaved",)
    method: str = "products"
    launch: str = "graph"
    configs: tuple[str, ...] = ("",)


def _bf16(*shapes: tuple[int, int, int]) -> tuple[GemmWork, ...]:
    return tuple(GemmWork(*shape) for shape in shapes)


SQUARE = ((8192, 8192, 8192), (6144, 6144, 6144), (4096, 4096, 4096), (2048, 2048, 2048), (16384, 8192, 8192))
AWKWARD = ((4096, 2112, 7168), (2048, 7168, 4096), (3072, 5120, 8192), (1536, 3072, 12288))
"""Tiles of 128 x 256 fill 0.55 to 0.91 of their waves of 132 there; on the other large shapes 0.97 and more."""
LLM = (
    (8192, 28672, 8192), (4096, 14336, 4096), (4096, 4096, 14336), (512, 8192, 8192), (16384, 8192, 8192),
    *AWKWARD,
)  # fmt: skip
SMALL_K = ((8192, 8192, 1024), (16384, 4096, 1536), (4096, 7168, 2048), (8192, 8192, 2048))
DECODE = tuple((m, n, k) for n, k in ((8192, 8192), (28672, 8192), (4096, 14336)) for m in (1, 16, 64, 128))
LAUNCH = ((2048, 2048, 2048), (1024, 4096, 4096), (512, 512, 512), (16, 8192, 8192), (16, 4096, 14336))
FP8 = ((8192, 8192, 8192), (4096, 4096, 4096), (4096, 14336, 4096), (4096, 4096, 14336), (512, 8192, 8192),
       (8192, 8192, 2048), (8192, 8192, 1024))  # fmt: skip
FUSED = ((4096, 4096, 4096), (4096, 14336, 4096))


def _fp8(shapes: tuple[tuple[int, int, int], ...], scales: str) -> tuple[GemmWork, ...]:
    return tuple(GemmWork(*shape, dtype="e4m3", scales=scales) for shape in shapes)


def skewed(experts: int, most: int) -> tuple[int, ...]:
    """Rows of each expert, 0 to `most`, as from routing: some empty, few full."""
    draw = random.Random(0)
    return tuple(round(most * draw.random() ** 2) if draw.random() > 0.1 else 0 for _ in range(experts))


def _grouped(dtype: str, scales: str) -> tuple[GemmWork, ...]:
    rows = ((512,) * 8, (64,) * 64, skewed(64, 512))
    return tuple(
        GemmWork(sum(each), 4096, 7168, dtype=dtype, kind="grouped", scales=scales, rows=each) for each in rows
    )


SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("square", "square-bf16", _bf16(*SQUARE), ("cublas", "cublaslt-best", "triton"),
              ("alone", "interleaved", "burst")),
        Suite("llm", "llm-bf16", _bf16(*LLM), ("cublas", "cublaslt-best", "triton"), ("alone", "interleaved")),
        Suite("small-k", "small-k-bf16", _bf16(*SMALL_K), ("cublas", "cublaslt-best", "triton"),
              ("alone", "interleaved")),
        Suite("launch", "launch", _bf16(*LAUNCH), ("cublas",), method="launch", launch="stream"),
        Suite("decode", "decode", (*_bf16(*DECODE), *_fp8(DECODE, "tensor"), *_fp8(DECODE, "row")),
              ("cublas", "scaled-mm", "scaled-mm-row", "triton", "triton-split-k"), configs=("", "constant-weights")),
        Suite("fp8", "fp8", (*_fp8(FP8, "tensor"), *_fp8(FP8, "row"), *_fp8(FP8, "block128")),
              ("scaled-mm", "scaled-mm-row", "scaled-mm-block", "cublaslt-best", "triton", "deepgemm"),
              ("alone", "interleaved")),
        Suite("grouped", "grouped", (*_grouped("bf16", ""), *_grouped("e4m3", "row")), ("loop", "torch-grouped"),
              launch="stream"),
        Suite("fused", "fused", tuple(GemmWork(*shape, kind=kind) for kind in ("gelu", "swiglu") for shape in FUSED),
              ("torch-eager", "torch-compile")),
        Suite("overhead", "overhead", (GemmWork(256, 256, 256), GemmWork(256, 256, 256, dtype="e4m3", scales="tensor")),
              ("cublas", "scaled-mm", "triton"), method="host", launch="stream"),
        Suite("attention", "attention", FORWARDS, ("cudnn", "flash", "triton-attention", "own-bf16"),
              ("alone", "interleaved"), launch="stream"),
        Suite("attention-decode", "attention-decode", DECODES, ("cudnn", "flash"), ("alone", "interleaved")),
    )
}  # fmt: skip


def find(name: str) -> Suite:
    """The suite of that name. Raises ArgumentError, with the list of suites, for an unknown one."""
    if name not in SUITES:
        raise ArgumentError(
            f"unknown suite {name!r}", expected=", ".join((*SUITES, "sample")), got=repr(name), code="unknown-name"
        )
    return SUITES[name]
