"""`bench`: our kernels against other libraries, on this GPU."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from .ignored import refuse_ignored
from .output import say, say_error, say_json, say_table
from .warm import INTERRUPTED

SUITE_NAMES = "square, llm, small-k, launch, decode, fp8, grouped, fused, overhead, attention, attention-decode, sample"
COUNT = 200
"""Number of products of a sample."""


def bench(
    suite: Annotated[str, typer.Option(help=f"Which problems: {SUITE_NAMES}.")] = "square",
    protocol: Annotated[str, typer.Option(help="alone, interleaved, burst, or several: alone,burst.")] = "",
    against: Annotated[str, typer.Option(help="Contenders, comma-separated; `none`: only ours.")] = "",
    config: Annotated[
        list[str] | None,
        typer.Option(
            help="Pin ours: rung:19, or a name as shown by `explain`; for attention fields, tile_n=96,stages=3; may be "
            "repeated."
        ),
    ] = None,
    shapes: Annotated[str, typer.Option(help="Other sizes: MxNxK,MxNxK; for attention BxHxSxD or BxHxSxDxG.")] = "",
    only: Annotated[
        str, typer.Option(help="Problems whose names contain these words: 'causal,bf16'; ';' means or: 'f16;page,16'.")
    ] = "",
    data: Annotated[str, typer.Option(help="normal, zeros or small-int.")] = "normal",
    seconds: Annotated[float, typer.Option(help="For each contender of a problem, under each protocol.")] = 2.0,
    launch: Annotated[str, typer.Option(help="How calls reach the GPU: graph or stream.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write an evidence file.")] = None,
    append: Annotated[bool, typer.Option("--append", help="Keep the rows of other runs in --out.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw a bar chart, and NAME-roofline.png next to it.")] = None,
    seed: Annotated[int, typer.Option(help="sample: seed of the draw.")] = 0,
    count: Annotated[int, typer.Option(help="sample: number of products.")] = COUNT,
    dtype: Annotated[str, typer.Option(help="sample: bf16, f16 or e4m3.")] = "bf16",
    scales: Annotated[str, typer.Option(help="sample: for e4m3, tensor, row or block128.")] = "",
    layouts: Annotated[
        str, typer.Option(help="sample: forward, input-gradient, weight-gradient, or several.")
    ] = "forward",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time our kernels and others, and check each result.

    All run in one process, under a named protocol.

    --out is updated after every problem. The suite `sample` continues where --out ends.

    Example: warploom bench --suite square --protocol alone --against cublas,triton --plot square.png

    Example: warploom bench --suite attention --only "128,bf16,normal" --out attention.json

    Example: warploom bench --suite sample --seed 7 --count 200 --out sample-bf16.json
    """
    from ..lab import bench as lab
    from ..lab import evidence, sample
    from ..lab.gpu_stage import GpuStage
    from ..lab.plans import plan as planned
    from ..runtime.benchmark.power import PowerMeter, driver_version
    from ..runtime.benchmark.watchdog import Watchdog
    from ..runtime.progress import Progress

    drawn = suite == sample.NAME
    if drawn:
        refuse_ignored("a sample draws its sizes; --suite square takes others", {"--shapes": (shapes, "")})
    else:
        of_sample = {"--seed": (seed, 0), "--count": (count, COUNT), "--dtype": (dtype, "bf16"),
                     "--scales": (scales, ""), "--layouts": (layouts, "forward")}  # fmt: skip
        refuse_ignored("only --suite sample draws its products", of_sample)
    which = sample.suite(seed, count, dtype, scales, layouts.split(",")) if drawn else suite
    plan = planned(which, protocol, against, config or (), shapes, data, seconds, launch, only)
    evidence.check_place(out)
    evidence.check_place(plot, picture=True)
    before = evidence.read(out) if (append or drawn) and out is not None and out.exists() else None
    if drawn:
        plan = sample.remaining(plan, seed, before["rows"] if before is not None else ())
    stage = GpuStage()
    meter = PowerMeter(stage.uuid)
    running: lab.Bench

    def finish(results: lab.Results, ended: str = "") -> dict[str, Any]:
        head: dict[str, Any] = evidence.header(plan.suite.file, gpu=stage.name, driver=driver_version())
        head |= {**meter.header(), "data": plan.data, "seconds": plan.seconds, "missing": results.missing,
                 "failed": results.failed, "summary": results.summary()}  # fmt: skip
        if ended:
            head["ended"] = ended
        whole = {**head, "rows": results.rows} if before is None else evidence.added(before, head, results.rows)
        if drawn:
            whole["sample"] = sample.summary(whole["rows"])
        if out is not None:
            evidence.write(out, {key: value for key, value in whole.items() if key != "rows"}, whole["rows"])
        return whole

    def hang(who: str) -> None:
        ended = f"no answer from the GPU for a while: {who}"
        print(f"warploom bench: {ended}; earlier results are kept", file=sys.stderr, flush=True)
        whole = finish(running.results, ended)
        _show(whole, running.results.rows, as_json, out)
        sys.stdout.flush()

    try:
        with Watchdog(hang) as watchdog, meter, stage:
            with Progress(total=plan.steps, every_s=None if as_json else 0.0) as progress:
                keep = (lambda: finish(running.results)) if out is not None else (lambda: None)
                running = lab.Bench(plan, stage, meter, watchdog, progress.say, progress.step, keep)
                results = running.run()
    except KeyboardInterrupt:
        kept = "nothing was written; --out FILE.json keeps what is finished"
        if out is not None:
            kept = f"finished problems are in {out}" + ", and the same command continues from there" * drawn
        typer.echo(f"interrupted: {kept}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    whole = finish(results)
    _show(whole, results.rows, as_json, out)
    if plot is not None and results.rows:
        _draw(whole, results.rows, plot)
    if not whole["rows"]:
        raise typer.Exit(1)


def _show(whole: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], as_json: bool, out: Path | None) -> None:
    from ..lab.sample import lines as sample_lines

    if as_json:
        say_json(whole)
        return
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        say_table(table(whole, [row for row in rows if row["protocol"] == protocol], protocol), "config")
    for each in whole["summary"]:
        say(
            f"  {each['provider']}, {each['problems']}, {each['protocol']}, {each['launch']}: {each['geomean']:.3f} of "
            f"{each['against']} over {each['count']} problems, minimum {each['min']:.3f}"
        )
    for found in whole.get("sample", ()):
        for line in sample_lines(found):
            say(line)
    if out is not None:
        say(f"wrote {out}")
    else:
        say("nothing was written; use --out FILE.json to keep the results as evidence")


