"""`explain`: what limits a product, and what the library would run for it. Computed, not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..errors import ArgumentError
from .output import say, say_json, say_table, table
from .product import ProblemOptions, described, product_problem

if TYPE_CHECKING:
    from ..lab.explanation import Explained
    from ..operators import Problem


@described
def explain(
    given: ProblemOptions,
    machine: Annotated[str, typer.Option(help="B200, H200, H100 or A100.")] = "H200",
    config: Annotated[str, typer.Option(help="A configuration instead of the library's choice.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain a product or attention: roofs, waves, kernel chosen.

    Arithmetic intensity, tiles, occupancy, L2 traffic, and the configurations that the library compared.

    Example: warploom explain 4096 14336 4096 --bias --activation silu

    Example: warploom explain 4096 4096 7168 --groups 64

    Example: warploom explain --attention 16x32x1x128 --kv-heads 8 --keys 8192
    """
    if given.attention:
        _attention(given, machine, as_json)
        return
    from ..lab import explanation

    m, n, k = _three(given.sizes)
    found = explanation.explain(product_problem(given, m, n, k), machine, config)
    if as_json:
        say_json(found.data())
        return
    problem, roof, chosen = found.problem, found.roof, found.chosen
    side = "above" if found.bound == "tensor cores" else "below"
    table(
        [
            ("work", f"{_short(problem.flops / 1e9)} GFLOP, {_short(problem.bytes / 1e6)} MB of operands and results"),
            ("intensity", f"{found.intensity:,.0f} FLOP per byte, {side} the ridge point of {roof.ridge:.0f}: "
                          f"bound by {found.bound}"),
            ("roofs", f"{roof.peak / 1e12:,.0f} TFLOP/s at {roof.clock / 1e6:.0f} MHz, "
                      f"{roof.bandwidth / 1e12:.1f} TB/s: at least {_short(found.least_us)} us"),
            ("configuration", found.config.name() + ", the library's choice (below)" * (not config)),
            ("its waves", f"{chosen.rows} x {chosen.columns} = {chosen.tiles} tiles{_uneven(problem)}, "
                          f"{chosen.waves:.2f} waves of {chosen.at_a_time}; "
                          f"{chosen.tile_efficiency:.1%} of the tiles' area is inside D, "
                          f"{chosen.wave_efficiency:.1%} of the waves are filled"),
            ("its occupancy", _occupancy(found)),
        ],
        title=f"{problem.describe()} on {found.machine}",
    )  # fmt: skip
    say()
    say_table(_tiles(found))
    say("  Tile use: share of the tiles' area inside D. Wave use: share of the waves' slots that have a tile.")
    say("  B/KFMA: bytes of A and B that a tile loads for each KFMA, which is 1000 multiply-adds. *: the choice.")
    if not problem.groups:
        say()
        say_table(_traffic(found))
    if found.library:
        say()
        say(found.library)


def _three(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of a product. Raises ArgumentError."""
    if len(sizes) not in (0, 3):
        raise ArgumentError("a product has three sizes", expected="M N K, or none of them for 8192 8192 8192",
                            got=" ".join(map(str, sizes)))  # fmt: skip
    if sizes and min(sizes) < 1:
        raise ArgumentError("sizes are positive", expected="M N K", got=" ".join(map(str, sizes)))
    return sizes or (8192, 8192, 8192)


def _attention(given: ProblemOptions, machine: str, as_json: bool) -> None:
    from ..lab.attention_explanation import explain_attention, problem_of

    found = explain_attention(problem_of(given.attention, given.kv_heads, given.keys, given.causal), machine)
    if as_json:
        say_json(found.data())
        return
    problem = found.problem
    title = f"attention, {problem.batch} x {problem.heads} heads x {problem.queries} queries x {problem.dim}"
    table(found.rows(), title=f"{title}, {problem.keys} keys of {problem.kv_heads} heads on {found.machine}")


def _short(value: float) -> str:
    """One decimal place, or two digits below one."""
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def _occupancy(found: Explained) -> str:
    fits, config = found.occupancy, found.config
    count = "s" if fits.resident != 1 else ""
    registers = f"{found.registers} registers" if found.registers else "registers unknown"
    return (
        f"{fits.resident} CTA{count} on an SM, limited by {fits.limit}: {config.threads} threads, {registers} "
        f"(up to {fits.registers} fit), shared memory (up to {fits.shared}), warps (up to {fits.warps})"
    )


def _uneven(problem: Problem) -> str:
    """Which sizes of groups the tiles are of."""
    return " of uneven groups" if problem.groups else ""


def _tiles(found: Explained) -> Table:
    """Tile and wave quantisation of the usual tiles."""
    made = Table(title=f"Tiles and waves{_uneven(found.problem)}", title_justify="left", box=None)
    made.add_column("tile", no_wrap=True)
    for name in ("tiles", "waves", "tile use", "wave use", "both", "B/KFMA"):
        made.add_column(name, justify="right", no_wrap=True)
    for (tile_m, tile_n), each in found.tiles.items():
        mark = " *" if (tile_m, tile_n) == found.config.output_tile else ""
        fill = (tile_m + tile_n) * found.problem.product.a.bytes * 1000 / (tile_m * tile_n)
        made.add_row(f"{tile_m} x {tile_n}{mark}", f"{each.tiles:,}", f"{each.waves:.2f}",
                     f"{each.tile_efficiency:.1%}", f"{each.wave_efficiency:.1%}", f"{each.efficiency:.1%}",
                     f"{fill:.1f}")  # fmt: skip
    return made


def _traffic(found: Explained) -> Table:
    """A and B from HBM by raster order."""
    tile = " x ".join(map(str, found.config.output_tile))
    made = Table(title=f"A and B from HBM by raster order, tiles of {tile}", title_justify="left", box=None)
    made.add_column("order", no_wrap=True)
    for name in ("GB", "times each once", "TB/s at the roof"):
        made.add_column(name, justify="right", no_wrap=True)
    problem = found.problem
    once = (problem.m + problem.n) * problem.k * problem.product.a.bytes
    if not found.traffic:
        made.add_row("not simulated: too many tiles", "", "", "")
    for name, count in found.traffic.items():
        made.add_row(name, f"{count / 1e9:.3f}", f"{count / once:.2f}", f"{count / found.least_us / 1e6:.2f}")
    return made
