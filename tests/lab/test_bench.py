"""The benchmark without a GPU: suites, protocols on a mock clock, contenders that are missing or wrong, rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.errors import refused
from warploom.kernels.hopper.names import large_config
from warploom.lab import bench, contender, contenders, evidence, plans, roofline
from warploom.lab.bench import Bench, ratios_in_turns
from warploom.lab.contender import Contender, Prepared
from warploom.lab.plans import Plan
from warploom.lab.suites import SUITES, skewed
from warploom.lab.work import GemmWork, parse_shapes
from warploom.runtime.benchmark import protocols
from warploom.runtime.benchmark.clock import ClockReading
from warploom.runtime.benchmark.power import PowerMeter
from warploom.runtime.benchmark.protocols import Spread
from warploom.runtime.benchmark.watchdog import HANG, Watchdog

TIME = [0.0]
"""The mock clock, in seconds; calls of `taking` move it."""


class Clock:
    """A timer on the mock clock."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.idled = 0.0

    def timed(self, call: Callable[[], object], launches: int) -> float:
        started = TIME[0]
        for _ in range(launches):
            call()
        self.ran.append(getattr(call, "name", "?"))
        return (TIME[0] - started) / launches

    def now(self) -> float:
        return TIME[0]

    def idle(self, seconds: float) -> None:
        TIME[0] += seconds
        self.idled += seconds


def taking(name: str, seconds: float) -> Callable[[], None]:
    def call() -> None:
        TIME[0] += seconds

    call.name = name  # type: ignore[attr-defined]
    return call


# -- protocols -----------------------------------------------------------------------------------------------------


def test_alone_runs_solid_blocks_a_b_a_b_and_drops_their_beginnings() -> None:
    clock, heard = Clock(), []
    calls = {"a": taking("a", 0.001), "b": taking("b", 0.002)}
    spreads = protocols.alone(calls, clock, block_s=1.0, watch=lambda *what: heard.append(what))
    blocks = [name for at, name in enumerate(clock.ran) if at == 0 or clock.ran[at - 1] != name]
    assert blocks == ["a", "b", "a", "b"]
    assert {name: spread.median for name, spread in spreads.items()} == pytest.approx({"a": 0.001, "b": 0.002})
    assert len(spreads["a"].samples) == pytest.approx(2 * 20, abs=2), "a second of slices of 50 ms, twice"
    dropped = [what for what in heard if what == ("a", False)]
    assert len(dropped) >= 2 * 5, "the first quarter of a second does not count"


def test_of_a_kernel_that_takes_longer_than_a_block_one_launch_of_each_block_counts() -> None:
    clock = Clock()
    spreads = protocols.alone({"slow": taking("slow", 2.0)}, clock, block_s=0.25)
    assert spreads["slow"].samples == pytest.approx([2.0, 2.0])
    assert len(clock.ran) == 2 * (1 + 1 + 1), "one to see how long it takes, one that is dropped, one that counts"


def test_interleaved_runs_every_contender_once_in_each_round_in_changing_order() -> None:
    clock = Clock()
    calls = {name: taking(name, 0.001) for name in "abcd"}
    spreads = protocols.interleaved(calls, clock, rounds=15)
    rounds = [tuple(clock.ran[-60:][at : at + 4]) for at in range(0, 60, 4)]
    assert all(sorted(each) == list("abcd") for each in rounds)
    assert len(set(rounds)) > 5
    assert all(len(spread.samples) == 15 for spread in spreads.values())


@pytest.mark.parametrize("per_call, launches", [(1, 8), (8, 1)])
def test_burst_times_eight_launches_after_a_pause(per_call: int, launches: int) -> None:
    clock = Clock()
    counted = []

    def call() -> None:
        counted.append(1)
        TIME[0] += 0.001

    protocols.burst({"a": call}, clock, rounds=1, per_call=per_call)
    assert len(counted) == 1 + launches
    assert clock.idled == protocols.BURST_PAUSE_S


def test_a_process_whose_gpu_does_not_answer_is_ended_and_told_who_it_was() -> None:
    said: list[str] = []
    ended: list[int] = []
    with Watchdog(said.append, limit_s=0.05, end=ended.append) as watchdog:
        watchdog.beat("triton 64x64x64")
        watchdog._thread.join(timeout=5)
    assert (said, ended) == (["triton 64x64x64"], [HANG])


def test_a_step_that_says_it_takes_long_may_take_long() -> None:
    now = [0.0]
    watchdog = Watchdog(lambda who: None, now=lambda: now[0])
    watchdog.beat("compiling", 100.0)
    now[0] = 99.0
    assert not watchdog.late()
    now[0] = 101.0
    assert watchdog.late()


