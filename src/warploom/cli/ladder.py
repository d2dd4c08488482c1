"""`ladder`: every rung on this machine, from the naive loop to the fastest kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ..errors import ArgumentError
from .output import console, say, say_error, say_json, say_table


def ladder(
    size: Annotated[
        int | None, typer.Option(help="M = N = K; 8192 on a GPU, a small one in the emulator.", show_default=False)
    ] = None,
    rungs: Annotated[str, typer.Option(help="Numbers, ranges and names: 1,8-12,ping_pong. All by default.")] = "",
    emulate: Annotated[bool, typer.Option("--emulate", help="Use the emulator's counters, even with a GPU.")] = False,
    seconds: Annotated[float, typer.Option(help="For each rung and for cuBLAS, each alone.")] = 2.0,
    data: Annotated[str, typer.Option(help="normal, zeros or small-int.")] = "normal",
    out: Annotated[Path | None, typer.Option(help="Write an evidence file.")] = None,
    append: Annotated[bool, typer.Option("--append", help="Keep the rows of other rungs in --out.")] = False,
    measured: Annotated[
        Path | None, typer.Option(help="An evidence file of ladder: predict its rungs at its sizes, next to its times.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a bar for each rung into a PNG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what each rung of the ladder gains.

    In TFLOP/s on a GPU, in bytes and barriers in the emulator.

    Example: warploom ladder --rungs 8-12 --plot ladder.png
    """
    from ..driver import library
    from ..lab import evidence, ladder_runner, operands
    from ..runtime.benchmark.power import PowerMeter, driver_version
    from ..runtime.progress import Progress

    chosen = ladder_runner.chosen(rungs)
    if size is not None and size < 1:
        raise ArgumentError("the size of the product must be positive", expected="--size 4096", got=size)
    if data not in operands.DATA:
        raise ArgumentError(
            f"unknown data {data!r}", expected=", ".join(operands.DATA), got=repr(data), code="unknown-name"
        )
    evidence.check_place(out)
    evidence.check_place(plot, picture=True)
    if measured is not None:
        _compare(evidence.read(measured)["rows"], chosen, as_json)
        return
    on_gpu = library.available() and not emulate
    head: dict[str, Any] = {}
    if on_gpu:
        device = library.load().device(0)
        chosen, left_out = ladder_runner.runnable(chosen, device.arch, device.name, asked=bool(rungs.strip()))
        if left_out:
            numbers = ", ".join(str(rung.number) for rung in left_out)
            console(stderr=True).print(f"{device.name} ({device.arch}) cannot run rungs {numbers}; they are skipped")
        runs = ladder_runner.on_gpu(chosen, size or ladder_runner.GPU_SIZE, seconds, data)
        gpu = device.name
    else:
        runs, gpu = ladder_runner.emulated(chosen, size), "emulator"
    rows: list[dict[str, Any]] = []
    meter = PowerMeter()
    progress = Progress(total=len(chosen), every_s=None if as_json else 0.0)
    with meter if on_gpu else nullcontext(), progress:
        for rung in chosen:
            progress.step(f"rung {rung.number}: {rung.name}")
            found = next(runs)
            rows += found
            progress.say(_line(found[0]))
    rows = _gains(rows, on_gpu)
    head = evidence.header("ladder", gpu=gpu, driver=driver_version() if on_gpu else "")
    head |= {**meter.header(), "data": data, "seconds": seconds}
    kept = [row for row in rows if "failed" not in row]
    head["failed"] = [{"rung": row["rung"], "reason": row["failed"]} for row in rows if "failed" in row]
    whole: dict[str, Any] = {**head, "rows": kept}
    if out is not None:
        if append and out.exists():
            whole = evidence.added(evidence.read(out), head, kept)
        evidence.write(out, {key: value for key, value in whole.items() if key != "rows"}, whole["rows"])
    if as_json:
        say_json(whole)
    else:
        say_table(speeds(rows, gpu) if on_gpu else counts(rows), "idea")
        for row in rows:
            if "failed" in row:
                say(f"  rung {row['rung']} {row['kernel']} failed: {row['failed']}")
        if not on_gpu:
            _say_findings(rows)
            say("  KFMA: 1000 multiply-adds. Barriers: waits and arrivals for each k-tile of each output tile.")
            say("  Predicted: by the model of an H200, at this size, which fills few SMs; --size sets another.")
            if not emulate:
                say("  No GPU was used, so there is no speed; `warploom explain` estimates what these counters cost.")
        if out is not None:
            say(f"wrote {out}")
    if plot is not None and kept:
        _draw(kept, plot, on_gpu, gpu)
    if not kept:
        raise typer.Exit(1)


def _compare(measured: Sequence[Mapping[str, Any]], chosen: Sequence[Any], as_json: bool) -> None:
    """Predicted and measured times, rung by rung."""
    from ..lab import ladder_runner

    rows = []
    for row in ladder_runner.beside(measured, chosen):
        rows.append(row)
        if not as_json:
            told = row["predicted"]
            say(f"{row['rung']:2} {row['kernel']:24} {row['measured_us']:12.1f} us measured, "
                f"{told['us']:12.1f} predicted ({row['error']:+.1%}) at {told['clock_mhz']:.0f} MHz; {told['bound']}"
                )  # fmt: skip
    if as_json:
        say_json(rows)


def _line(row: Mapping[str, Any]) -> str:
    name = f"{row['rung']:2} {row['kernel']:24}"
    if "failed" in row:
        return f"{name} failed: {row['failed']}"
    if "tflops" in row:
        return f"{name} {row['tflops']['median']:8.2f} TFLOP/s, {row['ratio_to']['cublas']:.3f} of cuBLAS"
    return f"{name} {row['global_per_kfma']:9.1f} B global, {row['shared_per_kfma']:8.1f} B shared for each KFMA" + (
        f"; {found_words(row)}" if row["findings"] else ""
    )


def _gains(rows: Sequence[Mapping[str, Any]], on_gpu: bool) -> list[dict[str, Any]]:
    """The rows with the gain of each rung over the previous one, by protocol."""
    from ..lab import ladder_runner

    if not on_gpu:
        return [dict(row) for row in rows]
    found: dict[int, dict[str, Any]] = {}
    for protocol in dict.fromkeys(row.get("protocol") for row in rows):
        at = [
            number for number, row in enumerate(rows)
            if row.get("protocol") == protocol and row["provider"] == "warploom"
        ]  # fmt: skip
        found |= dict(zip(at, ladder_runner.with_gains([rows[number] for number in at], "tflops"), strict=True))
    return [found.get(number, dict(row)) for number, row in enumerate(rows)]


def speeds(rows: Sequence[Mapping[str, Any]], gpu: str) -> Table:
    """The ladder on a GPU: ours under the protocol alone."""
    ours = [row for row in rows if row["provider"] == "warploom" and row.get("protocol") == "alone"]
    title = f"The ladder on {gpu}"
    if ours:
        title += f", {ours[0]['m']} x {ours[0]['n']} x {ours[0]['k']}, each rung alone"
    made = Table(title=title, title_justify="left", box=None)
    for name in ("rung", "idea"):
        made.add_column(name, no_wrap=name == "rung")
    for name in ("TFLOP/s", "of cuBLAS", "of peak", "gain", "registers", "shared KiB", "W", "error", "seed"):
        made.add_column(name, justify="right", no_wrap=True)
    for row in ours:
        seed = row.get("seed")
        made.add_row(
            f"{row['rung']:2} {row['kernel'].partition('_')[2]}", row["idea"], f"{row['tflops']['median']:.1f}",
            f"{row['ratio_to']['cublas']:.3f}", f"{row['tensor_activity']:.0%}" if "tensor_activity" in row else "",
            f"{row['gain']:.2f}x" if "gain" in row else "", str(row["registers"]), f"{row['shared_bytes'] / 1024:.0f}",
            f"{row['power_w']:.0f}" if "power_w" in row else "", f"{row['relative_error']:.1e}",
            f"{seed['tflops']:g} ({seed['gpu']}, {seed['size']})" if seed else "",
        )  # fmt: skip
    return made


def counts(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The ladder in the emulator."""
    sizes = [f"{row['m']} x {row['n']} x {row['k']}" for row in rows]
    one = len(set(sizes)) == 1
    title = "The ladder in the emulator" + (f", {sizes[0]}" if one else "")
    made = Table(title=title, title_justify="left", box=None)
    for name in ("rung", "idea"):
        made.add_column(name, no_wrap=name == "rung")
    for name in (
        *([] if one else ["M x N x K"]),
        "global B/KFMA",
        "shared B/KFMA",
        "conflicts",
        "barriers",
        "tensor",
        "instr/KFMA",
        "predicted us",
        "error",
        "findings",
    ):
        made.add_column(name, justify="right", no_wrap=True)
    for row, size in zip(rows, sizes, strict=True):
        barriers = row["barriers_per_k_tile"]
        tensor = f"{row['tensor_instructions']} {row['tensor_instruction']}" if row["tensor_instruction"] else ""
        made.add_row(
            f"{row['rung']:2} {row['kernel'].partition('_')[2]}", row["idea"], *([] if one else [size]),
            f"{row['global_per_kfma']:,.1f}",
            f"{row['shared_per_kfma']:,.1f}", f"{row['bank_conflicts']:,}", "" if barriers is None else f"{barriers:g}",
            tensor, f"{row['instructions_per_kfma']:,.2f}", f"{row['predicted']['us']:,.1f}",
            f"{row['relative_error']:.1e}",
            found_words(row) or "none",
        )  # fmt: skip
    return made


def found_words(row: Mapping[str, Any]) -> str:
    """ "1 error, 2 warnings" for a rung, with performance findings as notes; "" if there are none."""
    counts = row["by_severity"]
    called = {"error": "error", "warning": "warning", "performance": "note"}
    return ", ".join(
        f"{counts[each]} {word}{'s' if counts[each] != 1 else ''}" for each, word in called.items() if counts[each]
    )


def _say_findings(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print which rules the rungs violate, and the command that shows where."""
    from ..kernels import ladder as rungs

    alike: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["findings"]:
            alike.setdefault(", ".join(row["rules"]), []).append(row)
    for rules, found in alike.items():
        numbers = ", ".join(str(row["rung"]) for row in found)
        say(f"  rung{'s' * (len(found) > 1)} {numbers}: {rules}; "
            f"to see where: run `warploom check {rungs.__name__}.{found[0]['kernel']}`")  # fmt: skip


def _draw(rows: Sequence[Mapping[str, Any]], plot: Path, on_gpu: bool, gpu: str) -> None:
    from ..lab import charts

    try:
        if on_gpu:
            ours = [row for row in rows if row["provider"] == "warploom" and row["protocol"] == "alone"]
            charts.steps(ours, plot, f"The ladder on {gpu}, {ours[0]['m']} cubed, each rung alone", "tflops", "TFLOP/s")
        else:
            charts.steps(
                rows, plot, "The ladder in the emulator", "global_per_kfma",
                "bytes from and to global memory for each 1000 multiply-adds (log)",
            )  # fmt: skip
    except charts.ChartError as error:
        say_error(error)
