"""Tables that compare our kernels with others: ratios by protocol, means, stale rows marked; for README and docs."""

from __future__ import annotations

from benchmarks.tables_rows import Result, Row, kinds, mark, mean_and_least, named, peer_of, table
from warploom.lab.bench import geomean
from warploom.lab.sample import LOSS, ROWS
from warploom.lab.sample import summary as of_sample
from warploom.lab.suites import AWKWARD, SQUARE

PROTOCOLS = ("alone", "interleaved", "burst")
OTHERS = {"cublas": "cuBLAS", "cudnn": "cuDNN", "scaled-mm": "`torch._scaled_mm`", "torch-eager": "eager calls",
          "torch-grouped": "`torch._grouped_mm`"}  # fmt: skip


def bf16_groups(square: Result, llm: Result, small_k: Result) -> dict[str, list[Row]]:
    """Our rows: the nine large shapes, awkward waves, short K. A shape in two files counts once, as a square one."""
    ours = [[row for row in result["rows"] if row["provider"] == "warploom"] for result in (square, llm, small_k)]
    return {
        "large shapes": [*ours[0], *(row for row in ours[1] if shape_of(row) not in (*AWKWARD, *SQUARE))],
        "awkward waves": [row for row in ours[1] if shape_of(row) in AWKWARD],
        "short K": ours[2],
    }


def bf16_summary(square: Result, llm: Result, small_k: Result) -> list[str]:
    """Geometric mean and minimum of the ratios to others."""
    columns = (("cublas", "alone"), ("cublas", "interleaved"), ("cublas", "burst"), ("cublaslt-best", "alone"),
               ("cublaslt-best", "interleaved"), ("triton", "interleaved"))  # fmt: skip
    lines: list[list[str]] = []
    for name, rows in bf16_groups(square, llm, small_k).items():
        ratios = [
            [row["ratio_to"][other] for row in rows if row["protocol"] == protocol and other in row["ratio_to"]]
            for other, protocol in columns
        ]
        count = len({shape_of(row) for row in rows})
        lines += mean_and_least(f"{name} ({count}){mark(rows)}", ratios)
    return table(["bf16", *(f"of {other}, {protocol}" for other, protocol in columns)], lines)


def shape_of(row: Row) -> tuple[int, int, int]:
    """M, N, K."""
    return row["m"], row["n"], row["k"]


def fp8(result: Result) -> list[str]:
    """`comparison`, each problem next to torch's product with the same scales, which is named "scaled-mm" for all."""
    return comparison({**result, "rows": by_scales(result["rows"])})


def by_scales(every: list[Row]) -> list[Row]:
    """Rows of fp8 without peers that have other scales; the peer with the same scales is called "scaled-mm"."""
    rows = []
    for row in every:
        peer = peer_of(row)
        called = {name: "scaled-mm" if name == peer else name for name in (row["provider"], *row["ratio_to"])}
        kept = {name for name in called if name == peer or not name.startswith("scaled-mm")}
        if row["provider"] in kept:
            ratios = {called[name]: ratio for name, ratio in row["ratio_to"].items() if name in kept}
            rows.append({**row, "provider": called[row["provider"]], "ratio_to": ratios})
    return rows


def summary(
    square: Result, llm: Result, small_k: Result, fp8_rows: Result, fused: Result, grouped: Result, forward: Result,
    backward: Result, decode: Result, *drawn: Result,
) -> list[str]:  # fmt: skip
    """A line for each kind of product and pass of attention: mean and minimum of the ratios to what PyTorch calls.

    forward, backward, decode: of attention; `drawn`: samples of products.
    """
    lines = [
        speeds(f"bf16, {name}", rows, "cublas") for name, rows in bf16_groups(square, llm, small_k).items() if rows
    ]
    sampled = [row for each in drawn for row in each["rows"] if row["provider"] == "warploom" and row["ratio_to"]]
    if sampled:
        lines.append(speeds("bf16, random samples", sampled, "cublas", len(sampled)))
    for title, rows, other in (
        ("fp8, scales by", by_scales(fp8_rows["rows"]), "scaled-mm"),
        ("bf16, fused with", fused["rows"], "torch-eager"),
        ("mixture of experts,", grouped["rows"], "torch-grouped"),
    ):
        kind = kinds(rows)
        ours = [row for row in rows if row["provider"] == "warploom" and other in row["ratio_to"]]
        for word in dict.fromkeys(map(kind, ours)):
            lines.append(speeds(f"{title} {word}".rstrip(" ,"), [row for row in ours if kind(row) == word], other))
    for title, result in (("attention", forward), ("attention gradients", backward), ("decoding attention", decode)):
        rows = [row for row in result["rows"] if row["provider"] == "warploom" and row["protocol"] == "alone"
                and "cudnn" in row["ratio_to"] and row.get("data", "normal") == "normal"]  # fmt: skip
        if rows:
            lines.append(speeds(title, rows, "cudnn", len(rows)))
    head = ["alone: mean", "least", "interleaved: mean", "least"]
    return table(["operation", "compared with", *head], lines)