def test_power_is_kept_for_whoever_ran() -> None:
    meter = PowerMeter()
    meter.take(1980, 120.5)
    meter.label = "a"
    meter.take(1400, 690.0)
    assert (meter.labelled["a"].watts, meter.labelled["a"].megahertz) == (690.0, 1400.0)
    assert meter.header()["power_w"] == {"median": 405.2, "min": 120.5, "max": 690.0, "samples": 2}


# -- suites and plans ----------------------------------------------------------------------------------------------


def test_flops_and_bytes_of_a_problem() -> None:
    assert GemmWork(2, 3, 5).flops == 60
    assert GemmWork(2, 3, 5).bytes == 2 * (10 + 15 + 6)
    assert GemmWork(2, 3, 5, dtype="e4m3", out="f32").bytes == 10 + 15 + 24
    assert GemmWork(2, 3, 5, kind="swiglu").flops == 120
    assert GemmWork(4, 3, 5, kind="grouped", rows=(1, 3)).bytes == 2 * (20 + 2 * 15 + 12)


def test_every_suite_names_problems_and_contenders_that_exist() -> None:
    of_attention = {"attention", "attention-decode"}
    products = {"square", "llm", "small-k", "launch", "decode", "fp8", "grouped", "fused", "overhead"}
    assert set(SUITES) == products | of_attention
    for suite in SUITES.values():
        assert suite.problems and len(set(suite.problems)) == len(suite.problems)
        others = [contenders.find(name) for name in suite.against]
        for problem in suite.problems:
            takes = [
                each for each in others
                if problem.kind in each.kinds and problem.dtype in each.dtypes and problem.scales in each.scales
            ]  # fmt: skip
            assert takes, f"{suite.name}: nobody to be compared with at {problem.shape}"
            assert suite.name in of_attention or isinstance(problem, GemmWork)


def test_the_skewed_experts_are_the_same_every_time_and_some_are_empty() -> None:
    rows = skewed(64, 512)
    assert rows == skewed(64, 512)
    assert len(rows) == 64 and 0 in rows and max(rows) > 400


def test_shapes_are_read_from_text() -> None:
    like = GemmWork(1, 1, 1, dtype="e4m3", scales="row")
    assert parse_shapes("8x16x32, 4X4X4", like) == (replace(like, m=8, n=16, k=32), replace(like, m=4, n=4, k=4))


@pytest.mark.parametrize("text", ["8x16", "8x16xk", "0x1x1", "8*8*8", ""])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with refused("argument", expected="MxNxK, as in 4096x4096x4096,512x8192x8192"):
        parse_shapes(text, GemmWork(1, 1, 1))


@pytest.mark.parametrize(
    "options, says",
    [
        ({"suite": "sqare"}, ("unknown-name", "'sqare'")),
        ({"suite": "square", "protocols": "alone,fast"}, ("unknown-name", "'fast'")),
        ({"suite": "square", "against": "cublas,cutlas"}, ("unknown-name", "'cutlas'")),
        ({"suite": "square", "data": "ones"}, ("unknown-name", "'ones'")),
        ({"suite": "square", "seconds": 0}, ("argument", "0")),
        ({"suite": "square", "launch": "graphs"}, ("argument", "graphs")),
        ({"suite": "square", "configs": ["pingpong"]}, ("argument", "pingpong")),
        ({"suite": "square", "configs": ["rung:99"]}, ("argument", "'99'")),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_what_there_is(options: dict[str, Any], says: str) -> None:
    with refused(*says) as caught:
        plans.plan(**options)
    assert caught.value.expected


def test_a_plan_without_words_is_the_suites_own() -> None:
    plan = plans.plan("square")
    assert [each.name for each in plan.contenders] == ["warploom", "cublas", "cublaslt-best", "triton"]
    assert plan.protocols == ("alone", "interleaved", "burst")
    assert plan.problems[0] == GemmWork(8192, 8192, 8192)
    assert [each.name for each in plans.plan("square", against="none").contenders] == ["warploom"]


# -- contenders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["triton", "deepgemm", "quack"])
def test_a_contender_that_is_not_installed_is_named_as_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contender, "installed", lambda package: False)
    assert contenders.find(name).missing() == f"{contenders.find(name).needs} is not installed"


def test_a_contender_says_which_problems_it_does_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contender, "installed", lambda package: True)
    assert (
        contenders.find("cublas").missing(GemmWork(8, 8, 8, dtype="e4m3", scales="tensor")) == "it does not take e4m3"
    )
    assert (
        contenders.find("scaled-mm").missing(GemmWork(8, 8, 8, dtype="e4m3", scales="row")) == "it takes other scales"
    )
    assert contenders.find("cublas").missing(GemmWork(8, 8, 8, kind="gelu")) == "it has no gelu"
    assert contenders.find("cublas").missing(GemmWork(8, 8, 8)) is None