def table(whole: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], protocol: str) -> Table:
    """The rows of one protocol, as a table."""
    made = Table(title=f"{whole['suite']} on {whole['gpu']}, {protocol}", title_justify="left", box=None)
    for name in ("problem", "contender", "config", "launch"):
        made.add_column(name, no_wrap=True)
    bases = list(dict.fromkeys(other for row in rows for other in row["ratio_to"]))
    bandwidth = any("tb_per_s" in row for row in rows)
    rates = ("TFLOP/s", "TB/s") if bandwidth else ("TFLOP/s",)
    for name in ("us", *rates, *(f"of {base}" for base in bases), "W", "error"):
        made.add_column(name, justify="right", no_wrap=True)
    last = None
    for row in rows:
        shape = name_of(row)
        cells = [f"{row['ratio_to'][base]:.3f}" if base in row["ratio_to"] else "" for base in bases]
        made.add_row(
            "" if shape == last else shape, row["provider"], row.get("config", ""), row.get("launch", ""),
            f"{row['us']['median']:.1f}", f"{row['tflops']['median']:.1f}" if "tflops" in row else "",
            *([f"{row['tb_per_s']:.2f}"] if bandwidth else []), *cells,
            f"{row['power_w']:.0f}" if "power_w" in row else "", f"{row['relative_error']:.1e}",
        )  # fmt: skip
        last = shape
    return made


def name_of(row: Mapping[str, Any]) -> str:
    """A row's problem: the sizes of a product, or the name of an attention."""
    if "case" in row:
        return str(row["case"])
    return f"{row['m']}x{row['n']}x{row['k']} {row['dtype']} {row.get('kind', '')} {row.get('scales', '')}".strip()


def _draw(whole: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], plot: Path) -> None:
    from ..lab import charts

    try:
        protocol = rows[0]["protocol"]
        chosen = [row for row in rows if row["protocol"] == protocol and "tflops" in row]
        if chosen:
            title = f"{whole['suite']}, {whole['gpu']}, {protocol}"
            charts.bars(chosen, plot, title)
            charts.roofline(chosen, plot.with_name(plot.stem + "-roofline.png"), title)
    except charts.ChartError as error:
        say_error(error)