def speeds(title: str, rows: list[Row], other: str, count: int | None = None) -> list[str]:
    """Geometric mean and minimum of some rows' ratios to another, by protocol. `count`: of problems, by default those
    with different names; a sample may draw one twice."""
    name = named(rows)
    count = count or len({name(row) for row in rows})
    cells = [f"{title} ({count}){mark(rows)}", OTHERS[other]]
    for protocol in ("alone", "interleaved"):
        ratios = [row["ratio_to"][other] for row in rows if row["protocol"] == protocol and other in row["ratio_to"]]
        cells += [f"{measure(ratios):.3f}" if ratios else "" for measure in (geomean, min)]
    return cells


def comparison(result: Result) -> list[str]:
    """A line for each problem: TFLOP/s alone (or under the first available protocol), ratios under each, the others."""
    rows = result["rows"]
    protocols = [name for name in PROTOCOLS if any(row["protocol"] == name for row in rows)]
    first = protocols[0]
    providers = list(dict.fromkeys(row["provider"] for row in rows))
    others = [name for name in providers if not name.startswith("warploom")]
    base, several = others[0], len(providers) - len(others) > 1
    mine = [row for row in rows if row["provider"] not in others]
    timed = {name: [p for p in protocols if any(row["protocol"] == p and name in row["ratio_to"] for row in mine)]
             for name in others[1:]}  # fmt: skip
    rest = [(name, under[0]) for name, under in timed.items() if under]
    head = ["M x N x K", "kernel", f"TFLOP/s, {first}", f"{base}", *(f"of {base}, {name}" for name in protocols)]
    head += [f"of {name}, {protocol}" for name, protocol in rest]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    factors: dict[str, dict[int, list[float]]] = {}
    name, kind = named(rows), kinds(rows)
    here = {(name(row), row["provider"], row["protocol"]): row for row in rows}
    for problem, ours in dict.fromkeys((name(row), row["provider"]) for row in rows if row["provider"] not in others):
        best, theirs = here.get((problem, ours, first)), here.get((problem, base, first))
        under = {protocol: here.get((problem, ours, protocol)) for protocol in protocols}
        found = [row for row in under.values() if row]
        pinned = f", {ours.partition(':')[2]}" if several and ":" in ours else ""
        cells = [problem + mark(found), (best or found[0])["config"] + pinned]
        speeds = [row["tflops"]["median"] if row else None for row in (best, theirs)]
        cells += ["" if speed is None else f"{speed:.{0 if speed >= 100 else 1}f}" for speed in speeds]
        group = factors.setdefault(kind(found[0]) + pinned, {})
        ratios = [(under[protocol] or {}).get("ratio_to", {}).get(base) for protocol in protocols]
        ratios += [(under[protocol] or {}).get("ratio_to", {}).get(other) for other, protocol in rest]
        for column, ratio in enumerate(ratios):
            cells.append("" if ratio is None else f"{ratio:.3f}")
            if ratio is not None:
                group.setdefault(column, []).append(ratio)
        lines.append(f"| {' | '.join(cells)} |")
    for group_name, columns in factors.items():  # a mean over types or scales would say nothing
        means = [f"{geomean(columns[at]):.3f}" if at in columns else "" for at in range(len(head) - 4)]
        title = " ".join(["geometric mean", group_name.removeprefix(", ")]).strip()
        lines.append(f"| {title} | | | | {' | '.join(means)} |")
    return lines


