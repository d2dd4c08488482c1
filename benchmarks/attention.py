"""Attention beside cuDNN's and the flash backend of torch's scaled_dot_product_attention.

    python -m benchmarks.attention [--out FILE] [--only WORDS] [--seconds 0.5] [--variants] [--protocols alone,…]

Data are random normal unless a case says otherwise; B x S = 16384 queries and 2048 / head_dim heads. FLOP are those of
the scores that are not masked: 2 (D + E) each. Every contender is held against float64 on some of the heads first.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import warploom
from benchmarks.attention_session import Row, Session, Suite
from warploom import types as dtypes
from warploom.errors import CompilationError, TraceError
from warploom.kernels.hopper import attention as kernels
from warploom.kernels.hopper.attention_config import Attention, Config, default
from warploom.lab import evidence
from warploom.lab.recipe import recipe
from warploom.lang import Kernel

TOKENS, WIDTH = 16384, 2048
HEADS_CHECKED = 2
SCALES = ("q_scale", "k_scale", "v_scale")
OWN_BF16 = "warploom bf16"
"""Our own kernel on the same numbers in bf16, beside which e4m3 is timed: torch has no attention of eight bits."""
ROWS_AT_A_TIME = 2048
ERROR_MARGIN, LSE_ERROR = 1.05, 1e-5
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """What is timed.

    Attributes:
        head_dim, length, causal: as they are called; `value_dim` and `keys` where they differ.
        group: query heads for each key head.
        data: "normal", or a name of `DATA`.
        window, softcap, sinks: `attention`'s.
    """

    head_dim: int = 128
    length: int = 4096
    causal: bool = False
    dtype: str = "bf16"
    value_dim: int = 0
    group: int = 1
    data: str = "normal"
    window: tuple[int, int] | None = None
    softcap: float | None = None
    sinks: bool = False

    @property
    def name(self) -> str:
        words = [f"{self.head_dim}" + (f"/{self.value_dim}" if self.value_dim else ""), f"{self.length}",
                 "causal" if self.causal else "full", self.dtype]  # fmt: skip
        words += [f"group {self.group}"] if self.group > 1 else []
        words += [f"window {self.window}"] if self.window else []
        words += ["softcap"] if self.softcap else []
        words += ["sinks"] if self.sinks else []
        return " ".join(words + ([self.data] if self.data != "normal" else []))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """B, H, S, D."""
        return TOKENS // self.length, max(1, WIDTH // self.head_dim), self.length, self.head_dim

    @property
    def seen(self) -> int:
        """Scores of a head that are not masked."""
        n = self.length
        left, right = self.window or (n, n)
        right = 0 if self.causal else right
        return sum(min(n, i + right + 1) - max(0, i - left) for i in range(n))

    @property
    def flops(self) -> int:
        b, h, _, d = self.shape
        return 2 * b * h * self.seen * (d + (self.value_dim or d))

    @property
    def options(self) -> dict[str, Any]:
        return {"causal": self.causal, "window": self.window, "softcap": self.softcap}


def _scaled(q: torch.Tensor, k: torch.Tensor, factor: float) -> None:
    q *= factor


def _growing(q: torch.Tensor, k: torch.Tensor, factor: float) -> None:
    k *= torch.logspace(0, math.log10(factor), k.shape[2], device=k.device)[None, None, :, None].to(k.dtype)


def _sink(q: torch.Tensor, k: torch.Tensor, score: float) -> None:
    direction = q.mean((0, 2), keepdim=True)[:, :, :1] + 1
    q += 1
    k[:, :, :1] = (direction * score / (q.shape[-1] ** 0.5)).to(k.dtype)


def _outliers(q: torch.Tensor, k: torch.Tensor, size: float) -> None:
    k[:, :, :, :2] *= size


DATA: dict[str, Callable[[torch.Tensor, torch.Tensor], None]] = {
    "deviation 16": partial(_scaled, factor=16),
    "deviation 64": partial(_scaled, factor=64),
    "keys growing 100-fold": partial(_growing, factor=100),
    "keys growing 1000-fold": partial(_growing, factor=1000),
    "keys shrinking 1000-fold": partial(_growing, factor=1e-3),
    "sink at key 0": partial(_sink, score=40.0),
    "strong sink at key 0": partial(_sink, score=400.0),
    "outlier channels": partial(_outliers, size=30),
}
HEADLINE = tuple(Case(d, n, causal) for d in (128, 64, 256) for causal in (False, True) for n in (2048, 4096, 16384))
OTHERS = (
    *(Case(128, 4096, causal, "f16") for causal in (False, True)),
    *(Case(96, 4096, causal) for causal in (False, True)),
    *(Case(192, 4096, causal, value_dim=128) for causal in (False, True)),
    *(Case(128, 4096, causal, group=4) for causal in (False, True)),
    Case(128, 16384, True, window=(1024, 0)),
)  # fmt: skip
EIGHT_BITS = (
    *(Case(128, n, causal, "e4m3") for n in (2048, 4096, 16384) for causal in (False, True)),
    *(Case(d, 4096, causal, "e4m3") for d in (64, 256) for causal in (False, True)),
)  # fmt: skip
ANY_DATA = tuple(Case(128, 4096, causal, data=name) for name in DATA for causal in (False, True))
SUITE = (*HEADLINE, *OTHERS, *ANY_DATA, *EIGHT_BITS)


def make(case: Case, seed: int = 0) -> Tensors:
    """q, k, v in torch's layout."""
    generator = torch.Generator("cuda").manual_seed(seed)
    b, h, n, d = case.shape
    dtype = DTYPES[case.dtype]

    def normal(heads: int, width: int) -> torch.Tensor:
        made = torch.randn((b, heads, n, width), generator=generator, device="cuda", dtype=torch.float32)
        return made if case.dtype == "e4m3" else made.to(dtype)

    made = {"q": normal(h, d), "k": normal(h // case.group, d), "v": normal(h // case.group, case.value_dim or d)}
    if case.data in DATA:
        DATA[case.data](made["q"], made["k"])
    for name in "qkv":
        if case.dtype == "e4m3":  # the largest of each head becomes the largest e4m3
            made[f"{name}_scale"] = (made[name].abs().amax((2, 3)) / 448).contiguous()
            made[name] /= made[f"{name}_scale"][:, :, None, None]
            made[name] = made[name].to(dtype)
    if case.sinks:
        made["sinks"] = torch.randn(h, generator=generator, device="cuda")
    return made


def exact(case: Case, made: Tensors, head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """O and the logarithms of one head of the first batch, in float64."""
    at = {name: head // (1 if name == "q" else case.group) for name in "qkv"}
    q, k, v = (made[name][0, at[name]].double() for name in "qkv")
    if case.dtype == "e4m3":
        q, k, v = (x * made[f"{name}_scale"][0, at[name]].double() for name, x in zip("qkv", (q, k, v), strict=True))
    columns = torch.arange(case.length, device="cuda")
    outs, sums = [], []
    for begin in range(0, case.length, ROWS_AT_A_TIME):
        s = q[begin : begin + ROWS_AT_A_TIME] @ k.T / math.sqrt(case.head_dim)
        rows = torch.arange(begin, begin + len(s), device="cuda")[:, None]
        if case.softcap:
            s = case.softcap * torch.tanh(s / case.softcap)
        if case.causal:
            s.masked_fill_(columns > rows, -math.inf)
        if case.window:
            s.masked_fill_((columns < rows - case.window[0]) | (columns > rows + case.window[1]), -math.inf)
        outs.append(torch.softmax(s, -1) @ v)
        sums.append(torch.logsumexp(s, -1))
    return torch.cat(outs), torch.cat(sums)


@dataclass
class Contender:
    """Somebody who computes it. `call` gives the result in torch's layout; `lse` is filled by ours."""

    name: str
    call: Callable[[], torch.Tensor]
    config: Config | None = None
    lse: torch.Tensor | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def subject(case: Case) -> Attention:
    """What the kernel of a case is for."""
    return Attention(
        getattr(dtypes, case.dtype), case.head_dim, case.value_dim or case.head_dim,
        above=case.causal or bool(case.window), below=bool(case.window), softcap=bool(case.softcap), sinks=case.sinks,
        scaled=case.dtype == "e4m3",
    )  # fmt: skip


def configurations(case: Case, variants: bool) -> dict[str, Config]:
    """Ours, by the name of the contender."""
    chosen = default(subject(case))
    if not variants:
        return {"warploom": chosen}
    if case.dtype == "e4m3":
        others = {
            "o accumulates": replace(chosen, apart=0), "unordered": replace(chosen, ordered=False),
            **({"128 keys": replace(chosen, keys=128, apart=32, value_stages=2),
                "64 keys": replace(chosen, keys=64)} if case.head_dim == 128 else {}),
            **({"96 keys": replace(chosen, keys=96), "160 keys": replace(chosen, keys=160),
                "3 x 64": replace(chosen, keys=64, consumers=3)} if case.head_dim == 64 else {}),
            **({"apart 64": replace(chosen, apart=64)} if case.head_dim == 256 else {}),
        }  # fmt: skip
        return {"warploom": chosen} | {name: other for name, other in others.items() if builds(case, other)}
    others = {
        "exact": replace(chosen, guarded=False),
        "unordered" if chosen.ordered else "ordered": replace(chosen, ordered=not chosen.ordered),
    }
    if case.head_dim == 128:
        others["one slot"] = replace(chosen, query_slots=1)
    if case.head_dim == 64:
        others["3 x 96"] = Config(keys=96, consumers=3, key_stages=4, value_stages=4)
        others["3 x 80"] = Config(keys=80, consumers=3, key_stages=4, value_stages=4)
        others["2 x 128"] = Config(keys=128, key_stages=4, value_stages=4)
        others["2 x 176"] = Config(keys=176, key_stages=2, value_stages=2)
    if case.head_dim == 256:
        others["80 keys"] = replace(chosen, keys=80)
    others = {name: other for name, other in others.items() if other != chosen}
    return {"warploom": chosen} | {name: other for name, other in others.items() if builds(case, other)}


@lru_cache(maxsize=64)
def built(of: Attention, config: Config) -> Kernel:
    """A kernel, traced once."""
    return kernels.build(of, config)


def builds(case: Case, config: Config) -> bool:
    """Whether ptxas makes a kernel without spills of it; it is in the cache then."""
    try:
        built(subject(case), config).resources()
    except (CompilationError, TraceError):  # spills, or no room
        return False
    return True


def build(case: Case, variants: bool) -> None:
    """Put the kernels of a case into the cache."""
    for config in configurations(case, variants).values():
        builds(case, config)
    if case.dtype == "e4m3":
        builds(wide(case), default(subject(wide(case))))


def wide(case: Case) -> Case:
    """The same in bf16."""
    return replace(case, dtype="bf16")


def ours(case: Case, made: Tensors, chosen: Config, name: str) -> Contender:
    b, h, n, _ = case.shape
    of = subject(case)
    out = torch.empty((b, h, n, made["v"].shape[-1]), device="cuda", dtype=DTYPES[of.result.name])
    lse = torch.empty((b, h, n), device="cuda")
    given = {name: made[name] for name in ("sinks", *SCALES) if name in made}
    kernel = built(of, chosen)
    facts = evidence.facts(kernel, recipe(kernels.build, of, chosen))
    call = partial(warploom.attention, made["q"], made["k"], made["v"], **given, **case.options, out=out, lse=lse,
                   config=chosen)  # fmt: skip
    return Contender(name, call, chosen, lse, facts)


def torchs(case: Case, made: Tensors, backend: SDPBackend, name: str, flash_layout: bool) -> Contender:
    q, k, v = (made[each] for each in ("q", "k", "v"))
    if flash_layout:
        q, k, v = (each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v))

    def call() -> torch.Tensor:
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=case.causal, enable_gqa=case.group > 1)

    return Contender(name, call)


def contenders(case: Case, made: Tensors, variants: bool) -> Iterator[Contender]:
    for name, config in configurations(case, variants).items():
        yield ours(case, made, config, name)
    if case.dtype == "e4m3":
        same = {name: (made[name].float() * made[f"{name}_scale"][:, :, None, None]).bfloat16() for name in "qkv"}
        yield ours(wide(case), same, default(subject(wide(case))), OWN_BF16)
        return
    if case.window or case.softcap or case.sinks:
        return
    yield torchs(case, made, SDPBackend.CUDNN_ATTENTION, "cudnn", False)
    if variants:
        yield torchs(case, made, SDPBackend.CUDNN_ATTENTION, "cudnn bshd", True)
    if case in HEADLINE and case.length == 16384:
        yield torchs(case, made, SDPBackend.FLASH_ATTENTION, "flash", True)


def checked(
    case: Case, made: Tensors, found: Sequence[Contender]
) -> tuple[list[Contender], dict[str, dict[str, float]]]:
    """Errors of everybody, and who is able to compute it at all."""
    heads = list(range(0, case.shape[1], max(1, case.shape[1] // HEADS_CHECKED)))[:HEADS_CHECKED]
    wanted = {head: exact(case, made, head) for head in heads}
    able, errors = [], {}
    for each in found:
        try:
            out = each.call()
            torch.cuda.synchronize()
        except RuntimeError as error:  # a backend that does not have it
            print(f"    {each.name}: {str(error).splitlines()[0][:90]}", flush=True)
            continue
        norm = sum(float(wanted[head][0].norm()) ** 2 for head in heads) ** 0.5
        off = sum(float((out[0, head].double() - wanted[head][0]).norm()) ** 2 for head in heads) ** 0.5
        errors[each.name] = {"relative_error": off / norm}
        if each.lse is not None:
            worst = max(float((each.lse[0, head].double() - wanted[head][1]).abs().max()) for head in heads)
            largest = max(float(wanted[head][1].abs().max()) for head in heads)
            errors[each.name] |= {"lse_error": worst, "lse_largest": largest}
        able.append(each)
    return able, errors


def measure(case: Case, session: Session) -> Iterator[Row]:
    """The rows of one case."""
    made = make(case)
    able, errors = checked(case, made, list(contenders(case, made, session.asked.variants)))
    calls = {each.name: each.call for each in able}
    which = session.asked.protocols.split(",")
    for protocol in which if case in HEADLINE else which[:1]:
        spreads = session.sample(case, calls, protocol)
        theirs = [spreads[name].median for name in ("cudnn", "cudnn bshd") if name in spreads]
        others = {"cudnn": min(theirs)} if theirs else {}
        others |= {OWN_BF16: spreads[OWN_BF16].median} if OWN_BF16 in spreads else {}
        for each in able:
            spread = spreads[each.name]
            row = {
                "case": case.name, "head_dim": case.head_dim, "length": case.length, "causal": case.causal,
                "dtype": case.dtype, "data": case.data, "provider": each.name, "protocol": protocol,
                "us": spread.as_dict(lambda s: s * 1e6, 2),
                "tflops": spread.as_dict(lambda s: case.flops / s / 1e12, 1),
                "ratio_to": {name: round(median / spread.median, 4) for name, median in others.items()},
                **errors[each.name], **session.power(each.name, protocol),
            }  # fmt: skip
            if each.config is not None:
                row |= {"kernel": "attention", "config": str(each.config), **each.facts}
            yield row


def fits(case: Case, words: str) -> bool:
    """Whether a case has all of some words, separated by commas."""
    name = f" {case.name} {case.data}"
    return all(f" {word}" in name for word in words.split(",") if word)


def told(rows: Sequence[Row]) -> str:
    """A line of a case for each protocol."""
    lines = []
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        some = [row for row in rows if row["protocol"] == protocol]
        words = []
        for row in some:
            ratio = ", ".join(f"{value:.3f}" for value in row["ratio_to"].values())
            words.append(f"{row['provider']} {row['tflops']['median']:.0f} ({ratio})")
        theirs = min((row["relative_error"] for row in some if "cudnn" in row["provider"]), default=0.0)
        off = f"err {some[0]['relative_error']:.2e} ({theirs:.2e}) lse {some[0].get('lse_error', 0):.0e}"
        lines.append(f"{some[0]['case']:34} {protocol[:5]} {', '.join(words)}  {off}")
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    suite = Suite("attention", __doc__, SUITE, fits, measure, told)
    parser = suite.parser()
    parser.add_argument("--variants", action="store_true", help="other configurations, too")
    parser.add_argument("--protocols", default="alone,interleaved")
    asked = parser.parse_args(words)

    def prepare(cases: Sequence[Case]) -> None:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(build, variants=asked.variants), cases))

    return suite.run(asked, prepare)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
