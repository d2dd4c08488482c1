"""`explain(problem)`: the choice, its source, and the model's estimates for it and the other candidates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .families import family_of, is_corrected
from .families.estimate import MEMORY, Estimate
from .select import Choice, choose, kept, ranking
from .spec.gpu import EMULATED, Gpu
from .spec.problem import TMA_BYTES, Problem

SHOWN = 8


@dataclass(frozen=True)
class Explanation:
    """Why a configuration was chosen.

    Attributes:
        problem, gpu, choice: the question and the answer.
        others: the model's best candidates with their estimates, fastest first. The choice is among them; it is last
            if it is not one of the model's best.
        candidates: the number of candidates.
        corrected: True if the estimates are corrected by a fit to sweeps of all kernels.
        preferred: True if configurations that measurements on an H200 prefer come first, whatever their estimates: up
            to 128 rows of A, for example, the kernels made for few rows.
    """

    problem: Problem
    gpu: Gpu
    choice: Choice
    others: tuple[tuple[Any, Estimate], ...] = field(repr=False)
    candidates: int = 0
    corrected: bool = True
    preferred: bool = False

    @property
    def per_tile(self) -> dict[str, int]:
        """The cost of a whole tile of the choice, by the emulator's counters; {} if its family does not report any."""
        return family_of(self.choice.config, self.problem).per_tile(self.choice.config, self.problem)

    @property
    def copied(self) -> tuple[str, ...]:
        """The operands that matmul copies first if they are contiguous, because TMA cannot address their rows."""
        product, m, n, k = self.problem.product, self.problem.m, self.problem.n, self.problem.k
        stored = {
            "A": (m, k) if product.a_major == "K" else (k, m),
            "B": (n, k) if product.b_major == "K" else (k, n),
        }
        widths = {"A": product.a.bytes, "B": product.b.bytes}
        return tuple(name for name, (rows, length) in stored.items() if rows > 1 and length * widths[name] % TMA_BYTES)

    def data(self) -> dict[str, Any]:
        """As a dict for JSON."""
        return {
            "problem": self.problem.describe(),
            "gpu": self.gpu.name,
            "source": self.choice.source,
            "config": self.choice.config.name(),
            "estimate": _data(self.choice.estimate, self.problem),
            "per_tile": self.per_tile,
            "copied": list(self.copied),
            "candidates": self.candidates,
            "ranking": [{"config": config.name(), **_data(each, self.problem)} for config, each in self.others],
        }

    def text(self) -> str:
        """A few lines, followed by a table of the best candidates."""
        problem, choice, estimate = self.problem, self.choice, self.choice.estimate
        why = {
            "pinned": "the call names it",
            "tuned": "timed on this GPU before",
            "shipped": "timed by the package's authors on this model of GPU",
            "model": f"the first of {self.candidates} candidates; `warploom tune` times them",
        }[choice.source]
        order = (
            "those first that measurements on an H200 prefer, then the fastest" if self.preferred else "fastest first"
        )
        lines = [
            f"{problem.describe()} on {self.gpu.name}",
            f"  chosen   {choice.config.name()}   ({choice.source}: {why})",
            f"  kernel   {family_of(choice.config, problem).describe(choice.config)}",
            f"  model    {estimate.time_us:.1f} us, {_rate(estimate, problem)}, bound by {estimate.bound}; "
            f"{_waves(estimate)}, {estimate.wave_efficiency:.0%} of their slots used; "
            f"{estimate.fill:.0f} bytes per cycle into each SM; epilogues take {estimate.exposed:.1%}",
            f"  assumed  {_assumed(estimate)}",
            *([f"  a tile   {_tile(self.per_tile)}"] if self.per_tile else []),
            *([f"  copied   {_copies(self.copied)}"] if self.copied else []),
            "",
            f"  {order}",
            "  slots: used share of the waves; fill: bytes per cycle into each SM; tail: share of the time in which",
            "  only epilogues run; fitted: factor on the arithmetic time, from sweeps; 1 if there is none",
            f"  {'us':>9}{'waves':>8}{'slots':>8}{'fill':>7}{'tail':>8}{'fitted':>8}  {'bound by':14}configuration",
        ]
        for number, (config, each) in enumerate(self.others):
            if number == SHOWN:
                lines.append("  …")
            mark = ", chosen" if config == choice.config else ""
            lines.append(
                f"  {each.time_us:9.1f}{each.waves:8g}{each.wave_efficiency:8.0%}{each.fill:7.0f}"
                f"{each.exposed:8.1%}{each.correction:8.2f}  {each.bound:14}{config.name()}{mark}"
            )
        return "\n".join(lines)


