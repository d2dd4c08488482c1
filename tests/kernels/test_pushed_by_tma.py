"""Rows that TMA pushes to peer GPUs: segments of any size and number arrive, and each is waited for."""

from __future__ import annotations

import pytest

from tests.kernels.test_tensor_parallel import BY_TMA, CONFIG, ROUNDING, built, problem
from warploom import H200
from warploom.errors import ArgumentError
from warploom.kernels.hopper import gemm_all_gather, pushed_by_tma, ranked_tile
from warploom.kernels.hopper.description import TILE_K_BYTES, Config, Fusion, Product


@pytest.mark.sample(1, full=3)
@pytest.mark.parametrize("in_flight", [1, 4, 12])
@pytest.mark.parametrize(("rows", "k", "segment"), [(2, 1160, 512), (9, 72, 2048), (9, 136, 128)])
def test_segments_of_any_number_and_size_may_be_on_their_way(monkeypatch, in_flight: int, rows: int, k: int, segment):
    """Rows have several segments, of which the last is short, or pieces have fewer than may be on their way."""
    monkeypatch.setattr(pushed_by_tma, "MOST_SEGMENT", segment)
    monkeypatch.setattr(pushed_by_tma, "LEAST_SEGMENT", segment)
    posed = problem(BY_TMA, 2, rows, 8, k)
    kernel = gemm_all_gather.build.__wrapped__(2, config=CONFIG, by="tma", in_flight=in_flight)
    report = kernel.emulate(*posed.arguments, devices=2, machine=H200(sms=1), calls=2, schedule="starve")
    assert not report.findings
    assert posed.worst(report.outputs[0]) < ROUNDING
    assert f"cp.async.bulk.wait_group {in_flight - 1};" in kernel.ptx()


WEAKENED = {
    "a segment counts as arrived when it was read": ("wait_group 3;", "wait_group.read 3;", "peer-proxy"),
    "a slot is loaded again while it is read": ("wait_group 3;", "wait_group 4;", "store-source-overwritten"),
    "the mover's count orders nothing": ("st.release.cta.shared", "st.relaxed.cta.shared", "peer-proxy"),
    "the signaller orders nothing behind it": ("ld.acquire.cta.shared", "ld.relaxed.cta.shared", "peer-proxy"),
}


@pytest.mark.sample(1, full=4)
@pytest.mark.parametrize("what", WEAKENED)
def test_a_segment_is_signalled_and_its_slot_used_again_only_when_it_has_arrived(what: str):
    """The piece of the first chunk of K is signalled while that of the second is on its way."""
    right, wrong, rule = WEAKENED[what]
    kernel, posed = built(BY_TMA, 2, in_flight=4), problem(BY_TMA, 2, 8, 8, 1032)
    assert right in kernel.ptx()
    text = kernel.ptx().replace(right, wrong)
    report = kernel.emulate(*posed.arguments, devices=2, machine=H200(sms=1), ptx=text)
    assert rule in {finding.rule for finding in report.findings}


@pytest.mark.parametrize("options, code", [
    ({"by": "tma"}, "configuration"), ({"by": "tma", "in_flight": 0}, "configuration"),
    ({"by": "tma", "in_flight": 17}, "configuration"), ({"by": "warps"}, "unknown-name"),
])  # fmt: skip
def test_forms_that_do_not_fit_beside_the_tiles_are_refused(options, code):
    """The usual configuration has two store boxes per consumer, which leaves no slots."""
    config = CONFIG if "in_flight" in options else gemm_all_gather.CONFIG
    with pytest.raises(ArgumentError) as error:
        gemm_all_gather.build(2, config=config, **options)
    assert error.value.code == code


@pytest.mark.parametrize("columns", ranked_tile.COLUMNS)
def test_every_tile_leaves_room_for_slots(columns: int):
    """With 4, 6, 8 and 12 segments on their way, more of them have more bytes together."""
    config = Config(ctas=1, pdl=False, tile_n=columns, epi_stages=1,
                    stages=ranked_tile.RING_BYTES // ((128 + columns) * TILE_K_BYTES))  # fmt: skip
    together = [each * pushed_by_tma.segment_bytes(each, config, Product(), Fusion()) for each in (4, 6, 8, 12)]
    assert together == sorted(together) and together[1] == 6 * pushed_by_tma.MOST_SEGMENT
