"""Decode attention against float64, in the emulator with the sanitizer: lengths, pages, rows, masks, schedules."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom
from tests.errors import refused
from tests.kernels.decode_cases import Cache
from warploom.errors import ArgumentError, ArgumentTypeError, CostLimitError
from warploom.kernels.hopper import attention_decode
from warploom.kernels.hopper.attention_decode_config import DECODE_RESERVE_BYTES, Decode, clustered, decode_config
from warploom.kernels.hopper.attention_decode_work import WorkPartition
from warploom.operators import workspace
from warploom.operators.attention import decode
from warploom.operators.kernel_cache import from_bytes, to_bytes
from warploom.runtime.machine import H200
from warploom.types import f16

ERROR, LSE_ERROR = 4e-3, 1e-5
"""P and O are rounded to bf16 once each."""


def assert_right(cache: Cache, error: float = ERROR, **how) -> None:
    out, lse = cache.call(**how)
    wanted, sums = cache.exact()
    assert not np.isnan(out).any()
    assert np.linalg.norm(out - wanted) <= error * max(np.linalg.norm(wanted), 1e-30)
    np.testing.assert_array_equal(np.isinf(lse), np.isinf(sums))
    finite = np.isfinite(sums)
    np.testing.assert_allclose(lse[finite], sums[finite], rtol=LSE_ERROR, atol=LSE_ERROR)


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("schedule", ["eager", "lazy", "random", "starve", "pct"])
@pytest.mark.parametrize("lengths", [(1,), (63, 65), (64, 0, 1), (129, 300)], ids=str)
@pytest.mark.parametrize("page", [0, 16, 64])
@pytest.mark.parametrize("tokens", [None, 100])
def test_any_lengths_are_right_and_clean_under_every_schedule(
    lengths: tuple[int, ...], page: int, tokens: int | None, schedule: str
):
    of = Decode(head_dim=64, value_dim=64, paged=bool(page))
    config = decode_config(of, 2, page or None, tokens)
    assert_right(Cache(lengths, page=page, heads=(2, 1), options={"config": config}), schedule=schedule)


CHOSEN = {
    "one round": (None, 0, False), "few": (3971, 0, False), "loaders": (None, 1, False),
    "three stages": (None, 16, False), "eight bits": (None, 0, True), "pages of eight bits": (None, 16, True),
}  # fmt: skip
"""Keys of a multiprocessor, of a page; fp8_kv."""


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", ["random", "eager", "lazy", "starve", "pct"])
@pytest.mark.parametrize("lengths", [(65, 0, 3), (129,), (1, 127)], ids=str)
@pytest.mark.parametrize("tokens, page, fp8_kv", CHOSEN.values(), ids=CHOSEN)
def test_what_is_chosen_for_heads_of_128_is_right_and_clean_at_short_ragged_lengths(
    tokens: int | None, page: int, fp8_kv: bool, lengths: tuple[int, ...], schedule: str
):
    config = decode_config(Decode(paged=bool(page), fp8_kv=fp8_kv), 2, page or None, tokens)
    options = {"config": config, "constant_lengths": schedule == "pct"}
    cache = Cache(lengths, heads=(2, 1), dim=(128, 128), page=page, fp8_kv=fp8_kv, options=options)
    assert_right(cache, schedule=schedule)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", ["random", "eager", "lazy", "starve", "pct"])
@pytest.mark.parametrize("cluster, lengths, page, options", [
    (4, (129, 300, 0, 1), 0, {}), (2, (129, 70), 16, {}), (8, (300,), 0, {"window": 100}),
    (4, (70, 200), 0, {"constant_lengths": True, "sinks": np.array([300, -2.5], np.float32)}),
])  # fmt: skip
def test_clusters_share_a_head_and_combine_their_parts_in_shared_memory(
    cluster: int, lengths: tuple[int, ...], page: int, options: dict[str, Any], schedule: str
):
    of = Decode(head_dim=64, value_dim=64, paged=bool(page))
    config = replace(decode_config(of, 2, page or None, 100), cluster=cluster)
    assert_right(Cache(lengths, page=page, heads=(2, 1), options={"config": config, **options}), schedule=schedule)


def test_a_cluster_that_cannot_divide_the_columns_is_refused():
    config = replace(decode_config(Decode(head_dim=64, value_dim=72), 2, None, 100), cluster=4)
    with refused("configuration"):
        Cache(dim=(64, 72), options={"config": config}).call()


@pytest.mark.parametrize("together", [1, 2])
def test_parts_are_added_up_in_as_many_rounds_as_it_takes(together: int):
    config = replace(decode_config(Decode(head_dim=64, value_dim=64), 2, None, 100), splits_per_read=together)
    assert_right(Cache((190,), heads=(2, 1), options={"config": config}))


def test_counters_are_zero_after_every_launch(monkeypatch):
    kept: dict[str, Any] = {}

    def of_stream(name: str, *how: Any) -> Any:
        return kept.setdefault(name, workspace.of_stream(name, *how))

    monkeypatch.setattr(decode, "of_stream", of_stream)
    config = decode_config(Decode(head_dim=64, value_dim=64), 2, None, 100)
    for _ in range(2):
        assert_right(Cache((190, 70), heads=(4, 2), options={"config": config}))
        assert kept["decode counters"].host.shape[0] == 4 and not kept["decode counters"].host.any()
    assert kept["decode"].host.any(), "CTAs share a head"


@pytest.mark.full
def test_a_step_with_memory_of_its_own_gives_the_same_bits_whatever_was_in_it(monkeypatch):
    def of_call(*how: Any) -> Any:
        made = workspace.of_call(*how)
        made.host.view(np.uint32)[...] = 0x7FC00000
        return made

    monkeypatch.setattr(decode, "of_call", of_call)
    cache = Cache((190, 70), heads=(4, 2))
    given, lengths = cache.arrays(), np.array(cache.lengths, np.int32)
    tensors = {**{name: given[name] for name in "qkv"}, "lengths": lengths}
    options = {"numbers": {}, "causal": True, "scale": None, "window": None, "softcap": None, "constant_lengths": False}
    found, _ = decode.attention_step(tensors, layout="bshd", **options)
    assert np.array_equal(
        found.view(np.uint16),
        decode.attention_decode(given["q"], given["k"], given["v"], lengths, layout="bshd").view(np.uint16),
    )


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("page", [1, 5, 16, 17, 48, 64, 200, 256])
def test_pages_of_any_size_and_lengths_at_their_edges(page: int):
    assert_right(Cache((70, 3, 0, 1, page - 1, page, page + 1), page=page, heads=(2, 1)))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("queries, heads", [(1, (1, 1)), (3, (4, 2)), (5, (4, 1)), (16, (3, 1)), (2, (40, 1))])
@pytest.mark.parametrize("causal", [True, False])
def test_one_to_sixteen_tokens_of_any_number_of_heads(queries: int, heads: tuple[int, int], causal: bool):
    assert_right(Cache((70, 2), queries, heads, options={"causal": causal}))


@pytest.mark.parametrize("lengths", [(64, 80), (16, 32)])
def test_the_diagonal_is_masked_where_a_warps_last_keys_are_the_last_ones(lengths: tuple[int, ...]):
    assert_right(Cache(lengths, 5, (4, 1)))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("dim", [(8, 8), (40, 72), (96, 96), (128, 128), (192, 128), (256, 256)])
def test_head_dimensions_that_are_not_whole_panels_too(dim: tuple[int, int]):
    assert_right(Cache((70,), heads=(2, 1), dim=dim))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(
    "options",
    [{"window": 20}, {"window": 0}, {"window": 1000}, {"sinks": np.array([0.5, -np.inf], np.float32)},
     {"window": 70, "sinks": np.array([300, 2], np.float32)}],
    ids=str,
)  # fmt: skip
def test_windows_and_sinks(options):
    assert_right(Cache((140, 1), 2, (2, 1), options=options))


def test_a_softcap():
    assert_right(Cache((70,), heads=(2, 1), options={"softcap": 3.0}), error=2e-2)  # tanh.approx: 2^-11 of the cap


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("page, fp8_kv", [(0, False), (16, True)])
def test_maxima_that_grow_from_tile_to_tile(page: int, fp8_kv: bool):
    """Scores of deviation 32: what was added up before a new maximum is scaled down by more than 2^8."""
    config = decode_config(Decode(head_dim=64, value_dim=64, paged=bool(page), fp8_kv=fp8_kv), 2, page or None, 100)
    options = {"scale": 4.0, "config": config}
    assert_right(Cache((300, 140), heads=(2, 1), page=page, fp8_kv=fp8_kv, options=options))


def test_half_precision():
    assert_right(Cache((70,), heads=(2, 1), dtype=np.float16), error=6e-4)


SCALES = {
    name: np.array([[0.5, 2.0], [1.5, 0.75]], np.float32) * at for at, name in enumerate(("k_scale", "v_scale"), 1)
}


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize(
    "cache",
    [Cache((130, 33), fp8_kv=True), Cache((130, 33), fp8_kv=True, options=SCALES),
     Cache((70, 300), 5, (8, 2), fp8_kv=True, page=16, options={"k_scale": 0.5, "v_scale": 3.0}),
     Cache((70,), 1, (2, 1), (48, 96), fp8_kv=True), Cache((70,), 1, (2, 1), (128, 128), np.float16, fp8_kv=True),
     Cache((70,), 1, (2, 1), (256, 256), fp8_kv=True)],
    ids=str,
)  # fmt: skip
def test_a_cache_of_eight_bits(cache: Cache):
    assert_right(cache)


def test_a_softcap_comes_after_the_scale_of_the_keys():
    options = {"softcap": 3.0, **{name: array[:1] for name, array in SCALES.items()}}
    assert_right(Cache((70,), fp8_kv=True, options=options), error=2e-2)


@pytest.mark.parametrize(
    "types, more, error",
    [
        (("e4m3", "bf16"), {}, ArgumentTypeError),
        (("bf16", "e4m3"), {}, ArgumentTypeError),
        (("bf16", "bf16"), {"k_scale": 2.0}, ArgumentError),
        (("e4m3", "e4m3"), {"k_scale": np.ones((2, 2), np.float32)}, ArgumentError),
        (("e4m3", "e4m3"), {"k_scale": np.ones(2, np.float32), "v_scale": np.ones(2, np.float32)}, ArgumentError),
        (("e4m3", "e4m3"), {"v_scale": 0.0}, ArgumentError),
    ],
)  # fmt: skip
def test_scales_that_do_not_fit_are_refused(types, more, error):
    kinds = {"e4m3": ml_dtypes.float8_e4m3fn, "bf16": ml_dtypes.bfloat16}
    q, k, v = (np.zeros(shape, kinds["bf16"]) for shape in GOOD.values())
    k, v = (array.astype(kinds[name]) for array, name in zip((k, v), types, strict=True))
    with pytest.raises(error):
        warploom.attention_decode(q, k, v, np.array([9, 3], np.int32), layout="bshd", **more)


def test_a_token_without_the_dimension_of_tokens_and_torchs_layout():
    cache = Cache((70, 3))
    given, (wanted, _) = cache.arrays(), cache.exact()
    k, v = (given[name].transpose(0, 2, 1, 3) for name in "kv")
    out = warploom.attention_decode(given["q"][:, 0], k, v, np.array(cache.lengths, np.int32))
    assert out.shape == (2, 4, 64)
    np.testing.assert_allclose(np.asarray(out, np.float64), wanted[:, 0], atol=0.02)


def test_results_go_where_they_are_told_and_torch_tensors_are_taken():
    torch = pytest.importorskip("torch")
    cache = Cache((70,), heads=(2, 1))
    q, k, v = (torch.from_numpy(array.astype(np.float32)).bfloat16() for array in cache.arrays().values())
    out, lse = torch.zeros_like(q), torch.zeros(1, 2, 1)
    lengths = torch.tensor(cache.lengths)  # s64: copied
    assert warploom.attention_decode(q, k, v, lengths, layout="bshd", out=out, lse=lse) is out
    np.testing.assert_allclose(out.float().numpy(), cache.exact()[0], atol=0.02)
    np.testing.assert_allclose(lse.numpy(), cache.exact()[1], rtol=1e-5)


def test_no_sequences_give_nothing_and_no_room_gives_zeros():
    q, k, v = Cache((5,)).arrays().values()
    none = np.zeros(0, np.int32)
    assert warploom.attention_decode(q[:0], k[:0], v[:0], none, layout="bshd").shape == (0, 1, 4, 64)
    zeros = np.zeros(1, np.int32)
    out, lse = warploom.attention_decode(q, k[:, :0], v[:, :0], zeros, layout="bshd", return_lse=True)
    assert not np.asarray(out, np.float32).any() and np.all(lse == -np.inf)


GOOD = {"q": (2, 1, 4, 64), "k": (2, 9, 2, 64), "v": (2, 9, 2, 64)}


@pytest.mark.parametrize(
    "shapes, more, error",
    [
        ({"q": (2, 17, 4, 64)}, {}, ArgumentError),
        ({"q": (3, 1, 4, 64)}, {}, ArgumentError),
        ({"q": (2, 4, 64)}, {"lengths": np.array([1], np.int32)}, ArgumentError),
        ({"q": (2, 1, 3, 64)}, {}, ArgumentError),
        ({"q": (2, 1, 4, 60), "k": (2, 9, 2, 60)}, {}, ArgumentError),
        ({}, {"lengths": np.array([1, 10], np.int32)}, ArgumentError),
        ({}, {"lengths": np.array([1, -1], np.int32)}, ArgumentError),
        ({}, {"lengths": np.array([1.0, 2.0], np.float32)}, ArgumentTypeError),
        ({}, {"lengths": np.array([[1, 2]], np.int32)}, ArgumentError),
        ({}, {"table": np.array([0, 1], np.int32)}, ArgumentError),
        ({}, {"table": np.array([[0], [2]], np.int32)}, ArgumentError),
        ({}, {"table": np.array([[0]], np.int32)}, ArgumentError),
        ({}, {"table": np.array([[0.0], [1.0]])}, ArgumentTypeError),
        ({}, {"causal": "top-left"}, ArgumentError),
        ({}, {"window": (4, 4)}, ArgumentError),
        ({}, {"window": 4, "causal": False}, ArgumentError),
        ({}, {"layout": "thd"}, ArgumentError),
        ({}, {"scale": 0.0}, ArgumentError),
        ({}, {"sinks": np.zeros(3, np.float32)}, ArgumentError),
        ({}, {"config": "fast"}, ArgumentTypeError),
        ({}, {"constant_lengths": 1}, ArgumentError),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(shapes, more, error):
    given = {name: np.zeros(shape, ml_dtypes.bfloat16) for name, shape in {**GOOD, **shapes}.items()}
    with pytest.raises(error):
        warploom.attention_decode(**{"lengths": np.array([9, 3], np.int32), "layout": "bshd", **given, **more})


FASTER = {
    "early prologue": {"early_prologue": True}, "page index": {"prefetch_page_index": True},
    "two producers": {"producer_warps": 2, "prefetch_page_index": True},
    "four": {"producer_warps": 4, "early_prologue": True, "prefetch_page_index": True},
    "three tiles": {"min_tiles_per_cta": 3}, "two splits": {"splits_per_read": 2},
    "32 columns": {"exchange_columns": 32}, "128 columns": {"exchange_columns": 128, "stages": 3},
    "two CTAs": {"ctas_per_sm": 2}, "aligned": {"head_aligned": True}, "eight producers": {"producer_warps": 8},
    "prefetch": {"prefetch": 3},
    "used rows": {"used_rows": 2},
    "constant lengths": {"constant_lengths": True, "ctas_per_sm": 2},
    "all": {
        "early_prologue": True, "prefetch_page_index": True, "producer_warps": 2, "min_tiles_per_cta": 2,
        "splits_per_read": 32, "stages": 2,
    },
}  # fmt: skip


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", ["random", "eager", "lazy", "starve", "pct"])
@pytest.mark.parametrize("page", [16, 1, 0])
@pytest.mark.parametrize("changes", FASTER.values(), ids=FASTER)
def test_every_way_to_load_and_to_share_is_right_and_clean(changes: dict[str, int], page: int, schedule: str):
    of = Decode(head_dim=64, value_dim=64, paged=bool(page))
    config = replace(decode_config(of, 2, page or None), **changes)
    config = replace(config, producer_warps=min(config.producer_warps, of.panels * config.copies))
    assert_right(Cache((330, 1, 70), page=page, heads=(2, 1), options={"config": config}), schedule=schedule)


def test_an_emulation_that_would_take_too_long_and_too_many_sequences_are_refused():
    row = np.zeros((1, 1, 1, 64), ml_dtypes.bfloat16)
    q, k = (np.broadcast_to(row, (1, 1 << length, 1, 64)) for length in (0, 21))
    with pytest.raises(CostLimitError):
        warploom.attention_decode(q, k, k, np.array([1 << 21], np.int32), layout="bshd")
    q = np.zeros((1025, 1, 1, 64), ml_dtypes.bfloat16)
    with refused("argument", got="1025"):
        warploom.attention_decode(q, q, q, np.ones(1025, np.int32), layout="bshd")


@pytest.mark.full
def test_the_same_bits_whatever_comes_first():
    """Three CTAs and more share a head: their parts are added up in the order of the CTAs."""
    cache = Cache((600,), heads=(2, 1))
    results = [cache.call(check=False, schedule=schedule) for schedule in ("eager", "random", "starve")]
    for (first, sums), (second, others) in pairwise(results):
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(sums, others)


@pytest.mark.sample(1, full=2)
@pytest.mark.parametrize("dim", [64, 128, 192, 256])
@pytest.mark.parametrize("rows", [8, 32])
@pytest.mark.parametrize("page", [None, 16, 64])
@pytest.mark.parametrize("fp8_kv", [False, True])
@pytest.mark.parametrize("tokens", [None, 100])
def test_the_chosen_configurations_build_without_spills_and_fit(
    dim: int, rows: int, page: int | None, fp8_kv: bool, tokens: int | None
):
    of = Decode(head_dim=dim, value_dim=dim, paged=page is not None, fp8_kv=fp8_kv, scaled=fp8_kv)
    config = decode_config(of, rows, page, tokens)
    config.check(page)
    resources = attention_decode.build(of, config).resources()
    assert not resources.spill_stores and not resources.notes
    assert resources.occupancy(config.threads, config.shared_bytes(of) + DECODE_RESERVE_BYTES) >= 1


def test_a_configuration_is_chosen_for_every_width_and_page():
    """Warps that load share out any number of panels."""
    for dim, value_dim in ((8, 8), (96, 40), (160, 96), (192, 128), (256, 64)):
        for fp8_kv in (False, True):
            of = Decode(head_dim=dim, value_dim=value_dim, paged=True, fp8_kv=fp8_kv)
            for page in (1, 3, 8, 16, 64, 100):
                for rows, tokens in ((1, None), (17, 10), (40, 5000)):
                    decode_config(of, rows, page, tokens).check(page, of)


def test_widths_of_three_panels_are_read_from_pages():
    assert_right(Cache((70, 0, 3), heads=(2, 1), dim=(96, 64), page=8))


def test_the_rule_asks_for_pages_width_and_how_much_a_multiprocessor_reads():
    wide, paged, eight = Decode(), Decode(paged=True), Decode(paged=True, fp8_kv=True)
    long = decode_config(wide, 4)
    assert (long.stages, long.ctas_per_sm, long.prefetch) == (3, 2, 6), "two CTAs fit a multiprocessor"
    assert long.exchange_columns == 128 and decode_config(wide, 4, None, 7943) == long
    assert decode_config(wide, 4, None, 3971) == replace(long, head_aligned=True), "2 MB of a multiprocessor"
    short = decode_config(wide, 4, None, 62)
    assert short == replace(long, prefetch=3, head_aligned=True)
    assert {decode_config(wide, 4, None, tokens) for tokens in (496, 992)} == {short}
    more = decode_config(wide, 8)
    assert more.early_prologue and not more.prefetch_page_index
    assert more.stages * 32768 >= 150_000, "what reaches the memory's rate"
    assert decode_config(wide, 8, None, 496).stages == 2
    pages = decode_config(paged, 4, 16)
    paged_keys = replace(long, copy_rows=16, prefetch_page_index=True, producer_warps=2)
    assert pages == paged_keys, "contiguous keys' choice with two producer warps"
    assert decode_config(paged, 8, 64).prefetch == 5 and not decode_config(paged, 4, 1).prefetch
    assert decode_config(wide, 32, None, 496).exchange_columns == 64 and decode_config(wide, 32, None, 992).stages > 2
    assert decode_config(paged, 8, 16, 496).stages == 2 and decode_config(paged, 8, 16, 992).stages == 3
    assert {page: decode_config(paged, 8, page).producer_warps for page in (1, 2, 16, 32, 64, 256)} == {
        1: 8, 2: 4, 16: 4, 32: 2, 64: 1, 256: 1
    }  # fmt: skip
    assert all(decode_config(of, 4, 16).prefetch_page_index for of in (paged, eight))
    fp8_kv = decode_config(Decode(fp8_kv=True), 4)
    assert fp8_kv.prefetch and (fp8_kv.stages, fp8_kv.exchange_columns) == (4, 128)
    assert decode_config(eight, 4, 16).exchange_columns == 128
    few_columns = decode_config(Decode(head_dim=64, value_dim=64), 4, None, 7943)
    assert (few_columns.tile_n, few_columns.stages, few_columns.head_aligned) == (128, 5, True)


@pytest.mark.parametrize("lengths, shared", [((128,) * 3, False), ((192, 128, 64), True)])
def test_aligned_shares_begin_where_heads_do_if_sequences_are_equally_long(lengths: tuple[int, ...], shared: bool):
    """15 heads and 16 CTAs, one of which has nothing to do. Memory for parts is only written if heads are shared."""
    of, sequences, heads = Decode(head_dim=64, value_dim=64), 3, 5
    config = replace(decode_config(of, 1), tile_n=64, copy_rows=64, head_aligned=True)
    draw = np.random.default_rng(0)
    q, k, v = (
        draw.standard_normal((sequences, length, heads, 64)).astype(ml_dtypes.bfloat16) for length in (1, 192, 192)
    )
    parts = np.zeros((32, config.block_elements(of)), np.float32)
    given = (q, k, v, np.array(lengths, np.int32), parts, np.zeros(15, np.uint32), 0.125, 1)
    report = attention_decode.build(of, config).emulate(*given, machine=H200(sms=16))
    report.raise_on_findings()
    assert np.any(parts) == shared


@pytest.mark.parametrize("loaders, page", [(4, None), (3, 16), (6, 1), (16, 16)])
def test_warps_that_would_not_share_out_a_tile_evenly_are_refused(loaders: int, page: int | None):
    of = Decode(head_dim=64, value_dim=64, paged=page is not None)
    with refused("argument", got=str(loaders)):
        replace(decode_config(of, 2, page), producer_warps=loaders).check(page, of)


@pytest.mark.full
def test_a_promise_of_constant_lengths_changes_the_kernel_and_not_the_result(monkeypatch: pytest.MonkeyPatch):
    """Nothing is in front in the emulator, so nothing writes lengths then."""
    built, real = [], decode._program
    monkeypatch.setattr(decode, "_program", lambda of, config, folder: built.append(config) or real(of, config, folder))
    for promise in (False, True, False):
        assert_right(Cache((70, 3), heads=(2, 1), options={"constant_lengths": promise}))
    assert [config.constant_lengths for config in built] == [False, True, False]
    assert replace(built[1], constant_lengths=False) == built[0]


def test_lengths_read_before_the_previous_kernel_has_ended_only_say_what_is_prefetched(monkeypatch: pytest.MonkeyPatch):
    """They are old ones there; any numbers do."""
    read = WorkPartition.read
    monkeypatch.setattr(
        WorkPartition, "read", lambda self, *of: read(self, *of) if self.final else read(self, *of) * 3 + 1000
    )
    config = replace(decode_config(Decode(head_dim=64, value_dim=64), 2, None, 100), prefetch=2, splits_per_read=3)
    assert_right(Cache((330, 1, 70), heads=(2, 1), options={"config": config}))


def test_a_configuration_that_asks_for_registers_of_more_than_a_multiprocessor_is_refused():
    config = replace(decode_config(Decode(fp8_kv=True), 4), splits_per_read=32)
    assert config.registers == 168, "9 warps: three of them share a quarter of the registers"
    with refused("spills"):
        attention_decode.build(Decode(fp8_kv=True), config).resources()


def test_its_program_comes_back_from_the_disk():
    of = Decode(dtype=f16, paged=True)
    program = attention_decode.build(of, replace(decode_config(of, 8, 16))).program()
    assert from_bytes(to_bytes(program)).text == program.text


# -- clusters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch, kv_heads, keys, cluster",
    [(1, 8, 1024, 8), (1, 8, 4096, 8), (1, 8, 8192, 0), (2, 8, 1024, 4), (4, 8, 1024, 2), (16, 8, 1024, 0)],
)
def test_few_short_sequences_have_a_cluster_for_each_key_head(batch: int, kv_heads: int, keys: int, cluster: int):
    of = Decode()
    config = decode_config(of, 4, None, batch * kv_heads * keys // 132)
    found = clustered(of, config, batch * kv_heads, keys, 132)
    assert found.cluster == cluster
    assert clustered(replace(of, paged=True), config, batch * kv_heads, keys, 132) == config