def launch_ways(result: Result) -> list[str]:
    """Microseconds of a product in a chain of products, by launch method, and cuBLAS with the same method."""
    ways = ("stream", "pdl", "graph", "pdl+graph")
    head = ["M x N x K", "kernel", *(f"{way}, us" for way in ways), "cublas by stream, graph, us",
            *(f"of cublas, {way}" for way in ways)]  # fmt: skip
    lines = []
    name = named(result["rows"])
    here = {(name(row), row["provider"], row["launch"]): row for row in result["rows"]}
    for problem in dict.fromkeys(name(row) for row in result["rows"]):
        ours = [here[problem, "warploom", way] for way in ways]
        theirs = [here[problem, "cublas", way]["us"]["median"] for way in ("stream", "graph")]
        cells = [problem + mark(ours), ours[1]["config"], *(f"{row['us']['median']:.1f}" for row in ours)]
        cells += [", ".join(f"{each:.1f}" for each in theirs), *(f"{row['ratio_to']['cublas']:.3f}" for row in ours)]
        lines.append(cells)
    return table(head, lines)


def samples(*results: Result) -> list[str]:
    """Products drawn from public models, by the library's own choice, each sample with a seed of its own."""
    bands = [f"{name.replace('-', ' to ')} rows" if "-" in name else name for name in ROWS]
    lines = []
    for result in results:
        (found, *_) = of_sample(result["rows"])
        row = result["rows"][0]
        drawn = (row["dtype"], row.get("scales", ""), _layouts(result["rows"]))
        figures = [found["by_rows"].get(name, {}).get("geomean") for name in ROWS]
        lines.append([
            " ".join(filter(None, drawn)), f"{row['seed']}", f"{found['count']}", f"{found['geomean']:.3f}",
            f"{found['least']:.3f}", f"{found['losses']:.1%}", *(f"{each:.3f}" if each else "" for each in figures),
        ])  # fmt: skip
    return table(["sample", "seed", "products", "geometric mean", "least", f"below {LOSS}", *bands], lines)


def peers(result: Result) -> list[str]:
    """A sample timed next to several contenders, one row for each."""
    bands = [f"{name.replace('-', ' to ')} rows" if "-" in name else name for name in ROWS]
    lines = []
    for found in of_sample(result["rows"]):
        figures = [found["by_rows"].get(name, {}).get("geomean") for name in ROWS]
        lines.append([
            found["against"], f"{found['count']}", f"{found['geomean']:.3f}", f"{found['least']:.3f}",
            f"{found['losses']:.1%}", *(f"{each:.3f}" if each else "" for each in figures),
        ])  # fmt: skip
    return table(["of", "products", "geometric mean", "least", f"below {LOSS}", *bands], lines)


def _layouts(rows: list[Row]) -> str:
    return "" if all(row["layout"] == "tn" for row in rows) else "gradients"


def llama_block(result: Result) -> list[str]:
    """Tokens per second of both models, by launch method."""
    lines = ["| phase | torch, eager | warploom, eager | ratio | torch, graph | warploom, graph | ratio |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in result["rows"]:
        cells = [row["phase"]]
        for way in ("eager", "graph"):
            theirs, ours = row[f"torch_{way}"], row[f"warploom_{way}"]
            cells += [f"{theirs:,.0f}", f"{ours:,.0f}", f"{ours / theirs:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def language_model(result: Result) -> list[str]:
    """Milliseconds of a whole model, by phase."""
    lines = ["| phase | torch, eager | warploom, eager | ratio | torch, graph | warploom, graph | ratio |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in sorted(result["rows"], key=lambda row: (row["phase"], row["rows"])):
        cells = [f"{row['phase']} {row['rows']}" + (f"x{row['tokens']}" if row["phase"] == "prefill" else "")]
        for way in ("eager", "graph"):
            theirs, ours = (row["ms"][f"{who} {way}"]["median"] for who in ("torch", "warploom"))
            cells += [f"{theirs:.2f}", f"{ours:.2f}", f"{theirs / ours:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
