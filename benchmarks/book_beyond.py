"""Tables of the book's chapters after the ladder: attention's steps, launches, scaling, several GPUs, steps down."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from warploom.lab import roofline, schedules

RESULTS = Path(__file__).resolve().parent / "results"
H200, H100 = RESULTS / "nvidia-h200", RESULTS / "nvidia-h100"
FOUR_GPUS = H100 / "tensor-parallel-4-defaults.json"
DOWN = (7, 8, 10, 11, 17, 18)
"""Rungs that are slower than the one below, with the lower rung."""
SAYS = {
    "one kernel": "one kernel, one consumer",
    "two consumers": "two consumers",
    "turns": "they take turns",
    "guarded softmax": "the first maximum kept",
    "next block early": "the next block begins early",
}

Table = Callable[[Iterable[str], Iterable[Iterable[object]]], list[str]]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of an evidence file."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return found


def attention_bytes(table: Table, heads: int = 16, length: int = 4096, wide: int = 128) -> list[str]:
    """Bytes of three separate products, and of one kernel, next to the time of the products."""
    roof = roofline.Roofline.of("H200")
    scores, rows = heads * length * length * 2, heads * length * wide * 2
    flop = 4 * heads * length * length * wide
    cells = []
    for name, moved in (("S = Q Kᵀ, softmax, P V: three kernels", 4 * scores + 4 * rows), ("one kernel", 4 * rows)):
        us = f"{moved / roof.bandwidth * 1e6:,.0f}", f"{flop / roof.peak * 1e6:,.0f}"
        cells.append([name, f"{moved / 1e6:,.0f}", *us])
    return table(["16 heads, 4096 x 4096, head dimension 128, bf16", "MB to and from HBM", "us at 4.8 TB/s",
                  "us of the products at the peak"], cells)  # fmt: skip


def attention_steps(table: Table) -> list[str]:
    """Five steps: predicted, and measured alone."""
    measured = {row["step"]: row["tflops"]["median"] for row in rows_of(H200 / "attention-steps.json")}
    cells = []
    for row in rows_of(RESULTS / "emulator" / "attention-steps.json"):
        found, told = measured[row["step"]], row["predicted_tflops"]
        cells.append([SAYS[row["step"]], found, told, f"{found / told:.2f}"])
    return table(["step", "TFLOP/s, measured", "predicted", "measured / predicted"], cells)


def attention_measured(table: Table) -> list[str]:
    """Our attention next to cuDNN's, alone."""
    alone = [row for row in rows_of(H200 / "attention.json") if row["protocol"] == "alone"]
    found = {(row["case"], row["provider"]): row for row in alone}
    cells = []
    for case in (f"{wide} {length} {mask} bf16" for wide in (64, 128, 256) for mask in ("full", "causal")
                 for length in (4096, 16384)):  # fmt: skip
        ours, theirs = found[case, "warploom"], found[case, "cudnn"]
        cells.append([case, ours["tflops"]["median"], theirs["tflops"]["median"], f"{ours['ratio_to']['cudnn']:.2f}"])
    return table(["head dimension, length", "TFLOP/s", "cuDNN", "times as fast"], cells)


def attention_gradients(table: Table) -> list[str]:
    """The gradients' kernels next to cuDNN's."""
    rows = rows_of(H100 / "attention-backward.json")
    found = {(row["case"], row["provider"]): row for row in rows}
    cells = []
    for case in (f"{wide} {length} {mask} bf16" for wide in (64, 128) for mask in ("full", "causal")
                 for length in (4096, 16384)):  # fmt: skip
        ours, theirs = (found[case, provider]["tflops"]["median"] for provider in ("warploom", "cudnn"))
        cells.append([case, ours, theirs, f"{ours / theirs:.2f}"])
    return table(["head dimension, length", "TFLOP/s", "cuDNN", "times as fast"], cells)


