"""Tables of products with few rows (decode): launch methods, and the crossover with the tiles of large products.

READ_CEILING is the rate of a kernel that only reads an H200's memory. Targets are shares of it: at M up to 16 and N up
to 8192, 90 % for bf16 and 87 % for fp8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.tables_rows import Result, Row, mark, mean_and_least, named, peer_of, table
from warploom.lab.work import GemmWork

READ_CEILING = 4.71e12
"""Bytes per second."""
TARGETS = {"bf16": 0.90, "e4m3": 0.87}
WAYS = {
    "graph": ("warploom", "graph"),
    "graph, constant weights": ("warploom:constant-weights", "graph"),
    "graph, no dependent launch": ("warploom:no-pdl", "graph"),
    "eager": ("warploom", "stream"),
    "eager, constant weights": ("warploom:constant-weights", "stream"),
}
"""How a product is called: provider and launch of its rows. Eager calls are calls from Python, one at a time."""


@dataclass(frozen=True)
class Few:
    """One product, by the ways it was called.

    Attributes:
        title: sizes, types and scales.
        kind: types and scales.
        rows: our rows, by the names of WAYS.
    """

    title: str
    kind: str
    rows: dict[str, Row]

    @property
    def first(self) -> Row:
        return next(iter(self.rows.values()))

    @property
    def peer(self) -> str:
        return peer_of(self.first)

    @property
    def aimed_at(self) -> bool:
        """True if the project has a target for its share of the read ceiling."""
        return self.first["m"] <= 16 and self.first["n"] <= 8192

    def ratio(self, way: str) -> float | None:
        """The peer's time over ours, both called that way."""
        return self.rows[way]["ratio_to"].get(self.peer) if way in self.rows else None

    def share(self, way: str) -> float | None:
        """Share of the read ceiling: bytes of A, B and D, each once, over the time."""
        if way not in self.rows:
            return None
        row = self.rows[way]
        problem = GemmWork(row["m"], row["n"], row["k"], row["dtype"], row["out"])
        return problem.bytes / (row["us"]["median"] * 1e-6) / READ_CEILING


def products_of(result: Result) -> list[Few]:
    """The products of a file, in its order."""
    name = named(result["rows"])
    ways = {both: way for way, both in WAYS.items()}
    found: dict[str, Few] = {}
    for row in result["rows"]:
        way = ways.get((row["provider"], row["launch"]))
        if way is not None:
            found.setdefault(
                name(row), Few(name(row), " ".join(filter(None, (row["dtype"], row.get("scales")))), {})
            ).rows[way] = row
    return list(found.values())


def by_kind(products: list[Few]) -> dict[str, list[Few]]:
    """Products grouped by types and scales."""
    groups: dict[str, list[Few]] = {}
    for product in products:
        groups.setdefault(product.kind, []).append(product)
    return groups


SHARES = ("graph", "graph, constant weights")


def decode(result: Result) -> list[str]:
    """A line for each product, and mean and minimum of each kind; for docs/measured-facts.md."""
    lines: list[list[str]] = []
    for kind, products in by_kind(products_of(result)).items():
        for product in products:
            shares = [share_of(product, way) for way in SHARES]
            ratios = [product.ratio(way) for way in WAYS]
            us = f"{product.rows['graph']['us']['median']:.1f}" if "graph" in product.rows else ""
            lines.append([product.title, product.first["config"], us, *shares, product.peer])
            lines[-1] += ["" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
        for title, *cells in mean_and_least(
            kind, [present(product.ratio(way) for product in products) for way in WAYS]
        ):
            lines.append([title, "", "", "", "", products[0].peer, *cells])
    head = [
        "M x N x K",
        "kernel",
        "us",
        f"of {READ_CEILING / 1e12} TB/s",
        "the same, constant weights",
        "compared with",
        *WAYS,
    ]
    return table(head, lines)


def decode_summary(result: Result) -> list[str]:
    """Mean and minimum of each kind, by all ways, and of the shares that have targets."""
    lines: list[list[str]] = []
    for kind, products in by_kind(products_of(result)).items():
        stale = mark(row for product in products for row in product.rows.values())
        columns = [present(product.ratio(way) for product in products) for way in WAYS]
        aimed = [product for product in products if product.aimed_at]
        columns += [present(product.share(way) for product in aimed) for way in SHARES]
        lines += mean_and_least(f"{kind}, of {products[0].peer}{stale}", columns)
    least = f"of {READ_CEILING / 1e12} TB/s, M <= 16, N <= 8192"
    return table(["ratios", *WAYS, least, "the same, constant weights"], lines)


def share_of(product: Few, way: str) -> str:
    """A share of the read ceiling in words, marked if it misses its target."""
    share = product.share(way)
    if share is None:
        return ""
    missed = product.aimed_at and share < TARGETS[product.first["dtype"]]
    return f"{share:.1%}" + (" **missed**" if missed else "")


def present(values: Iterable[float | None]) -> list[float]:
    """Those that are there."""
    return [value for value in values if value is not None]


def few_rows(result: Result) -> list[str]:
    """For each product the small-M kernel and the best tile of a large kernel, without and with constant weights."""
    lines = ["| M x N x K | small-M kernel, of cublas | constant weights | tile of D | of cublas | constant weights |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    ours = [row for row in result["rows"] if row["provider"].startswith("warploom")]
    for sizes in sorted({(row["n"], row["k"], -row["m"]) for row in ours if row["m"] <= 128}):
        here = [row for row in ours if (row["n"], row["k"], -row["m"]) == sizes]
        best: dict[tuple[bool, bool], Row] = {}
        for row in here:
            kind = row["config"].startswith("n"), "_cw" in row["config"]
            if kind not in best or row["ratio_to"]["cublas"] > best[kind]["ratio_to"]["cublas"]:
                best[kind] = row
        cells = [" x ".join(str(here[0][key]) for key in "mnk")]
        for small in (True, False):
            if not small:
                large = best.get((False, False)) or best.get((False, True))
                cells.append(
                    "" if large is None else large["config"].split("_")[1].rpartition("x")[0].replace("x", " x ")
                )
            for promise in (False, True):
                row = best.get((small, promise))
                cells.append("" if row is None else f"{row['ratio_to']['cublas']:.3f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines
