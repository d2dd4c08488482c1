"""The lab's pages: their own computations, and that every page runs and shows the package's figures."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import symtable
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from tests.errors import refused
from warploom.cli.lab import pages
from warploom.errors import ArgumentError
from warploom.isa import descriptors, fragments
from warploom.isa.dtypes import bf16
from warploom.isa.swizzle import Swizzle
from warploom.kernels.ladder import find
from warploom.lab import patterns, power_limit, roofline, schedules, stages, svg

# -- patterns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression, size, conflicts, sectors",
    [("lane * 4", 4, 0, 4), ("lane * 8", 4, 1, 8), ("lane * 128", 4, 31, 32), ("lane * 132", 4, 0, 32), ("64", 4, 0, 1),
     ("lane // 8 * 128 + lane % 8 * 16", 16, 0, 16), ("lane % 8 * 128 + lane // 8 * 16", 16, 28, 16),
     ("lane % 8 * 128 + ((lane // 8) ^ (lane % 8)) * 16", 16, 0, 16)],
)  # fmt: skip
def test_a_typed_pattern_costs_what_the_emulator_counts(expression: str, size: int, conflicts: int, sectors: int):
    found = patterns.access(patterns.addresses(expression), size)
    assert (found.conflicts, found.sectors) == (conflicts, sectors)
    assert found.useful == pytest.approx(np.unique(found.addresses).size * size / (32 * sectors))


@pytest.mark.parametrize(
    "expression",
    ["", "lane *", "lane.real", "__import__('os')", "print(lane)", "lane * 4.0", "-lane", "lane % 0",
     "lane // (lane - 3)", "1 << 60", "lane << lane * 9", "'a'", "[lane]"],
)  # fmt: skip
def test_what_is_no_address_is_refused(expression: str):
    with pytest.raises(ArgumentError):
        patterns.addresses(expression)


def test_an_access_that_is_not_aligned_is_refused():
    with refused("argument", got="4 bytes"):
        patterns.access(patterns.addresses("lane * 4 + 2"), 4)


# -- schedules -----------------------------------------------------------------------------------------------------


def done(schedule: schedules.Schedule) -> list[tuple[int, int]]:
    """Each k-tile of each tile that is worked on."""
    return sorted(
        (piece.tile, k) for pieces in schedule.ctas for piece in pieces for k in range(piece.first, piece.last)
    )


@pytest.mark.parametrize("tiles, k_tiles, ctas", [(1, 1, 1), (10, 32, 8), (3, 7, 16), (9, 5, 4), (2, 3, 24)])
def test_every_schedule_does_each_k_tile_once_and_no_cta_two_at_a_time(tiles: int, k_tiles: int, ctas: int):
    all_of_it = [(tile, k) for tile in range(tiles) for k in range(k_tiles)]
    made = (
        schedules.data_parallel(tiles, k_tiles, ctas), schedules.split_k(tiles, k_tiles, ctas, 4),
        schedules.stream_k(tiles, k_tiles, ctas),
    )  # fmt: skip
    for schedule in made:
        assert done(schedule) == all_of_it and len(schedule.ctas) == ctas
        for pieces in schedule.ctas:
            assert all(one.end == next_.start for one, next_ in zip(pieces, pieces[1:], strict=False))
    assert made[2].time == -(-tiles * k_tiles // min(ctas, tiles * k_tiles)), "shares differ by one at most"
    assert made[0].partial == 0


def test_stream_k_is_as_short_as_the_work_allows_where_waves_are_not():
    wave, split, stream = (
        schedules.data_parallel(10, 32, 8), schedules.split_k(10, 32, 8, 4), schedules.stream_k(10, 32, 8),
    )  # fmt: skip
    assert (wave.time, split.time, stream.time) == (64, 40, 40)
    assert wave.busy == pytest.approx(0.625) and stream.busy == 1.0
    assert stream.partial == 2 * 6, "six tiles are cut"


# -- stages --------------------------------------------------------------------------------------------------------


@lru_cache
def timeline() -> Any:
    a = np.zeros((128, 512), bf16.numpy)
    return find("warp_specialised").build().predict(a, a, timeline=True).timeline


def test_a_stage_goes_round_its_states_without_a_gap():
    spans = stages.spans(timeline())
    for stage in {span.stage for span in spans}:
        mine = sorted((span for span in spans if span.stage == stage), key=lambda span: span.start)
        assert mine[0].start == 0 and mine[-1].end == timeline().end
        assert all(one.end == next_.start for one, next_ in zip(mine, mine[1:], strict=False))
        order = [stages.STATES.index(span.state) for span in mine]
        assert all((after - before) % 4 in (1, 2) for before, after in zip(order, order[1:], strict=False)), order
    reads = [span for span in spans if span.state == "read"]
    assert len(reads) == 512 // 64, "each k-tile is read once"


# -- power and pictures --------------------------------------------------------------------------------------------


def test_more_power_gives_a_faster_limit_and_zeros_cost_less():
    limits = [power_limit.limit(8192, 8192, 8192, cap_watts=cap) for cap in (400, 700, 1000)]
    assert limits[0].tflops < limits[1].tflops < limits[2].tflops
    assert all(limit.watts <= cap + 1 for limit, cap in zip(limits, (400, 700, 1000), strict=True))
    assert power_limit.limit(8192, 8192, 8192, zeros=True).clock_mhz > limits[1].clock_mhz
    assert power_limit.limit(8192, 8192, 8192, "f16").clock_mhz < limits[1].clock_mhz
    assert power_limit.limit(16, 8192, 8192).bound == "DRAM" and limits[1].bound == "tensor cores"
    measured = 708.0  # the fastest rung of the ladder stays below the limit
    assert measured < limits[1].tflops < roofline.Roofline.of("H200").peak / 1e12


def test_pictures_escape_what_they_say():
    made = svg.bars({"<a>": [(0, 1, 0, "x & y")]}, 1.0, 'a "title"')
    assert "&lt;a&gt;" in made and "x &amp; y" in made and 'aria-label="a &quot;title&quot;"' in made


# -- the pages -----------------------------------------------------------------------------------------------------


def run(name: str) -> dict[str, Any]:
    """What the cells of a page define when it is run as it opens."""
    pytest.importorskip("marimo")
    spec = importlib.util.spec_from_file_location(f"page_{name}", pages()[name])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outputs, defined = module.app.run()
    assert any("<svg" in getattr(output, "text", "") for output in outputs if output is not None)
    return dict(defined)


@pytest.mark.parametrize("name", pages())
def test_a_page_is_a_script_whose_cells_take_all_names_that_they_use(name: str):
    """Without marimo, too. marimo runs a page outside the package, and only its cells."""
    tree = ast.parse(pages()[name].read_text())
    outside = [one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(one) for one in outside] == ["import marimo"]
    scopes = symtable.symtable(ast.unparse(tree), name, "exec")
    free = {symbol.get_name() for cell in scopes.get_children() for symbol in _all(cell) if symbol.is_global()}
    assert free - set(vars(builtins)) == set()


def _all(scope: symtable.SymbolTable) -> Iterator[symtable.Symbol]:
    """The names of a scope and of those in it."""
    yield from scope.get_symbols()
    for inside in scope.get_children():
        yield from _all(inside)


def test_the_pages_are_known():
    assert set(pages()) == {
        "accesses", "fragments", "occupancy", "pipeline", "roofline", "schedules", "swizzles", "waves",
    }  # fmt: skip


def test_the_roofline_page_shows_the_roofline():
    found = run("roofline")
    assert found["intensity"] == roofline.intensity(4096, 4096, 4096)
    assert found["attainable"] == roofline.Roofline.of("H200").attainable(found["intensity"])
    assert found["limit"] == power_limit.limit(4096, 4096, 4096)


def test_the_occupancy_page_shows_the_occupancy():
    assert run("occupancy")["found"] == roofline.occupancy("sm_90a", 384, 168, 96 << 10)


def test_the_waves_page_shows_waves_and_traffic():
    found = run("waves")
    assert found["found"] == roofline.waves(4096, 4096, 128, 256, 132)
    order = roofline.ORDERS["grouped 8"]
    assert found["traffic"]["grouped 8"] == roofline.l2_traffic(4096, 4096, 4096, 128, 256, order, 132, 30 << 20)


def test_the_accesses_page_shows_an_access():
    assert run("accesses")["found"].conflicts == 0


def test_the_swizzles_page_shows_descriptors():
    found = run("swizzles")
    described = descriptors.Descriptor(1024, 1024, 1024, Swizzle.B128)
    assert found["bits"] == described.encode() and found["moved"] == Swizzle.B128.apply(1024)
    np.testing.assert_array_equal(found["where"], descriptors.operand_addresses(described, bf16, 16, 16, "K"))


def test_the_schedules_page_shows_three():
    assert [one.time for one in run("schedules")["found"]] == [64, 40, 40]


def test_the_fragments_page_shows_an_owner_map():
    found = run("fragments")
    assert found["fragment"] is fragments.mma_a(16, 16, 16)
    made = [function(*arguments) for function, arguments in found["maps"].values()]
    assert all(one.owner.min() >= 0 for one in made if isinstance(one, fragments.Fragment))
    functions = {name for name, made in vars(fragments).items() if hasattr(made, "cache_info")} - {"wmma"}
    assert {function.__name__ for function, _ in found["maps"].values()} == functions, "every layout has a map"


@pytest.mark.full
def test_the_pipeline_page_shows_states():
    assert {span.state for span in run("pipeline")["spans"]} == set(stages.STATES)