def explain(problem: Problem, gpu: Gpu = EMULATED, config: Any = None) -> Explanation:
    """What `matmul` would run for a problem on a GPU, and why.

    `config`: as in matmul; shows a pinned configuration among the others. Raises ArgumentError if there is no kernel.
    """
    order, choice = ranking(problem, gpu), choose(problem, gpu, config)
    order = [(choice.config if kept(each, problem) == choice.config else each, guess) for each, guess in order]
    shown = order[:SHOWN]
    if all(each != choice.config for each, _ in shown):
        shown.append((choice.config, choice.estimate))
    corrected = is_corrected([each for each, _ in order], problem)
    first = {family_of(each, problem).goes_first(each, problem, gpu) for each, _ in order}
    return Explanation(problem, gpu, choice, tuple(shown), len(order), corrected, not corrected and len(first) > 1)


def _data(estimate: Estimate, problem: Problem) -> dict[str, Any]:
    return {
        "time_us": round(estimate.time_us, 2), "tflops": round(problem.flops / estimate.time_us / 1e6, 1),
        "waves": estimate.waves, "wave_efficiency": round(estimate.wave_efficiency, 4),
        "activity": round(estimate.activity, 4), "fill_bytes_per_cycle": round(estimate.fill, 1),
        "exposed": round(estimate.exposed, 4), "bound": estimate.bound, "correction": round(estimate.correction, 4),
    }  # fmt: skip


def _tile(costs: dict[str, int]) -> str:
    """The cost of a tile, in words."""
    kib = {name: f"{count / 1024:,.0f} KiB" for name, count in costs.items()}
    return (
        f"{costs['tcgen05']:,} MMAs issued; shared memory {kib['tma_load_bytes']} filled, "
        f"{kib['matrix_operand_bytes']} read by the tensor core; tensor memory "
        f"{kib['tensor_memory_product_bytes']} by MMAs, {kib['tensor_memory_load_bytes']} loaded"
    )


def _copies(names: tuple[str, ...]) -> str:
    """Which operands are copied, and how to avoid it."""
    padded = f"padded to rows of a multiple of {TMA_BYTES} bytes"
    return f"{' and '.join(names)}, at each call, unless {padded}; the model's time is without it"


def _waves(estimate: Estimate) -> str:
    of_groups = f", {estimate.of_groups}" if estimate.of_groups else ""
    return f"{estimate.waves:g} wave{'s' if estimate.waves != 1 else ''}{of_groups}"


def _assumed(estimate: Estimate) -> str:
    """Why the model's figure is below the roofline: what it assumes for the clock, or for memory."""
    if estimate.assumed:
        return estimate.assumed
    if estimate.bound == "memory":
        return f"{MEMORY / 1e6:.2f} TB/s, and time to start and finish; a roof uses only the data sheet's rate"
    return (
        f"a clock of {estimate.clock_mhz:.0f} MHz, which the power limit allows for this load; a roof is at the "
        "highest clock"
    )


def _rate(estimate: Estimate, problem: Problem) -> str:
    if estimate.bound == "memory":
        return f"{problem.bytes / estimate.time_us / 1e6:.2f} TB/s"
    return f"{problem.flops / estimate.time_us / 1e6:.0f} TFLOP/s"
