"""Attention before it runs: roofs, the kernel, its tiles and how they fill the GPU. Computed, not measured.

FLOP are 2 (D + E) for each unmasked score, bytes those of Q, K, V and O once each. exp2 is a third roof: 16 of them
per clock on a multiprocessor of sm_90 (CUDA C++ Programming Guide, arithmetic instructions), one for each score.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ArgumentError, NoGpuError
from ..isa.dtypes import bf16
from ..kernels.hopper.attention_config import Attention, Config
from ..kernels.hopper.attention_decode_config import MOST_ROWS, Decode, DecodeConfig
from ..operators.attention.choice import Call, chosen
from ..operators.attention.request import MOST_DIM
from ..operators.spec.gpu import Gpu, gpu_of
from ..plural import counted
from .roofline import ARCH, SMS, Roofline, occupancy

EXP_PER_CLOCK = 16


@dataclass(frozen=True)
class AttentionProblem:
    """B sequences of S queries of H heads and T keys of G heads, head dimension D; bf16.

    `causal`: the last query sees all keys, the previous one sees one less, and so on.
    """

    batch: int
    heads: int
    queries: int
    dim: int
    kv_heads: int
    keys: int
    causal: bool = False

    @property
    def scores(self) -> int:
        """Number of unmasked scores."""
        if not self.causal:
            each = self.queries * self.keys
        else:
            offset = self.keys - self.queries
            first = max(0, -offset)  # earlier queries see nothing
            seen = self.queries - first
            each = seen * (first + offset + 1) + seen * (seen - 1) // 2
        return self.batch * self.heads * each

    @property
    def flops(self) -> int:
        return 4 * self.scores * self.dim

    @property
    def call(self) -> Call:
        """The call that the library chooses: few queries of longer sequences are decoded."""
        of: Attention | Decode = Attention(head_dim=self.dim, value_dim=self.dim, window_right=self.causal)
        if self.queries <= MOST_ROWS and self.keys > self.queries:
            of = Decode(head_dim=self.dim, value_dim=self.dim)
        return Call(of, self.batch, self.heads, self.kv_heads, self.queries, self.keys)

    @property
    def bytes(self) -> int:
        """Bytes of Q, K, V and O."""
        width = self.batch * self.dim * bf16.bytes
        return 2 * width * (self.heads * self.queries + self.kv_heads * self.keys)


@dataclass(frozen=True)
class AttentionExplained:
    """The result of an explanation.

    Attributes:
        roofs_us: the minimum time under each roof, by name.
        kernel: its name.
        config: the library's choice.
        source: "tuned" if it was timed on this GPU, otherwise "rule".
        blocks: pieces of work that CTAs take, and the number per multiprocessor.
        shared_bytes: of a CTA's tiles.
    """

    problem: AttentionProblem
    machine: str
    roofs_us: dict[str, float]
    kernel: str
    config: Config | DecodeConfig
    source: str
    blocks: int
    per_sm: float
    shared_bytes: int

    @property
    def bound(self) -> str:
        """The roof that limits it."""
        return max(self.roofs_us, key=self.roofs_us.__getitem__)

    def data(self) -> dict[str, Any]:
        """As a dict for JSON."""
        return {
            "problem": asdict(self.problem), "machine": self.machine, "flops": self.problem.flops,
            "bytes": self.problem.bytes, "bound": self.bound,
            "least_us": {name: round(us, 2) for name, us in self.roofs_us.items()}, "kernel": self.kernel,
            "config": asdict(self.config), "source": self.source, "blocks": self.blocks,
            "blocks_per_sm": round(self.per_sm, 2), "shared_bytes": self.shared_bytes,
        }  # fmt: skip

    def rows(self) -> list[tuple[str, str]]:
        """Labels and values for a table."""
        problem = self.problem
        room = occupancy(ARCH[self.machine], threads=32, registers=32, shared=self.shared_bytes).shared
        least = ", ".join(f"{name} {us:,.1f} us" for name, us in self.roofs_us.items())
        if isinstance(self.config, Config):
            tiles = f"blocks of {self.config.tile_m} queries, tiles of {self.config.tile_n} keys"
            work = f"{self.blocks:,} blocks, {self.per_sm:.2f} for each SM, the longest first"
        else:
            tiles = f"up to {self.config.tile_m} rows of a key head, tiles of {self.config.tile_n} keys"
            work = f"{self.blocks:,} tiles, {self.per_sm:.2f} for each SM, equal shares"
        return [
            ("work", f"{problem.flops / 1e9:,.1f} GFLOP, {problem.bytes / 1e6:,.1f} MB of Q, K, V and O"),
            ("at least", f"{least}: bound by {self.bound}"),
            ("kernel", f"{self.kernel}, {tiles}"),
            ("configuration", ", ".join(f"{name}={value}" for name, value in asdict(self.config).items())),
            (
                "chosen",
                "timed on this GPU"
                if self.source == "tuned"
                else "by the kernel's rule; `warploom tune --attention` times others",
            ),
            ("its work", work),
            ("its memory", f"{self.shared_bytes / 1024:,.0f} KiB of shared memory per CTA; an SM has room for {room}"),
        ]


def problem_of(shape: str, kv_heads: int = 0, keys: int = 0, causal: bool = False) -> AttentionProblem:
    """The problem of "BxHxSxD". Raises ArgumentError."""
    parts = shape.lower().split("x")
    numbers = [int(part) if part.isdecimal() else 0 for part in parts]
    if len(numbers) != 4 or min(numbers) < 1:
        raise ArgumentError("attention has four sizes", expected="BxHxSxD, such as 4x32x4096x128", got=shape)
    batch, heads, queries, dim = numbers
    kv_heads, keys = kv_heads or heads, keys or queries
    if kv_heads < 1 or heads % kv_heads or keys < 1:
        raise ArgumentError(
            "the query heads are not a multiple of the key heads", expected=f"a divisor of {heads}, and keys",
            got=f"{kv_heads} key heads, {counted(keys, 'key')}",
        )  # fmt: skip
    if dim > MOST_DIM or dim % 8:
        raise ArgumentError("there is no kernel for the head dimension", expected=f"a multiple of 8 up to {MOST_DIM}",
                            got=dim)  # fmt: skip
    return AttentionProblem(batch, heads, queries, dim, kv_heads, keys, causal)


def explain_attention(problem: AttentionProblem, machine: str = "H200") -> AttentionExplained:
    """Explain a problem; few queries of longer sequences use `attention_decode`. Raises ArgumentError."""
    roof = Roofline.of(machine)
    if ARCH[machine] != "sm_90a":
        raise ArgumentError("attention has kernels for Hopper only", expected="H200 or H100", got=machine)
    sms = SMS[machine]
    rates = {
        "tensor cores": (problem.flops, roof.peak), "exp2": (problem.scores, EXP_PER_CLOCK * sms * roof.clock),
        "memory": (problem.bytes, roof.bandwidth),
    }  # fmt: skip
    roofs = {name: work / rate * 1e6 for name, (work, rate) in rates.items()}
    call = problem.call
    found = chosen(call, _gpu(machine))
    if isinstance(call.of, Decode):
        few: DecodeConfig = found.config
        tiles = problem.batch * problem.kv_heads * -(-call.rows // few.tile_m) * -(-problem.keys // few.tile_n)
        used = few.shared_bytes(call.of)
        return AttentionExplained(
            problem, machine, roofs, "attention_decode", few, found.source, tiles, tiles / sms, used
        )  # fmt: skip
    config: Config = found.config
    blocks = problem.batch * problem.heads * -(-problem.queries // config.tile_m)
    return AttentionExplained(
        problem, machine, roofs, "attention", config, found.source, blocks, blocks / sms, config.shared_bytes(call.of)
    )  # fmt: skip


def _gpu(machine: str) -> Gpu:
    """This machine's GPU if it has that name, with its timings; otherwise one without timings."""
    try:
        here = gpu_of(0)
    except NoGpuError:
        return Gpu(machine, ARCH[machine], SMS[machine])
    return here if machine in here.name else Gpu(machine, ARCH[machine], SMS[machine])