def test_the_fastest_proposal_is_the_one_with_the_least_median() -> None:
    from warploom.lab import cublaslt

    times = {0: iter([3.0, 1.0, 3.0]), 1: iter([2.0, 2.0, 9.0]), 2: iter([4.0, 4.0, 4.0])}
    assert cublaslt.fastest([None] * 3, lambda at: next(times[at])) == 1  # type: ignore[list-item]


@pytest.mark.parametrize(
    "text, fields",
    [("cooperative_256x192x3_2a_g8", "tile_m=256,tile_n=192,stages=3,multicast=a"),
     ("ping_pong_128x192x5_2b_g8", "kernel_schedule=ping_pong,tile_n=192,stages=5,epi_stages=1"),
     ("staggered_256x128x4_g1", "kernel_schedule=staggered,tile_m=256,tile_n=128,ctas=1,group=1")],
)  # fmt: skip
def test_a_configuration_is_found_by_its_name_and_by_the_one_that_earlier_tables_show(text: str, fields: str) -> None:
    assert large_config(text).name() == f"hopper_large:{fields}"
    assert large_config(f"hopper_large:{fields}") == large_config(fields) == large_config(text)


def test_evidence_of_one_configuration_agrees_whichever_version_named_it() -> None:
    short = {"config": "n16_w64k2s5_S2c_o2_start_p6", "kernel": "hopper_decode", "m": 16}
    name = "small_m:stages=5,split=2,ctas_per_sm=2,prefetch=6"
    assert evidence.identity(short) == evidence.identity({"config": name, "kernel": "hopper_small_m", "m": 16})
    assert evidence.identity(short) != evidence.identity({**short, "config": "its own"})


def test_fields_of_a_configuration_can_be_set() -> None:
    config = large_config("cooperative_256x192x3_2a_g8,epi_stages=3,pdl=0")
    assert (config.epi_stages, config.pdl, config.tile_m) == (3, False, 256)
    assert large_config("staggered_256x192x3_2b_g8_tail").epi_stages == 3
    assert large_config("ping_pong_128x192x5_2b_g8").epi_stages == 1
    assert large_config("cooperative_128x256x4_g8").epi_stages == 2
    assert large_config("cooperative_192x192x4_g8").epi_stages == 1, "two do not fit"
    assert large_config("kernel_schedule=ping_pong,stages=5").stages == 5
    with refused("argument", got="many"):
        large_config("kernel_schedule=ping_pong,epi_stages=many")


# -- a run ---------------------------------------------------------------------------------------------------------


class Pretended(Contender):
    """Takes so long; may be wrong, or fail."""

    needs = "json"
    dtypes = ("bf16",)

    def __init__(self, name: str, seconds: float, error: float = 1e-3, fails: str = "", absent: str = "") -> None:
        self.name, self.seconds, self.error, self.fails, self.absent = name, seconds, error, fails, absent

    def missing(self, problem: GemmWork | None = None) -> str | None:
        return self.absent or super().missing(problem)

    def prepare(self, problem: GemmWork, sets: Sequence[Any], beat: Any) -> Prepared:
        if self.fails:
            raise RuntimeError(self.fails)
        return Prepared([taking(self.name, self.seconds)], "kernel of " + self.name, "tile", {"error": self.error})


class PretendedStage:
    """A mock GPU."""

    def __init__(self) -> None:
        self.timer = Clock()
        self.released = 0

    def operands(self, problem: GemmWork, data: str) -> list[Any]:
        return [object()]

    def check(self, problem: GemmWork, sets: Sequence[Any], prepared: Prepared) -> tuple[float, bool]:
        error = prepared.facts.pop("error")
        return error, error < 0.01

    def ready(self, calls: Sequence[Any], launch: str, count: int) -> tuple[Callable[[], object], int]:
        call, per = calls[0], 4 if launch == "graph" else 1
        return bench.Chain(call, per), per

    def clock(self, program: Any, arguments: Sequence[Any], seconds: float) -> tuple[ClockReading, float]:
        return ClockReading(3000, 2000), 2e-6

    def share(self, reading: ClockReading, tflops: float, dtype: str) -> float:
        return roofline.activity(tflops, reading.megahertz * 1e6, 132, dtype, "sm_90a")

    def host_us(self, prepared: Prepared) -> float:
        started = TIME[0]
        prepared.calls[0]()
        return (TIME[0] - started) * 1e6

    def release(self) -> None:
        self.released += 1


def run(contenders: Sequence[Contender], suite: str = "square", **options: Any) -> tuple[Bench, list[str]]:
    plan = plans.plan(suite, shapes="64x64x64,128x64x64", **options)
    plan = replace(plan, contenders=tuple(contenders))
    said: list[str] = []
    one = Bench(plan, PretendedStage(), PowerMeter(), Watchdog(lambda who: None), said.append)
    one.run()
    return one, said


