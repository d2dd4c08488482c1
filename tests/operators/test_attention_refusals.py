"""Impossible attention calls: a message with a code, and nothing launched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom
from tests.errors import refused
from warploom.errors import ArgumentError, ArgumentTypeError, WarploomError
from warploom.kernels.hopper.attention_config import Config
from warploom.kernels.hopper.attention_decode_config import DecodeConfig
from warploom.operators.attention import calls

ENDS = np.array([0, 3, 8], np.int32)
LENGTHS = np.array([5, 20], np.int32)
TABLE = np.array([[0, 1], [2, 3]], np.int32)
NAN = float("nan")


def array(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float16)


FORWARD = {"q": array(1, 2, 8, 64), "k": array(1, 1, 8, 64), "v": array(1, 1, 8, 64)}
VARLEN = {"q": array(8, 2, 64), "k": array(8, 1, 64), "v": array(8, 1, 64), "cu_seqlens_q": ENDS, "cu_seqlens_k": ENDS}
DECODE = {"q": array(2, 4, 1, 64), "k": array(2, 1, 32, 64), "v": array(2, 1, 32, 64), "lengths": LENGTHS}
PAGED = DECODE | {"k": array(4, 1, 16, 64), "v": array(4, 1, 16, 64), "table": TABLE}


@pytest.fixture(autouse=True)
def nothing_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*_: Any, **__: Any) -> None:
        raise AssertionError("launched")

    monkeypatch.setattr(calls, "launch", launch)


def each(*changes: dict[str, Any]) -> list[Any]:
    return [pytest.param(change, id=f"{' '.join(change)} {str(list(change.values())[0])[:24]}") for change in changes]


NUMBERS = ({"scale": NAN}, {"scale": 1e39}, {"scale": 1e-40}, {"scale": 10**400}, {"softcap": 1e300},
           {"softcap": 1e-20, "scale": 1e20}, {"scale": 0}, {"scale": "1"}, {"scale": True}, {"softcap": NAN},
           {"window": 3.5}, {"window": (1, 2, 3)}, {"window": -5}, {"window": "ab"}, {"window": (NAN, 0)})  # fmt: skip


@pytest.mark.parametrize(
    "change",
    each(
        *NUMBERS, {"causal": "top"}, {"causal": None}, {"causal": np.array([1, 0])}, {"layout": "sbhd"},
        {"layout": ["bhsd"]}, {"layout": None}, {"q": array(1, 2, 8, 12), "k": array(1, 1, 8, 12)},
        {"q": array(1, 2, 8, 264), "k": array(1, 1, 8, 264)}, {"v": array(1, 1, 8, 0)}, {"q": array(2, 8, 64)},
        {"q": array(1, 2, 8, 128)[..., ::2]}, {"k": FORWARD["k"][..., ::-1]}, {"q": None}, {"q": [1.0]},
        {"q": FORWARD["q"].astype(np.float32)}, {"k": array(2, 1, 8, 64)}, {"k": array(1, 1, 7, 64)},
        {"sinks": np.zeros(3, np.float32)}, {"sinks": np.zeros(2, np.int32)}, {"out": array(1, 2, 8, 32)}, {"out": [1]},
        {"lse": array(1, 2, 8)}, {"config": "fast"}, {"config": DecodeConfig()}, {"config": Config(tile_n=100)},
        {"config": Config(consumers=0)}, {"config": Config(consumers=4)}, {"config": Config(tile_n="a")},  # type: ignore[arg-type]
        {"config": Config(key_stages=0)}, {"config": Config(value_stages=1)}, {"config": Config(promoted_columns=64)},
        {"score_mod": 3}, {"score_mod": lambda s: s},
        {"mask_mod": lambda b, h, i: True}, {"block_mask": 3}, {"q_scale": 1.0},
    ),
)  # fmt: skip
def test_attention_refuses(change: dict[str, Any]) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError)) as found:
        warploom.attention(**(FORWARD | change))
    assert found.value.code


@pytest.mark.parametrize(
    "change",
    each(
        *NUMBERS, {"causal": "top-left"}, {"cu_seqlens_q": [0, 3, 8]}, {"cu_seqlens_q": ENDS.astype(np.float32)},
        {"cu_seqlens_q": ENDS[None]}, {"cu_seqlens_q": ENDS[:0]}, {"cu_seqlens_q": ENDS + 1},
        {"cu_seqlens_k": np.array([0, 5, 3], np.int32)}, {"cu_seqlens_k": np.array([0, -1, 8], np.int32)},
        {"cu_seqlens_k": np.array([0, 3, 9], np.int32)}, {"cu_seqlens_q": ENDS[:2]}, {"max_seqlen_k": "x"},
        {"max_seqlen_q": "x"}, {"max_seqlen_q": -1},
        {"max_seqlen_k": 3.5}, {"max_seqlen_k": -3}, {"q": array(1, 2, 8, 64)}, {"out": array(1, 8, 2, 64)},
    ),
)  # fmt: skip
def test_attention_varlen_refuses(change: dict[str, Any]) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError)) as found:
        warploom.attention_varlen(**(VARLEN | change))
    assert found.value.code


@pytest.mark.parametrize(
    "given, change",
    [
        *((DECODE, change) for change in (
            *NUMBERS, {"window": (3, 1)}, {"window": 3, "causal": False}, {"causal": 1}, {"layout": [1]},
            {"lengths": [5, 20]}, {"lengths": 5}, {"lengths": LENGTHS.astype(np.float32)}, {"lengths": LENGTHS - 9},
            {"lengths": LENGTHS + 13}, {"lengths": LENGTHS[:1]}, {"lengths": LENGTHS[None]},
            {"q": array(2, 4, 17, 64)}, {"q": array(2, 4)}, {"q": array(2, 3, 1, 64), "k": array(2, 2, 32, 64)},
            {"k": DECODE["k"].astype(np.float32)}, {"out": array(2, 4, 64)}, {"config": Config()},
            {"config": DecodeConfig(copy_rows=48)}, {"config": DecodeConfig(copy_rows=0)},
            {"config": DecodeConfig(value_steps=0)}, {"config": DecodeConfig(tile_n=7)},
            {"config": DecodeConfig(row_blocks=0)}, {"config": DecodeConfig(pdl=3)},  # type: ignore[arg-type]
            {"config": DecodeConfig(used_rows=3)}, {"config": DecodeConfig(used_rows=3, cluster=4, stages=3)},
        )),
        *((PAGED, change) for change in (
            {"table": TABLE.tolist()}, {"table": TABLE[0]}, {"table": TABLE.astype(np.float32)}, {"table": TABLE - 1},
            {"table": TABLE + 1}, {"table": TABLE[:1]}, {"table": TABLE[:, :0]}, {"lengths": LENGTHS + 13},
            {"v": array(4, 1, 8, 64)}, {"config": DecodeConfig(copy_rows=64)}, {"k": array(0, 1, 16, 64)},
        )),
    ],
)  # fmt: skip
def test_attention_decode_refuses(given: dict[str, Any], change: dict[str, Any]) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError)) as found:
        warploom.attention_decode(**(given | change))
    assert found.value.code


@pytest.mark.parametrize("function", [warploom.attention, warploom.attention_varlen])
@pytest.mark.parametrize("change", each(*NUMBERS, {"causal": np.array([1, 0])}, {"k": array(1)}, {"sinks": array(2)}))
def test_tensors_that_want_gradients_are_refused_in_the_same_words(function: Any, change: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    given = FORWARD if function is warploom.attention else VARLEN
    tensors = {name: torch.from_numpy(value.copy()) for name, value in given.items()}
    tensors["q"].requires_grad_()
    with pytest.raises(WarploomError) as found:
        function(**(tensors | change))
    assert isinstance(found.value, (ArgumentError, ArgumentTypeError))


GIVEN = {"out": array(1, 2, 8, 64), "lse": np.zeros((1, 2, 8), np.float32), "grad": array(1, 2, 8, 64)}
ROWS = {"out": array(8, 2, 64), "lse": np.zeros((1, 2, 8), np.float32), "grad": array(8, 2, 64)}


@pytest.mark.parametrize("change", each(
    *NUMBERS, *({name: wrong} for name in GIVEN for wrong in (None, "x", [1.0], array(1, 2, 7, 64))),
    {"lse_grad": "x"}, {"lse_grad": array(1, 2, 8)}, {"lse": np.zeros((1, 2, 8))}, {"grad": np.zeros((1, 2, 8, 64))},
))  # fmt: skip
@pytest.mark.parametrize("varlen", [False, True])
def test_gradients_refuse(varlen: bool, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warploom.operators.attention.named_launch.launch", calls.launch)
    function = warploom.attention_varlen_backward if varlen else warploom.attention_backward
    with pytest.raises((ArgumentError, ArgumentTypeError)) as found:
        function(**((VARLEN | ROWS if varlen else FORWARD | GIVEN) | change))
    assert found.value.code


def test_empty_batches_launch_nothing_and_give_what_they_should() -> None:
    for name, shape in (("q", (0, 2, 8, 64)), ("q", (1, 0, 8, 64)), ("q", (1, 2, 0, 64))):
        batch = {"k": array(0, 1, 8, 64), "v": array(0, 1, 8, 64)} if not shape[0] else {}
        assert warploom.attention(**(FORWARD | {name: array(*shape)} | batch)).shape == shape
    out, lse = warploom.attention(**(FORWARD | {"k": array(1, 1, 0, 64), "v": array(1, 1, 0, 64)}), return_lse=True)
    assert not out.any() and np.isneginf(lse).all()
    assert warploom.attention_varlen(**(VARLEN | {"cu_seqlens_q": ENDS[:1], "cu_seqlens_k": ENDS[:1]})).shape[0] == 8
    assert warploom.attention_varlen(**(VARLEN | {"q": array(0, 2, 64), "cu_seqlens_q": ENDS * 0})).shape == (0, 2, 64)
    nobody = {name: value[:0] for name, value in DECODE.items()}
    assert warploom.attention_decode(**nobody).shape == (0, 4, 1, 64)
    none = warploom.attention_decode(**(DECODE | {"k": array(2, 1, 0, 64), "v": array(2, 1, 0, 64),
                                                  "lengths": LENGTHS * 0}))  # fmt: skip
    assert not none.any()


def test_numbers_of_numpy_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    draw = np.random.default_rng(0)
    given = {name: draw.standard_normal(value.shape).astype(np.float16) for name, value in FORWARD.items()}
    plain = warploom.attention(**given, scale=0.5, window=(3, 0))
    numbers = {"scale": np.float32(0.5), "window": (np.int64(3), np.int32(0)), "causal": np.bool_(False)}
    np.testing.assert_array_equal(plain, warploom.attention(**given, **numbers))
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(value).requires_grad_() for name, value in given.items()}
    np.testing.assert_array_equal(plain, warploom.attention(**tensors, **numbers).detach().numpy())


def test_a_function_of_scores_that_returns_nothing_is_refused_at_its_own_line() -> None:
    q = array(1, 1, 64, 64)

    def score_mod(s: Any, b: Any, h: Any, i: Any, j: Any) -> None:
        pass

    with refused("trace") as error:
        warploom.attention(q, q, q, score_mod=score_mod)
    where = error.value.where
    assert where is not None and (where.file, where.line) == (__file__, score_mod.__code__.co_firstlineno)


# -- what the caller can do, in the terms of the caller's framework ---------------------------------------------------


def test_an_array_of_numpy_is_not_told_of_torch():
    q = np.zeros((1, 2, 8, 64), np.float32)
    with refused("argument-type") as caught:
        warploom.attention(q, q, q)
    assert "numpy" in str(caught.value.hint) and "torch" not in str(caught.value.hint)


def test_offsets_and_lengths_of_either_width_are_named():
    q = np.zeros((8, 2, 64), np.float16)
    with refused("wrong-type", expected="s32 or s64"):
        warploom.attention_varlen(q, q, q, np.zeros(2, np.float32), np.zeros(2, np.float32))
    cache = np.zeros((1, 2, 16, 64), np.float16)
    with refused("wrong-type", expected="s32 or s64"):
        warploom.attention_decode(cache[:, :, :1], cache, cache, np.zeros(1, np.float32))


def test_a_block_mask_of_one_batch_is_told_one_number():
    torch = pytest.importorskip("torch")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    mask = flex.create_block_mask(lambda b, h, i, j: i >= j, 3, None, 64, 64, device="cpu")
    q = torch.zeros(1, 2, 64, 64, dtype=torch.float16)
    with refused("wrong-shape", expected="(1, 1 or 2, 1, 1) blocks of 128 x 128", got="(3, 1, 1, 1)"):
        warploom.attention(q, q, q, block_mask=mask)
