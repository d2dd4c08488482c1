"""The tables of README and docs: their lines, groups, stale rows, and missing files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import render
from tests.lab.conftest import HEAD, PING_PONG, row_of


def compared(**more: Any) -> dict[str, Any]:
    """An evidence file with one problem, two protocols, two others."""
    rows = []
    for protocol, ratio in (("alone", 1.04), ("interleaved", 1.02)):
        rows += [
            row_of(protocol=protocol, tflops={"median": 700.4}, ratio_to={"cublas": ratio, "triton": 1.1}, **more),
            {**row_of(protocol=protocol, provider="cublas", tflops={"median": 670.0}), "kernel": "torch.mm"},
            {**row_of(protocol=protocol, provider="triton", tflops={"median": 640.0}), "kernel": "triton"},
        ]
    for row in rows:
        if row["provider"] != "warploom":
            del row["ptx_sha256"], row["build"]
    return {**HEAD, "rows": rows}


def test_a_comparison_has_a_line_for_each_problem_and_the_geometric_means() -> None:
    head, _, line, means = render.compared.comparison(compared())
    names = ["M x N x K", "kernel", "TFLOP/s, alone", "cublas"]
    names += ["of cublas, alone", "of cublas, interleaved", "of triton, alone"]
    assert head == f"| {' | '.join(names)} |"
    assert line == f"| 64 x 64 x 64 | {PING_PONG.name()} | 700 | 670 | 1.040 | 1.020 | 1.100 |"
    assert means == "| geometric mean | | | | 1.040 | 1.020 | 1.100 |"


def test_problems_of_one_size_and_several_types_have_a_line_each() -> None:
    every = [
        row_of(provider=name, dtype=dtype, scales=scales, ratio_to={"cublas": ratio, "scaled-mm": ratio})
        for dtype, scales, ratio in (("bf16", "", 1.25), ("e4m3", "row", 1.5))
        for name in ("warploom", "warploom:constant-weights", "cublas", "scaled-mm")
    ]
    _, _, *lines = render.compared.comparison({**HEAD, "rows": every})
    lines, means = lines[:4], lines[4:]
    assert [line.split(" | ")[0] for line in means] == [
        "| geometric mean bf16", "| geometric mean bf16, constant-weights",
        "| geometric mean e4m3 row", "| geometric mean e4m3 row, constant-weights",
    ]  # fmt: skip
    assert "1.250" in means[0] and "1.500" in means[2], "no mean over different types"
    named = [line.split(" | ")[:2] for line in lines]
    assert [line[0] for line in named] == ["| 64 x 64 x 64 bf16"] * 2 + ["| 64 x 64 x 64 e4m3 row"] * 2
    assert [line[1] for line in named] == [PING_PONG.name(), f"{PING_PONG.name()}, constant-weights"] * 2
    assert "1.250 | 1.250" in lines[0] and "1.500 | 1.500" in lines[2]


def test_the_host_s_time_has_a_line_for_each_call() -> None:
    spread = {"median": 3.5, "min": 3.25, "max": 4.0}
    rows = [row_of(us=spread, ratio_to={"cublas": 2.5}), row_of(provider="cublas", us=spread, ratio_to={"cublas": 1.0})]
    _, _, ours, theirs = render.package.host_time({**HEAD, "rows": rows})
    assert ours == "| 64 x 64 x 64 | warploom | 3.5 | 3.25 - 4.0 | cublas 2.50 |"
    assert theirs == "| 64 x 64 x 64 | cublas | 3.5 | 3.25 - 4.0 |  |"


def test_the_summary_of_all_compares_each_kind_with_what_pytorch_calls() -> None:
    def ours(protocol: str, ratios: dict[str, float], **more: Any) -> dict[str, Any]:
        return row_of(protocol=protocol, ratio_to=ratios, **more)

    scaled = [
        ours("alone", {"scaled-mm": 1.5, "scaled-mm-row": 9.0}, dtype="e4m3", scales="tensor"),
        ours("alone", {"scaled-mm-row": 1.25}, dtype="e4m3", scales="row"),
        ours("interleaved", {"scaled-mm-row": 0.9}, dtype="e4m3", scales="row"),
    ]
    fused = [ours("interleaved", {"torch-eager": ratio, "torch-compile": 9.0}, m=m, kind=kind)
             for m, kind, ratio in ((64, "gelu", 2.0), (128, "gelu", 0.5), (64, "swiglu", 3.0))]  # fmt: skip
    grouped = [ours("interleaved", {"loop": 9.0, "torch-grouped": 1.2}, rows=[32, 32], kind="grouped")]
    bf16 = [ours("alone", {"cublas": 1.5, "triton": 9.0}, m=4096, n=4096, k=4096)]
    forward = [ours(protocol, {"cudnn": ratio}, kind="attention", data=data)
               for protocol, ratio, data in (("alone", 1.5, "normal"), ("alone", 0.5, "deviation 64"),
                                             ("interleaved", 9.0, "normal"))]  # fmt: skip
    backward = [ours("alone", {"flash": 9.0}, kind="attention")]
    files = ({**HEAD, "rows": rows} for rows in (bf16, [], [], scaled, fused, grouped, forward, backward, []))
    _, _, *lines = render.compared.summary(*files)
    assert [line.replace(render.STALE, "") for line in lines] == [
        "| bf16, large shapes (1) | cuBLAS | 1.500 | 1.500 |  |  |",
        "| fp8, scales by tensor (1) | `torch._scaled_mm` | 1.500 | 1.500 |  |  |",
        "| fp8, scales by row (1) | `torch._scaled_mm` | 1.250 | 1.250 | 0.900 | 0.900 |",
        "| bf16, fused with gelu (2) | eager calls |  |  | 1.000 | 0.500 |",
        "| bf16, fused with swiglu (1) | eager calls |  |  | 3.000 | 3.000 |",
        "| mixture of experts (1) | `torch._grouped_mm` |  |  | 1.200 | 1.200 |",
        "| attention (1) | cuDNN | 1.500 | 1.500 |  |  |",
    ]


def test_a_table_that_nobody_measured_says_so_until_somebody_has(tmp_path: Path) -> None:
    text, path = "before\n\n<!-- host -->\n\nbehind\n", tmp_path / "host.json"
    tables = {"host": (lambda result: ["| a |", "|---|", f"| {result} |"], path)}
    missing = render.rendered(text, tables)
    assert missing == "before\n\n<!-- host -->\nNot measured yet.\n\nbehind\n" == render.rendered(missing, tables)
    path.write_text("7")
    assert render.rendered(missing, tables) == "before\n\n<!-- host -->\n| a |\n|---|\n| 7 |\n\nbehind\n"


def test_a_stale_row_is_marked_in_a_comparison() -> None:
    _, _, line, _ = render.compared.comparison(compared(ptx_sha256="0" * 64))
    assert line.startswith("| 64 x 64 x 64 (stale) |")


def test_the_check_fails_for_a_stale_row_without_its_mark_and_for_another_figure_only() -> None:
    fresh, stale = "| 64 | 1.040 |\n", "| 64 (stale) | 1.040 |\n"
    assert not render.says_less(fresh, fresh)
    assert render.says_less(fresh, stale), "stale, and not marked"
    assert not render.says_less(stale, fresh), "marked, and fresh again"
    assert render.says_less("| 64 | 1.050 |\n", fresh)


# -- bf16 ----------------------------------------------------------------------------------------------------------


def bf16(*shapes: tuple[int, int, int], ratio: float, **more: Any) -> dict[str, Any]:
    """A file in which ours is `ratio` of cublas for each shape, under each protocol."""
    rows = [
        row_of(m=m, n=n, k=k, protocol=protocol, ratio_to={"cublas": ratio}, **more)
        for m, n, k in shapes
        for protocol in ("alone", "interleaved", "burst")
    ]
    return {**HEAD, "rows": rows}


def test_the_summary_counts_a_shape_of_two_files_once_and_awkward_waves_apart() -> None:
    square = bf16((4096, 4096, 4096), (16384, 8192, 8192), ratio=1.1)
    llm = bf16((16384, 8192, 8192), (8192, 28672, 8192), (1536, 3072, 12288), ratio=0.9)
    _, _, *lines = render.compared.bf16_summary(square, llm, bf16((8192, 8192, 1024), ratio=1.2))
    nowhere = " |  |  |  |"
    assert lines == [
        f"| large shapes (3), geometric mean | {' | '.join(['1.029'] * 3)}{nowhere}",
        f"| large shapes (3), least | {' | '.join(['0.900'] * 3)}{nowhere}",
        f"| awkward waves (1), geometric mean | {' | '.join(['0.900'] * 3)}{nowhere}",
        f"| awkward waves (1), least | {' | '.join(['0.900'] * 3)}{nowhere}",
        f"| short K (1), geometric mean | {' | '.join(['1.200'] * 3)}{nowhere}",
        f"| short K (1), least | {' | '.join(['1.200'] * 3)}{nowhere}",
    ]


def test_the_summary_marks_a_line_with_a_stale_row_in_it() -> None:
    fresh, stale = bf16((4096, 4096, 4096), ratio=1.1), bf16((8192, 8192, 1024), ratio=1.2, ptx_sha256="0" * 64)
    _, _, *lines = render.compared.bf16_summary(fresh, {**HEAD, "rows": []}, stale)
    assert [render.STALE in line for line in lines] == [False, False, False, False, True, True]


def test_the_summary_of_the_files_has_the_shapes_that_the_targets_are_about() -> None:
    make, *paths = render.TABLES[render.MEASURED]["bf16-summary"]
    lines = make(*(json.loads(path.read_text()) for path in paths))
    assert [line.split(",")[0] for line in lines[2::2]] == [
        "| large shapes (9)",
        "| awkward waves (4)",
        "| short K (4)",
    ]


# -- fp8 -----------------------------------------------------------------------------------------------------------


def test_fp8_stands_beside_the_product_with_the_same_scales() -> None:
    def rows(scales: str, ratios: dict[str, float]) -> list[dict[str, Any]]:
        more = {"dtype": "e4m3", "scales": scales, "tflops": {"median": 1000.0}}
        return [row_of(**more, provider=name, ratio_to=ratios) for name in ("warploom", *ratios)]

    tensor = rows("tensor", {"scaled-mm": 1.5, "scaled-mm-row": 9.0, "triton": 1.25})
    found = {
        **HEAD,
        "rows": [*tensor, *rows("row", {"scaled-mm-row": 1.75}), *rows("block128", {"scaled-mm-block": 2})],
    }
    head, _, *lines = render.compared.fp8(found)
    assert head.endswith("| scaled-mm | of scaled-mm, alone | of triton, alone |")
    ends = [line.partition(" | 1000 | 1000 | ")[2] for line in lines[:3]]
    assert ends == ["1.500 | 1.250 |", "1.750 |  |", "2.000 |  |"]
    assert not any("9.000" in line for line in lines), "other scales, another product"


# -- few rows ------------------------------------------------------------------------------------------------------


GRAPH, STREAM = ("warploom", "graph"), ("warploom", "stream")
NO_PDL, CUBLAS = ("warploom:no-pdl", "graph"), ("cublas", "graph")


def decoded(
    m: int, n: int, dtype: str, scales: str, us: float, ratios: dict[tuple[str, str], float]
) -> list[dict[str, Any]]:
    """Rows of one product of K = 1024, each in `us`; ratios by (provider, launch) to who computes the same."""
    peer = {"": "cublas", "tensor": "scaled-mm", "row": "scaled-mm-row"}[scales]
    problem = {"m": m, "n": n, "k": 1024, "dtype": dtype, "out": "bf16", "scales": scales}
    return [
        row_of(**problem, provider=provider, launch=launch, us={"median": us}, ratio_to={peer: ratio, "other": 9.0})
        for (provider, launch), ratio in ratios.items()
    ]


# 16 x 1024 of A, 2048 x 1024 of B, 16 x 2048 of D, two bytes each: 4,292,608 bytes, 0.911 us at 4.71 TB/s.
AT_THE_CEILING_US = 4_292_608 / 4.71e12 * 1e6


def test_a_product_of_few_rows_has_one_line_for_all_ways_and_its_share_of_the_ceiling() -> None:
    ratios = {GRAPH: 1.25, CUBLAS: 1.0, NO_PDL: 1.125, STREAM: 1.5}
    rows = decoded(16, 2048, "bf16", "", AT_THE_CEILING_US / 0.95, ratios)
    head, _, line, mean, least = render.few_rows.decode({**HEAD, "rows": rows})
    assert [cell.strip() for cell in head.split("|")][7:12] == list(render.few_rows.WAYS)
    title, shown = f"| 16 x 2048 x 1024 | {PING_PONG.name()} | 1.0", "1.250 |  | 1.125 | 1.500 |  |"
    assert line == f"{title} | 95.0% |  | cublas | {shown}"
    assert mean == f"| bf16, geometric mean |  |  |  |  | cublas | {shown}" and least.startswith("| bf16, least |")


@pytest.mark.parametrize(
    "m, n, dtype, share, missed",
    [(16, 2048, "bf16", 0.91, False), (16, 2048, "bf16", 0.89, True), (16, 2048, "e4m3", 0.88, False),
     (16, 2048, "e4m3", 0.86, True), (64, 2048, "bf16", 0.5, False), (16, 16384, "bf16", 0.5, False)],
)  # fmt: skip
def test_a_share_below_its_target_says_so_where_there_is_a_target(
    m: int, n: int, dtype: str, share: float, missed: bool
) -> None:
    size = 2 if dtype == "bf16" else 1
    us = ((m + n) * 1024 * size + m * n * 2) / (share * 4.71e12) * 1e6
    rows = decoded(m, n, dtype, "" if dtype == "bf16" else "row", us, {GRAPH: 1.0})
    line = render.few_rows.decode({**HEAD, "rows": rows})[2]
    assert f"{share:.1%}{' **missed**' if missed else ''} |" in line and line.count("missed") == missed


def test_the_readme_has_mean_and_least_of_each_kind_and_shares_only_of_what_has_a_target() -> None:
    rows = [
        *decoded(16, 2048, "bf16", "", AT_THE_CEILING_US / 0.96, {GRAPH: 1.0, STREAM: 2.0}),
        *decoded(64, 2048, "bf16", "", 1000.0, {GRAPH: 1.21}),
        *decoded(16, 2048, "e4m3", "row", 1000.0, {GRAPH: 3.0}),
    ]
    _, _, *lines = render.few_rows.decode_summary({**HEAD, "rows": rows})
    assert lines[:2] == [
        "| bf16, of cublas, geometric mean | 1.100 |  |  | 2.000 |  | 0.960 |  |",
        "| bf16, of cublas, least | 1.000 |  |  | 2.000 |  | 0.960 |  |",
    ]
    assert [line.rpartition(", ")[0] for line in lines[2:]] == ["| e4m3 row, of scaled-mm-row"] * 2
    rows[-1]["ptx_sha256"] = "0" * 64
    marked = [render.STALE in line for line in render.few_rows.decode_summary({**HEAD, "rows": rows})[2:]]
    assert marked == [False, False, True, True]


# -- documents -----------------------------------------------------------------------------------------------------


def test_a_table_of_several_files_waits_for_all_of_them(tmp_path: Path) -> None:
    text, paths = "<!-- both -->\n", (tmp_path / "one.json", tmp_path / "two.json")
    tables = {"both": (lambda one, two: [f"| {one + two} |"], *paths)}
    paths[0].write_text("7")
    assert render.rendered(text, tables) == "<!-- both -->\nNot measured yet.\n"
    paths[1].write_text("8")
    assert render.rendered(text, tables) == "<!-- both -->\n| 15 |\n"


def test_a_sample_has_a_line_for_each_contender() -> None:
    ours = row_of(ratio_to={"cublas": 1.2, "triton": 0.98}, layout="tn")
    head, _, *lines = render.compared.peers({**HEAD, "rows": [ours]})
    assert [line.split(" | ")[:5] for line in lines] == [
        ["| cublas", "1", "1.200", "1.200", "0.0%"], ["| triton", "1", "0.980", "0.980", "100.0%"],
    ]  # fmt: skip
    assert head.startswith("| of | products |")


def test_the_first_use_of_a_model_has_a_line_for_each_part() -> None:
    timed = {"products": 40, "kernels": 30, "seconds": 9.5, "choices_s": 2.1, "each_s": {"median": 0.2, "max": 1.25}}
    parts = [{"part": "cold", **timed}, {"part": "warm", "products": 40, "kernels": 30, "seconds": 3.1, "workers": 16},
             {"part": "warmed", **timed}]  # fmt: skip
    _, _, *lines = render.package.first_use({"rows": parts})
    assert lines[0] == "| an empty cache, one call after the other | 40 | 30 | 9.5 | 2.1 | 200 | 1250 |"
    assert lines[1] == "| `warploom warm`, 16 processes | 40 | 30 | 3.1 |  |  |  |" and len(lines) == 3


def test_a_goal_marks_each_figure_that_misses_its_bound() -> None:
    least = render.goals.Goal("least", 0.97, [0.98, 0.961]).cells
    assert least == ["least", "at least 0.970", "0.980, 0.961 **missed**"]
    most = render.goals.Goal("regret", 0.08, [0.094, 0.08], at_most=True, percent=True).cells
    assert most == ["regret", "at most 8.0%", "9.4% **missed**, 8.0%"]


def test_the_goals_of_samples_are_of_all_rows_and_of_bands_of_them() -> None:
    rows = [row_of(m=m, ratio_to={"cublas": ratio}) for m, ratio in ((16, 1.44), (16, 1.0), (64, 1.2), (256, 0.98),
                                                                    (1024, 1.1))]  # fmt: skip
    e4m3 = [[{"rows": [row_of(ratio_to={other: 1.1})]}] for other in ("scaled-mm", "scaled-mm-row")]
    found = render.goals.of_samples([{"rows": rows}], *e4m3)
    assert [round(goal.figures[0], 3) for goal in found[1:7]] == [0.98, 0.2, 1.2, 1.2, 0.98, 1.1]
    assert [goal.figures[0] for goal in found[7:]] == [pytest.approx(1.1)] * 4


def test_the_table_of_goals_is_of_files_that_exist() -> None:
    make, *paths = render.TABLES[render.MEASURED]["goals"]
    lines = make(*(json.loads(path.read_text()) for path in paths))
    assert len(lines) == 27 and all("at least" in line or "at most" in line for line in lines[2:])