def test_a_run_gives_a_row_for_each_problem_contender_and_protocol_with_ratios() -> None:
    one, _ = run([Pretended("warploom", 1e-6), Pretended("cublas", 2e-6)], protocols="interleaved,burst")
    rows = one.results.rows
    assert len(rows) == 2 * 2 * 2
    mine = rows[0]
    assert mine["us"]["median"] == 1.0, "a graph of four calls is four calls"
    assert mine["tflops"]["median"] == round(2 * 64**3 / 1e-6 / 1e12, 2)
    assert mine["ratio_to"] == {"cublas": 2.0}
    assert (mine["kernel"], mine["config"], mine["protocol"]) == ("kernel of warploom", "tile", "interleaved")
    wanted = {"m", "n", "k", "dtype", "layout", "provider", "kernel", "protocol", "config", "tflops", "ratio_to",
              "relative_error"}  # fmt: skip
    assert all(wanted <= set(row) for row in rows)
    assert one.results.summary()[1] == {
        "provider": "warploom", "problems": "bf16", "protocol": "burst", "launch": "graph", "against": "cublas",
        "geomean": 2.0, "min": 2.0, "count": 2,
    }  # fmt: skip
    json.dumps(rows)


def test_who_is_missing_wrong_or_broken_is_named_and_not_timed() -> None:
    one, said = run(
        [
            Pretended("warploom", 1e-6),
            Pretended("cublas", 1e-6, error=0.5),
            Pretended("triton", 1e-6, fails="out of registers"),
            Pretended("quack", 1e-6, absent="quack is not installed"),
        ],
        protocols="burst",
    )
    assert {row["provider"] for row in one.results.rows} == {"warploom"}
    assert one.results.missing == [{"provider": "quack", "reason": "quack is not installed"}]
    assert [(each["provider"], each["shape"]) for each in one.results.failed] == [
        ("cublas", "64x64x64"), ("triton", "64x64x64"), ("cublas", "128x64x64"), ("triton", "128x64x64"),
    ]  # fmt: skip
    assert any("wrong result, relative error 5.00e-01" in line for line in said)
    assert any("RuntimeError: out of registers" in line for line in said)


@pytest.mark.full
def test_the_suite_launch_times_chains_by_stream_and_by_graph() -> None:
    one, _ = run([Pretended("cublas", 1e-6), Pretended("triton", 2e-6)], suite="launch")
    shown = {(row["provider"], row["launch"]): row["us"]["median"] for row in one.results.rows if row["m"] == 64}
    assert shown == {("cublas", "stream"): 1.0, ("cublas", "graph"): 1.0, ("triton", "stream"): 2.0,
                     ("triton", "graph"): 2.0}  # fmt: skip


def test_the_suite_overhead_times_the_host() -> None:
    one, _ = run([Pretended("warploom", 3e-6), Pretended("cublas", 9e-6)], suite="overhead")
    row = one.results.rows[0]
    assert (row["us"]["median"], row["protocol"], row["ratio_to"]) == (3.0, "host", {"cublas": 3.0})
    assert "tflops" not in row


def test_host_times_are_compared_pass_by_pass_as_the_clock_of_the_cpu_changes() -> None:
    slow_later = {"warploom": Spread([1.0, 2.0, 4.0, 4.0]), "cublas": Spread([3.0, 6.0, 12.0, 12.0])}
    assert ratios_in_turns("warploom", slow_later) == {"cublas": 3.0}
    one_late = {"warploom": Spread([1.0, 1.0, 2.0]), "cublas": Spread([3.0, 6.0, 6.0])}
    assert ratios_in_turns("warploom", one_late) == {"cublas": 3.0}, "the ratio of the medians is 6"


def test_power_makes_energy_for_each_flop() -> None:
    plan = replace(plans.plan("square", "alone", shapes="64x64x64"), contenders=(Pretended("warploom", 1e-6),))
    assert isinstance(plan, Plan)
    meter = PowerMeter()
    stage = PretendedStage()
    meter_label: list[str] = []

    class Fed(Clock):
        def timed(self, call: Callable[[], object], launches: int) -> float:
            meter.take(1500, 700)
            if meter.label:
                meter_label.append(meter.label)
            return super().timed(call, launches)

    stage.timer = Fed()
    one = Bench(plan, stage, meter, Watchdog(lambda who: None))
    (row,) = one.run().rows
    assert row["power_w"] == 700.0
    assert row["pj_per_flop"] == round(700 * 1e-6 / (2 * 64**3) * 1e12, 4)
    assert set(meter_label) == {"warploom|64x64x64|alone"}
