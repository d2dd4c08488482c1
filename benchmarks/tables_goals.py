"""The table of goals for the choice and speed of products: what was asked, and what the evidence files have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.tables_rows import Result, Row, table
from warploom.lab.bench import geomean
from warploom.lab.sample import LOSS, ROWS

MOST_ROWS = 1 << 20
"""The rows of A up to which the evidence of the fit has a row for all products of a card."""
BY_ROWS = {"1-32": 1.14, "33-128": 1.13, "129-512": 1.10, "above 512": 1.045}


@dataclass(frozen=True)
class Goal:
    """What is asked of a figure, and the figures measured, one for each run. at_most: the bound is an upper one."""

    what: str
    bound: float
    figures: Sequence[float]
    at_most: bool = False
    percent: bool = False

    @property
    def cells(self) -> list[str]:
        """Its line of the table; a figure that misses the bound is marked."""
        sign = "at most" if self.at_most else "at least"
        return [self.what, f"{sign} {self._text(self.bound)}", ", ".join(map(self._marked, self.figures))]

    def _text(self, value: float) -> str:
        return f"{value:.1%}" if self.percent else f"{value:.3f}"

    def _marked(self, value: float) -> str:
        missed = value > self.bound if self.at_most else value < self.bound
        return self._text(value) + " **missed**" * missed


def ratios(results: Iterable[Result], other: str, keep: Callable[[Row], bool] = lambda row: True) -> list[float]:
    """Our ratios to a contender."""
    rows = [row for result in results for row in result["rows"] if row["provider"] == "warploom" and keep(row)]
    return [row["ratio_to"][other] for row in rows if other in row["ratio_to"]]


def of_samples(bf16: Sequence[Result], tensor: Sequence[Result], row: Sequence[Result]) -> list[Goal]:
    """The goals of products drawn at random."""
    drawn, bands = ratios(bf16, "cublas"), []
    for name, bound in BY_ROWS.items():
        least, most = ROWS[name]
        band = ratios(bf16, "cublas", lambda row, least=least, most=most: least <= row["m"] <= most)  # type: ignore[misc]
        rows = name if "above" in name else name.replace("-", " to ")
        bands.append(Goal(f"bf16 samples, {rows} rows, geometric mean of torch.mm", bound, [geomean(band)]))
    found = [
        Goal(f"bf16 samples ({len(drawn)}), geometric mean of torch.mm", 1.09, [geomean(drawn)]),
        Goal("bf16 samples, least of each", 0.97, [min(ratios([each], "cublas")) for each in bf16]),
        Goal(f"bf16 samples, share below {LOSS}", 0.03, [sum(each < LOSS for each in drawn) / len(drawn)], True, True),
        *bands,
    ]
    for name, results, other, bound in (
        ("tensor", tensor, "scaled-mm", 1.08), ("row", row, "scaled-mm-row", 1.18),
    ):  # fmt: skip
        found.append(Goal(f"e4m3 samples, {name} scales, geometric mean", bound, [geomean(ratios(results, other))]))
        found.append(Goal("the same, least", 0.97, [min(ratios(results, other))]))
    return found


def of_suites(few: Result, llm: Sequence[Result], short: Sequence[Result], square: Result) -> list[Goal]:
    """The goals of chosen shapes."""
    alone: Callable[[Row], bool] = lambda row: row["protocol"] == "alone"  # noqa: E731
    of_llm = [ratios([each], "cublas", alone) for each in llm]
    cube = ratios([square], "cublas", lambda row: alone(row) and row["m"] == row["n"] == row["k"] == 8192)
    return [
        Goal("51 shapes of 1 to 512 rows, geometric mean of torch.mm", 1.14, [geomean(ratios([few], "cublas"))]),
        Goal("shapes of language models alone, geometric mean of torch.mm", 1.02, [geomean(each) for each in of_llm]),
        Goal("the same, least", 0.985, [min(each) for each in of_llm]),
        Goal("short K alone, geometric mean of cublaslt-best", 1.0,
             [geomean(ratios([each], "cublaslt-best", alone)) for each in short]),
        Goal("8192 x 8192 x 8192 alone, of torch.mm", 1.05, cube),
    ]  # fmt: skip


def of_models(models: Sequence[Result], compiled: Result) -> list[Goal]:
    """The goals of whole models of 8 billion parameters; `compiled` is two layers of the first."""
    names = ", ".join(model["model"] for model in models)

    def times(result: Result, phase: str, theirs: str, ours: str, least: int = 0) -> float:
        rows = [row for row in result["rows"] if row["phase"] == phase and row["rows"] >= least]
        return float(min(row["ms"][theirs]["median"] / row["ms"][ours]["median"] for row in rows))

    return [
        Goal(f"whole models, {names}, prefill, least of eager torch", 1.05,
             [times(model, "prefill", "torch eager", "warploom eager") for model in models]),
        Goal("the same as CUDA graphs", 1.05,
             [times(model, "prefill", "torch graph", "warploom graph") for model in models]),
        Goal(f"two layers of {compiled['model']}, prefill, of torch.compile with max-autotune", 1.02,
             [times(compiled, "prefill", "torch compiled", "warploom eager")]),
        Goal("the whole models, decoding 16 to 256 sequences as CUDA graphs, least", 1.08,
             [times(model, "decode", "torch graph", "warploom graph", 16) for model in models]),
    ]  # fmt: skip


def of_choice(choice: Mapping[str, Any], models: Mapping[str, Any], calls: Sequence[Result]) -> list[Goal]:
    """The goals of the choice on layers and on models left out of its fit, and of the cost of a call."""
    cards = [row for row in choice["rows"] if row["layouts"] == "tn" and row["rows"] == f"1-{MOST_ROWS}"]
    names = ", ".join(row["gpu"].split()[1] for row in cards)
    found = []
    for name, parts in ((f"layers left out, {names}", cards), ("models left out, both", [models["left_out"]])):
        found.append(Goal(f"regret on {name}, mean", 0.02, [part["regret_mean"] for part in parts], True, True))
        found.append(Goal("the same, 99th percentile", 0.08, [part["regret_p99"] for part in parts], True, True))
    costs = [1 / ratios([each], "cublas", lambda row: row["dtype"] == "bf16")[0] for each in calls]
    return [*found, Goal("host time of a bf16 call, of torch.mm(out=)", 0.38, costs, True)]


def goals(*results: Result, runs: Sequence[int]) -> list[str]:
    """The table. runs: how many files there are of each argument of `of_samples`, `of_suites`, `of_models` and
    `of_choice`, in order; an argument that is one file has one."""
    given = iter(results)
    parts = [[next(given) for _ in range(count)] for count in runs]
    (bf16, tensor, row), (few, llm, short, square), (model, compiled), (choice, models, calls) = (
        parts[:3], parts[3:7], parts[7:9], parts[9:],
    )  # fmt: skip
    found = [
        *of_samples(bf16, tensor, row), *of_suites(few[0], llm, short, square[0]), *of_models(model, compiled[0]),
        *of_choice(choice[0], models[0], calls),
    ]  # fmt: skip
    return table(["goal", "asked", "measured"], [goal.cells for goal in found])