def launches(table: Table) -> list[str]:
    """Microseconds from the start of one kernel to the start of the next."""
    found: dict[str, dict[str, float]] = {}
    for row in rows_of(H200 / "launch.json"):
        if row["provider"] == "warploom":
            shape = f"{row['m']} x {row['n']} x {row['k']}"
            found.setdefault(shape, {})[row["launch"]] = row["us"]["median"]
    ways = ("stream", "pdl", "graph", "pdl+graph")
    cells = [[shape, *(f"{times[way]:.2f}" for way in ways)] for shape, times in found.items()]
    return table(["M x N x K, bf16", "one by one, us", "dependent", "graph", "both"], cells)


def strong(table: Table) -> list[str]:
    """One product of 4096 cubed on a growing number of SMs."""
    cells = []
    for sms in (16, 66, 100, 132, 171, 200, 264, 528):
        found = roofline.waves(4096, 4096, 128, 256, sms)
        steps = -(-found.tiles // sms)
        cells.append([sms, f"{found.waves:.2f}", steps, f"{found.tiles / steps:.0f}", f"{found.efficiency:.0%}"])
    return table(["SMs", "waves", "rounded up", "times as fast as one SM", "of the SMs' time"], cells)


def sizes(table: Table) -> list[str]:
    """Measurements of large products."""
    found = {(row["m"], row["n"], row["k"]): row for row in rows_of(H200 / "square-bf16.json")
             if (row["provider"], row["protocol"]) == ("warploom", "alone")}  # fmt: skip
    cells = [[" x ".join(map(str, size)), found[size]["us"]["median"], found[size]["tflops"]["median"]]
             for size in sorted(found)]  # fmt: skip
    return table(["M x N x K, bf16", "us", "TFLOP/s"], cells)


def ways_to_divide(table: Table) -> list[str]:
    """Tiles of 256 x 192 of some products on 132 CTAs: k-tiles of the slowest CTA, and partial tiles to reduce."""
    cells = []
    for m, n, k in ((8192, 8192, 8192), (4096, 4096, 4096), (1024, 2048, 8192), (256, 4096, 14336)):
        tiles, k_tiles = -(-m // 256) * -(-n // 192), k // 64
        for made in (schedules.data_parallel(tiles, k_tiles, 132), schedules.split_k(tiles, k_tiles, 132, 2),
                     schedules.split_k(tiles, k_tiles, 132, 4), schedules.stream_k(tiles, k_tiles, 132)):  # fmt: skip
            cells.append([f"{m} x {n} x {k}", made.name, made.time, f"{made.busy:.0%}", made.partial])
    return table(["product", "way", "k-tiles of the slowest CTA", "busy", "partial tiles to reduce"], cells)


def tensor_parallel(table: Table) -> list[str]:
    """Two H200s, next to NCCL and torch's fused operators; the bound is the longer of the two phases."""
    return _communicating(table, rows_of(H200 / "tensor-parallel.json"), ("all-gather", "reduce-scatter"))


def four_gpus(table: Table) -> list[str]:
    """The same on four H100s, with 8-bit products; experts were timed before."""
    kinds = ("all-gather", "reduce-scatter", "all-gather-e4m3", "reduce-scatter-e4m3", "experts")
    experts = [row for row in rows_of(H100 / "tensor-parallel-4-forms.json") if row["kind"] == "experts"]
    return _communicating(table, rows_of(FOUR_GPUS) + experts, kinds)


def _communicating(table: Table, rows: list[dict[str, Any]], kinds: tuple[str, ...]) -> list[str]:
    cells = []
    for kind in kinds:
        for row in rows:
            if row["kind"] != kind:
                continue
            us = row["us"]
            bound, best = max(us["mm"], us["collective"]), min(us["nccl"], us.get("torch fused", us["nccl"]))
            names = ("mm", "collective", "nccl", "torch fused", "warploom")
            times = (f"{us[name]:,.0f}" if name in us else "" for name in names)
            shares = f"{best / us['warploom']:.2f}", f"{bound / us['warploom']:.2f}"
            cells.append([row["kind"], f"{row['m']} x {row['n']} x {row['k']}", *times, *shares])
    head = ["with the product", "M x N x K", "product, us", "NCCL alone", "one after the other", "torch, fused", "ours"]
    return table([*head, "of the faster", "of the bound"], cells)


def few_rows_of_four_gpus(table: Table) -> list[str]:
    """Products with an all-reduce, replayed from a CUDA graph."""
    cells = []
    for row in rows_of(FOUR_GPUS):
        if row["kind"] == "all-reduce":
            us = row["us"]
            fused = min(us["torch one-shot"], us["torch two-shot"])
            cells.append(
                [
                    f"{row['m']} x {row['n']} x {row['k']}",
                    f"{us['mm']:.1f}",
                    f"{us['nccl']:.1f}",
                    f"{fused:.1f}",
                    f"{us['warploom']:.1f}",
                    f"{us['nccl'] / us['warploom']:.2f}",
                    f"{fused / us['warploom']:.2f}",
                ]
            )
    return table(["M x N x K", "product, us", "with NCCL", "with torch's own", "ours", "of NCCL", "of torch's own"],
                 cells)  # fmt: skip


def llama_on_four_gpus(table: Table) -> list[str]:
    """Eight layers of a 70B-class Llama, in tokens per second."""
    cells = []
    for row in rows_of(H100 / "tensor-parallel-llama-4.json"):
        plain, ours = (row["tokens_per_second"][name] for name in ("plain", "warploom"))
        errors = (f"{row['error_against_f32'][name]:.3f}" for name in ("plain", "warploom"))
        cells.append([row["phase"], row["tokens"], f"{plain:,.0f}", f"{ours:,.0f}", f"{ours / plain:.2f}", *errors])
    return table(["phase", "tokens", "PyTorch and NCCL", "ours", "ratio", "its error against f32", "ours"], cells)


def down(table: Table) -> list[str]:
    """Rungs that are slower than the one below them, on random data and on zeros."""
    cells = []
    normal, zeros = (_alone(name) for name in ("ladder.json", "ladder-zeros.json"))
    for rung in DOWN:
        mine, free = normal[rung], zeros[rung]
        name, speeds = mine["kernel"].partition("_")[2], [f"{row['tflops']['median']:.0f}" for row in (mine, free)]
        busy = f"{free['tensor_activity']:.0%}"
        cells.append([f"{rung} {name}", speeds[0], mine["power_w"], mine["pj_per_flop"], speeds[1], busy])
    return table(["rung", "TFLOP/s, random data", "W", "pJ per FLOP", "TFLOP/s, zeros", "busy, zeros"],
                 cells)  # fmt: skip


def _alone(name: str) -> dict[int, dict[str, Any]]:
    """Our rows of a ladder file, by rung."""
    wanted = ("warploom", "alone")
    return {row["rung"]: row for row in rows_of(H200 / name) if (row["provider"], row["protocol"]) == wanted}


def beside(table: Table, kind: str) -> list[str]:
    """Kernels outside the ladder: predictions, and measurements if the file has them."""
    path = H200 / "beside.json"
    found_rows = rows_of(path) if path.exists() else ()
    measured = {(_product(row), row["kernel"]): row for row in found_rows if row["kind"] == kind}
    cells = []
    for row in rows_of(RESULTS / "emulator" / "beside.json"):
        if row["kind"] == kind:
            found, theirs = (measured.get((_product(row), name)) for name in (row["kernel"], "cublas"))
            said = (found["us"]["median"], found["tflops"]["median"]) if found else ("not measured yet", "")
            cells.append([_product(row), row["kernel"].replace("_", " "), row["predicted_us"], row["predicted_tflops"],
                          row["clock_mhz"], *said, theirs["tflops"]["median"] if found and theirs else ""])  # fmt: skip
    head = ["M x N x K", "kernel", "us, predicted", "TFLOP/s, predicted", "at MHz", "us, measured", "TFLOP/s, measured",
            "cuBLAS, TFLOP/s"]  # fmt: skip
    return table(head, cells)


def _product(row: dict[str, Any]) -> str:
    return f"{row['m']} x {row['n']} x {row['k']}, {row['dtype']}"


def chains(table: Table) -> list[str]:
    """Cycles of a quarter of an SM with one dependent fma after the other, and with several independent ones."""
    found = {row["name"]: row for row in rows_of(H200 / "microbenchmarks.json")}
    latency = found["latency.ffma"]["clocks"]
    cells = [[chains, f"{latency / chains:.2f}" if latency / chains > 1 else "1", f"{min(1.0, chains / latency):.0%}"]
             for chains in (1, 2, 3, 4, 8)]  # fmt: skip
    return table(["independent chains in a quarter", "clocks per fma of a warp", "of the peak"], cells)


def eight_bit(table: Table) -> list[str]:
    """e4m3 with one scale per matrix, alone: our kernel next to Triton's and cuBLASLt's."""
    found: dict[tuple[int, int, int], dict[str, dict[str, Any]]] = {}
    for row in rows_of(H200 / "fp8.json"):
        if row["protocol"] == "alone" and row["scales"] == "tensor":
            found.setdefault((row["m"], row["n"], row["k"]), {})[row["provider"]] = row
    cells = []
    for (m, n, k), by in sorted(found.items(), key=lambda one: one[0][2]):
        rates = [2 * m * n * k / by[name]["us"]["median"] / 1e6 for name in ("warploom", "triton", "scaled-mm")]
        kernel = by["warploom"]["kernel"].removeprefix("hopper_").replace("_", "-")
        cells.append([f"{m} x {n} x {k}", kernel, *(f"{rate:.0f}" for rate in rates), f"{rates[0] / rates[1]:.2f}"])
    return table(["product", "our kernel", "TFLOP/s", "Triton", "`torch._scaled_mm`", "of Triton"], cells)


def split_k(table: Table) -> list[str]:
    """e4m3 at few rows, interleaved: our kernel next to cuBLASLt's and Triton's, without and with split K."""
    found: dict[tuple[int, int, int], dict[str, float]] = {}
    for row in rows_of(H200 / "decode-split-k.json"):
        found.setdefault((row["n"], row["k"], row["m"]), {})[row["provider"]] = row["us"]["median"]
    names = ("warploom", "scaled-mm", "triton", "triton-split-k")
    cells = [
        [f"{m} x {n} x {k}", *(f"{us[name]:.1f}" for name in names), f"{us['triton-split-k'] / us['warploom']:.2f}"]
        for (n, k, m), us in sorted(found.items())
    ]
    heads = ["product", "ours, us", "`torch._scaled_mm`, us", "Triton, us", "Triton split-K, us", "of split-K"]
    return table(heads, cells)


def tables(table: Table) -> dict[str, Callable[[], list[str]]]:
    """All tables, by the name in a chapter's marker."""
    made = {
        "attention-bytes": attention_bytes, "attention-steps": attention_steps, "attention": attention_measured,
        "attention-gradients": attention_gradients,
        "launches": launches, "strong": strong, "sizes": sizes, "dividing": ways_to_divide,
        "tensor-parallel": tensor_parallel, "four-gpus": four_gpus, "few-rows-of-four-gpus": few_rows_of_four_gpus,
        "llama-on-four-gpus": llama_on_four_gpus, "down": down, "chains": chains, "eight-bit": eight_bit,
        "split-k": split_k,
        **{f"beside-{kind}": partial(beside, kind=kind) for kind in ("rest", "sparse", "f64")},
    }  # fmt: skip
    return {name: lambda make=make: make(table) for name, make in made.items()}  # type: ignore[misc]
