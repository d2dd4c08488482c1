"""The commands that measure and calculate, on a machine without a GPU: ladder, bench, explain."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import run
from warploom.cli import warm
from warploom.driver import library
from warploom.lab import evidence, gpu_stage, recipe
from warploom.operators import Gpu, Problem, choose
from warploom.operators.families import to_text
from warploom.runtime.benchmark.clock import ClockReading

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "available", lambda: False)


@pytest.mark.parametrize("command", ["ladder", "bench", "explain"])
def test_every_command_has_a_help_text_with_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: warploom {command}" in " ".join(result.output.split())


# -- ladder --------------------------------------------------------------------------------------------------------


def test_without_a_gpu_the_ladder_shows_counters(no_gpu: None) -> None:
    result = run("ladder", "--rungs", "8,9", "--size", 128)
    assert result.exit_code == 0
    assert "The ladder in the emulator, 128 x 128 x 128" in result.stdout and "No GPU was used" in result.stdout
    eight, nine = (line for line in result.stdout.splitlines() if line.lstrip().startswith(("8 tma", "9 larger")))
    assert "32 wgmma" in eight and "16 wgmma" in nine


@pytest.mark.full
def test_the_ladder_shows_what_the_sanitizer_finds_and_the_command_that_shows_where(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rung 7 without the fence between its copies and wgmma, and rung 8 as it is."""
    from warploom.kernels.ladder import r07_cp_async_wgmma as seventh

    pipeline = seventh.CpAsyncPipeline
    monkeypatch.setattr(
        seventh, "CpAsyncPipeline", lambda **options: pipeline(**{**options, "async_proxy": False})
    )  # fmt: skip
    result = run("ladder", "--rungs", "7,8", "--size", 64, "--emulate")
    seven, eight = (line for line in result.stdout.splitlines() if line.lstrip().startswith(("7 cp_", "8 tma")))
    assert seven.rstrip().endswith("1 warning") and eight.rstrip().endswith("none")
    command = "warploom check warploom.kernels.ladder.r07_cp_async_wgmma"
    assert f"rung 7: cp-async-before-wgmma; to see where: run `{command}`" in result.stdout
    assert "rung 8:" not in result.stdout
    told = run("ladder", "--rungs", "7", "--size", 64, "--emulate", "--json")
    (row,) = json.loads(told.stdout)["rows"]
    assert row["findings"] == 1 and row["rules"] == ["cp-async-before-wgmma"]
    assert row["by_severity"] == {"error": 0, "warning": 1, "performance": 0}
    shown = run(*command.split()[1:])
    assert "warning[cp-async-before-wgmma]" in shown.stdout and "ladder/r07_cp_async_wgmma.py:" in shown.stdout


def test_the_ladder_as_json_as_a_file_and_as_a_picture(no_gpu: None, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out, plot = tmp_path / "ladder.json", tmp_path / "ladder.png"
    result = run("ladder", "--rungs", "8", "--size", 64, "--json", "--out", out, "--plot", plot)
    told = json.loads(result.stdout)
    (row,) = told["rows"]
    assert (row["rung"], row["protocol"], row["findings"], row["seed"]["tflops"]) == (8, "emulated", 0, 317)
    assert json.loads(out.read_text())["rows"] == told["rows"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    run("ladder", "--rungs", "2", "--size", 64, "--json", "--out", out, "--append")
    assert [row["rung"] for row in json.loads(out.read_text())["rows"]] == [8, 2]


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("--rungs", "99"), "no rung '99'"),
        (("--size", "-1"), "must be positive"),
        (("--rungs", "8", "--size", "100"), "N in multiples of 8"),
        (("--data", "ones"), "unknown data 'ones'"),
    ],
)
def test_a_ladder_that_cannot_be_climbed_says_why(arguments: tuple[str, ...], says: str, no_gpu: None) -> None:
    result = run("ladder", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr and "Traceback" not in result.output


@pytest.mark.parametrize("command", [("ladder", "--emulate", "--rungs", "1"), ("bench", "--suite", "square")])
@pytest.mark.parametrize(
    "option, name, says",
    [("--out", "", "it is a folder"), ("--out", "file/rows.json", "cannot be written"),
     ("--plot", "bars.txt", "unknown file type for a chart"), ("--plot", "file/bars.png", "cannot be written")],
)  # fmt: skip
def test_what_cannot_be_written_is_said_before_anything_is_measured(
    command: tuple[str, ...], option: str, name: str, says: str, no_gpu: None, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = run(*command, option, tmp_path / name)
    assert result.exit_code == 2 and says in " ".join(result.output.split())
    assert "The ladder" not in result.output and sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_gpu_below_hopper_asked_for_a_hopper_rung_says_which_it_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def device(self, index: int) -> library.Device:
            return library.Device(0, "NVIDIA A100", "sm_80", (8, 0), 108, 80 << 30, 166912, 1_410_000)

    monkeypatch.setattr(library, "available", lambda: True)
    monkeypatch.setattr(library, "load", Old)
    result = run("ladder", "--rungs", "20")
    assert result.exit_code == 2
    assert "NVIDIA A100 (sm_80) cannot run rung 20 ping_pong" in result.stderr
    assert "it can run rungs 1, 2, 3, 4, 5, 6" in result.stderr


# -- bench ---------------------------------------------------------------------------------------------------------


class Stage(AbstractContextManager[None]):
    """A mock GPU with which the command can run."""

    name, uuid = "Pretended GPU", ""
    time = 0.0

    def __init__(self) -> None:
        self.timer = self

    def __exit__(self, *error: object) -> None: ...

    def timed(self, call: Any, launches: int) -> float:
        Stage.time += 1e-3 * launches
        return 1e-3

    def now(self) -> float:
        return Stage.time

    def idle(self, seconds: float) -> None:
        Stage.time += seconds

    def operands(self, problem: Any, data: str) -> list[Any]:
        return []

    def check(self, problem: Any, sets: Any, prepared: Any) -> tuple[float, bool]:
        return 1e-3, True

    def ready(self, calls: Any, launch: str, count: int) -> tuple[Any, int]:
        return (lambda: None), 1

    def clock(self, program: Any, arguments: Any, seconds: float) -> tuple[ClockReading, float]:
        return ClockReading(3000, 2000), 1e-3

    def share(self, reading: ClockReading, tflops: float, dtype: str) -> None:
        return None

    def host_us(self, prepared: Any) -> float:
        return 1.0

    def release(self) -> None:
        pass


def test_bench_prints_a_table_and_writes_evidence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(gpu_stage, "GpuStage", Stage)
    out = tmp_path / "square-bf16.json"
    arguments = ("bench", "--shapes", "256x128x64", "--config", "rung:8", "--against", "cublas,quack", "--out", out)
    result = run(*arguments, "--protocol", "alone,burst", "--seconds", 0.1)
    assert result.exit_code == 0, result.output
    assert "square-bf16 on Pretended GPU, alone" in result.stdout and "r08_tma_wgmma" not in result.stderr
    assert "quack does not take part: quack is not installed" in result.stderr
    written = json.loads(out.read_text())
    assert {"suite", "gpu", "driver", "source_sha256", "date", "command", "versions", "sm_clock_mhz", "power_w"} <= set(
        written
    )
    assert written["missing"] == [{"provider": "quack", "reason": "quack is not installed"}]
    ours = [row for row in written["rows"] if row["provider"] == "warploom:rung:8"]
    assert [row["protocol"] for row in ours] == ["alone", "burst"]
    assert ours[0]["ratio_to"] == {"cublas": 1.0}
    assert evidence.ptx_sha256(recipe.rebuild(ours[0]["build"]).ptx()) == ours[0]["ptx_sha256"]


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(
    "suite, only, file, ours",
    [("attention", "64,2048,causal", "attention", "64 2048 causal bf16"),
     ("attention-decode", "1 x 1024", "attention-decode", "1 x 1024 32/8 heads of 128")],
)  # fmt: skip
def test_bench_of_attention_prints_a_table_draws_it_and_writes_evidence(
    suite: str, only: str, file: str, ours: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(gpu_stage, "GpuStage", Stage)
    out, plot = tmp_path / f"{file}.json", tmp_path / "bars.png"
    arguments = ("bench", "--suite", suite, "--only", only, "--out", out, "--plot", plot, "--seconds", 0.1)
    result = run(*arguments, "--protocol", "alone,interleaved", "--against", "cudnn,flash,cublas")
    assert result.exit_code == 0, result.output
    assert f"{file} on Pretended GPU, alone" in result.stdout and ours in result.stdout
    assert "cublas does not take part: it has no attention" in result.stderr
    written = json.loads(out.read_text())
    assert (written["suite"], written["failed"]) == (file, [])
    row = written["rows"][0]
    assert (row["case"], row["provider"], row["ratio_to"]) == (ours, "warploom", {"cudnn": 1.0, "flash": 1.0})
    assert evidence.ptx_sha256(recipe.rebuild(row["build"]).ptx()) == row["ptx_sha256"]
    assert {(row["provider"], row["protocol"]) for row in written["rows"]} == {
        (name, protocol) for name in ("warploom", "cudnn", "flash") for protocol in ("alone", "interleaved")
    }  # fmt: skip
    assert ("tb_per_s" in row) == (suite == "attention-decode") == ("TB/s" in result.stdout)
    assert plot.exists() and plot.with_name("bars-roofline.png").exists()
    assert run(*arguments, "--append", "--protocol", "alone").exit_code == 0
    assert len(json.loads(out.read_text())["rows"]) == len(written["rows"])


@pytest.mark.parametrize("arguments", [("--suite", "round"), ("--protocol", "slow"), ("--shapes", "1x2"),
                                       ("--only", "x"),
                                       ("--suite", "attention", "--shapes", "1x2x3"),
                                       ("--suite", "attention", "--config", "tiles=3")])  # fmt: skip
def test_bench_called_wrongly_says_what_there_is(arguments: tuple[str, ...]) -> None:
    result = run("bench", *arguments)
    assert result.exit_code == 2 and "expected" in result.stderr


@pytest.mark.parametrize("words, option", [
    ("bench --seed 3", "--seed 3"), ("bench --suite llm --count 5", "--count 5"),
    ("bench --suite fp8 --scales row", "--scales row"), ("bench --suite sample --shapes 8x8x8", "--shapes 8x8x8"),
    ("tune --fit --top 3", "--top 3"), ("tune 64 64 64 --count 3", "--count 3"),
    ("warm 64x64x64 --rows 3", "--rows 3"), ("warm 64x64x64 --no-fused", "--no-fused"),
    ("warm Mixtral-8x7B --groups 8", "--groups 8"),
])  # fmt: skip
def test_an_option_that_would_have_no_effect_is_refused(words: str, option: str) -> None:
    result = run(*words.split())
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].split(maxsplit=1) == ["got", option]


def test_bench_without_a_gpu_says_what_can_be_done_without_one() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for suite in ("square", "attention", "attention-decode"):
        result = run("bench", "--suite", suite)
        assert result.exit_code == 1
        assert "needs a GPU" in result.stderr and "warploom ladder" in result.stderr


def test_every_suite_of_the_help_text_is_one() -> None:
    from warploom.cli.bench import SUITE_NAMES
    from warploom.lab.sample import NAME
    from warploom.lab.suites import SUITES

    assert SUITE_NAMES.split(", ") == [*SUITES, NAME]


# -- explain -------------------------------------------------------------------------------------------------------


def test_explain_of_a_product_of_no_known_machine_comes_at_once() -> None:
    done = run("explain", *[99_999_999_999] * 3)
    assert done.exit_code == 0 and "too many tiles" in done.stdout


def test_explain_says_which_roof_is_lower() -> None:
    pinned = "--config", "cooperative_128x256x4_2b_g8"
    large, small = (json.loads(run("explain", m, 8192, 8192, *pinned, "--json").stdout) for m in (8192, 16))
    assert (large["bound"], small["bound"]) == ("tensor cores", "memory")
    assert large["intensity"] == round(8192 / 3, 2)
    assert large["peak_tflops"] == 1070.5 and large["ridge"] == 223.03
    assert small["least_us"] == round((16 * 8192 + 8192 * 8192 + 16 * 8192) * 2 / 4.8e12 * 1e6, 2)


def test_explain_shows_tiles_waves_occupancy_and_traffic_of_a_pinned_configuration() -> None:
    result = run("explain", 4096, 2112, 7168, "--config", "cooperative_128x256x4_2b_g8")
    assert result.exit_code == 0
    assert "32 x 9 = 288 tiles, 2.18 waves of 132" in result.stdout
    assert "1 CTA on an SM" in result.stdout and "384 threads" in result.stdout
    assert "grouped 8" in result.stdout and "hilbert" in result.stdout
    assert "each KFMA, which is 1000 multiply-adds" in result.stdout


@pytest.mark.parametrize(("m", "said", "slots"), [(4096, "16 x 16 = 256 tiles, 3.46 waves of 74", "86%"),
                                                  (16, "1 x 32 = 32 tiles, 0.86 waves of 37", "86%")])  # fmt: skip
def test_explain_counts_a_pair_or_the_splits_of_k_as_one_slot(m: int, said: str, slots: str) -> None:
    out = run("explain", m, 4096, 4096, "--machine", "B200").stdout
    assert said in out and f"{slots} of their slots used" in out


def test_explain_chooses_as_a_gpu_with_the_memory_of_that_machine_does() -> None:
    """Of products that an H100 and an H200 would compute by different kernels, of which there are some."""

    def chosen(m: int, memory_gbps: int) -> str:
        gpu = Gpu("NVIDIA GPU", "sm_90a", 132, memory_gbps=memory_gbps)
        return to_text(choose(Problem.of(m, 7680, 5120), gpu).config)

    m = next(m for m in range(336, 4096, 64) if chosen(m, 3350) != chosen(m, 4800))
    for machine, memory_gbps in (("H100", 3350), ("H200", 4800)):
        result = run("explain", m, 7680, 5120, "--machine", machine, "--json")
        assert json.loads(result.stdout)["config"] == chosen(m, memory_gbps)


def test_explain_shows_the_tiles_of_a_gpu_before_hopper() -> None:
    result = run("explain", 4096, 4096, 4096, "--machine", "A100")
    assert result.exit_code == 0
    assert "32 x 32 = 1024 tiles, 9.48 waves of 108" in result.stdout
    assert "1 CTA on an SM" in result.stdout and "128 threads" in result.stdout


def test_sizes_may_be_one_word() -> None:
    assert run("explain", "256x512x128", "--json").stdout == run("explain", 256, 512, 128, "--json").stdout
    assert warm.one_word(["256", "512", "128"]) == warm.one_word(["256x512x128"])


@pytest.mark.parametrize(("dtype", "scales", "fused"), [("bf16", "", 3), ("e4m3", "row", 3), ("e4m3", "block128", 0),
                                                        ("s8", "", 0)])  # fmt: skip
def test_a_model_is_built_with_the_epilogues_that_its_products_have(dtype: str, scales: str, fused: int) -> None:
    plain, whole = (warm.problems_of("Llama-3-8B", "16", dtype, scales, 1, both) for both in (False, True))
    assert len(plain) == 6 and len(whole) == 6 + fused and set(plain) <= set(whole)


def test_a_model_of_experts_is_built_with_one_launch_for_all_of_a_layer() -> None:
    plain, whole = (warm.problems_of("Mixtral-8x7B", "16", "bf16", "", 1, both) for both in (False, True))
    assert not any(problem.groups for problem in plain)
    grouped = {(each.m, each.n, each.k) for each in whole if each.groups == 8}
    assert grouped == {(32, 28672, 4096), (32, 4096, 14336)}  # two experts of eight for each token


def test_explain_knows_groups_of_rows() -> None:
    told = json.loads(run("explain", 4096, 4096, 7168, "--groups", 64, "--json").stdout)
    chosen = choose(replace(Problem.of(4096, 4096, 7168), groups=64)).config
    assert (told["problem"]["groups"], told["config"], told["l2_traffic_bytes"]) == (64, chosen.name(), {})
    tile = next(each for each in told["tiles"] if each["tile"] == [128, 256])
    assert (tile["tiles"], tile["tile_efficiency"]) == (64 * 16, 0.5)  # a tile of 128 rows for each group of 0 to 128
    said = run("explain", 4096, 4096, 7168, "--groups", 64).stdout
    assert "kernel   grouped: " in said and "tiles of uneven groups" in said


@pytest.mark.parametrize(
    "options", [("--groups", 2000), ("--groups", -1), ("--groups", 2, "--gate"), ("--groups", 2, "--layout", "tt")]
)
def test_groups_that_no_kernel_computes_are_refused(options: tuple[object, ...]) -> None:
    for command in ("explain", "tune"):
        result = run(command, 64, 64, 64, *options)
        assert result.exit_code == 2 and "ArgumentError[argument]" in result.stderr


@pytest.mark.parametrize(
    "arguments", [("256x512",), ("a", "b", "c"), (1, 2, 3, 4), (0, 1, 1), (64, 64, 64, "--dtype", "f64"),
                  (64, 64, 64, "--machine", "B300"), (64, 64, 64, "--config", "pingpong")]
)  # fmt: skip
def test_explain_called_wrongly_says_what_it_takes(arguments: tuple[object, ...]) -> None:
    result = run("explain", *arguments)
    assert result.exit_code == 2 and "expected" in result.stderr


@pytest.mark.parametrize(
    "dtype, names, peak",
    [("f32", ("f32", "f32"), 535.3), ("s8", ("s8", "s32"), 2141.0), ("f16", ("f16", "f16"), 1070.5)],
)  # fmt: skip
def test_explain_takes_every_type_that_matmul_multiplies(dtype: str, names: tuple[str, str], peak: float) -> None:
    told = json.loads(run("explain", 1024, 1024, 1024, "--dtype", dtype, "--json").stdout)
    assert (told["problem"]["dtype"], told["problem"]["out"]) == names
    assert told["peak_tflops"] == pytest.approx(peak, abs=0.1)
    assert told["config"] == told["library"]["config"]


@pytest.mark.parametrize("command", ["explain", "tune"])
@pytest.mark.parametrize(
    "options, words",
    [
        (("--scales", "block128"), "scales of blocks of 128 need eight-bit operands"),
        (("--scales", "column"), "unknown scales 'column'"),
        (("--dtype", "s8", "--bias"), "which do not support an epilogue"),
        (("--dtype", "e4m3", "--scales", "block128", "--gate"), "supports no epilogue"),
        (("--activation", "tanh"), "unknown activation 'tanh'"),
        (("--out", "s32"), "bf16 x bf16 does not give s32"),
    ],
)  # fmt: skip
def test_what_matmul_refuses_is_refused_by_explain_and_tune(
    command: str, options: tuple[str, ...], words: str
) -> None:  # fmt: skip
    result = run(command, 256, 256, 256, *options)
    assert result.exit_code == 2 and words in result.stderr
