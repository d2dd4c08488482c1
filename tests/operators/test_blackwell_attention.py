"""`attention` on a GPU of sm_100: its kernel, the warning that it never ran on one, the check of its first result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import warploom
from tests.kernels.attention_cases import operands, reference
from warploom.errors import ArgumentError, UnprovenWarning, WrongResultError
from warploom.kernels.blackwell.attention_config import Config
from warploom.kernels.hopper.attention_config import Attention
from warploom.kernels.hopper.attention_config import Config as HopperConfig
from warploom.operators.attention import calls as attention_calls

NARROW = Attention(head_dim=64, value_dim=64)
SMALL = Config(tile_n=64, stages=2)


@pytest.fixture(autouse=True)
def _nothing_warned(monkeypatch):
    """Warnings and checks come once in a process: each test begins with none."""
    from warploom.operators import bind

    bind.warned.cache_clear()


def close(got: tuple[np.ndarray, np.ndarray], exact: tuple[np.ndarray, np.ndarray]) -> None:
    out, lse = (np.asarray(one, np.float64) for one in got)
    np.testing.assert_allclose(out, exact[0], atol=4e-3 * np.abs(exact[0]).max(), rtol=2**-7)
    np.testing.assert_allclose(lse, exact[1], rtol=1e-5, atol=1e-5)


@pytest.mark.sample(1, all=1)
@pytest.mark.filterwarnings("ignore::warploom.errors.UnprovenWarning")
@pytest.mark.parametrize("causal", [False, True, "top-left"])
def test_it_is_attention_in_either_layout(causal):
    q, k, v = operands(130, 150, NARROW, (2, 1))
    last = {"last": 0 if causal == "top-left" else 20} if causal else {}
    with warploom.config.override(emulator={"gpu": "B200", "check": causal is True}):
        got = warploom.attention(q, k, v, layout="bshd", causal=causal, return_lse=True, config=SMALL)
        other = warploom.attention(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)), causal=causal, config=SMALL)
    close(got, reference(q, k, v, scale=64**-0.5, **last))
    np.testing.assert_array_equal(other.transpose(0, 2, 1, 3), got[0])


def test_a_b200_runs_its_own_kernel_and_that_nobody_ran_it_is_said_once():
    q, k, v = operands(3, 70, NARROW)
    with warploom.config.override(emulator={"gpu": "B200"}), pytest.warns(UnprovenWarning) as caught:
        got = warploom.attention(q, k, v, layout="bshd", return_lse=True)
        warploom.attention(q, k, v, layout="bshd", config=SMALL)
    assert len([one for one in caught if UnprovenWarning.code in str(one.message)]) == 1
    close(got, reference(q, k, v, scale=64**-0.5))


@pytest.mark.filterwarnings("ignore::warploom.errors.UnprovenWarning")
@pytest.mark.parametrize("checks", [True, False])
def test_the_first_result_is_checked_unless_told_not_to(checks: bool, monkeypatch):
    """The kernel is given half the scale."""
    launch = attention_calls.launch_bound

    def halved(program, request, *rest):
        return launch(program, replace(request, numbers=request.numbers | {"scale": 0.09}), *rest)

    monkeypatch.setattr(attention_calls, "launch_bound", halved)
    q, k, v = operands(3, 70, NARROW)
    with warploom.config.override(check_unproven=checks, emulator={"gpu": "B200"}):
        if not checks:
            assert warploom.attention(q, k, v, layout="bshd", config=SMALL).shape == q.shape
            return
        with pytest.raises(WrongResultError):
            warploom.attention(q, k, v, layout="bshd", config=SMALL)
        warploom.attention(q, k, v, layout="bshd", config=SMALL)  # only the first


@pytest.mark.parametrize(
    "options",
    [{"window": 8}, {"softcap": 5.0}, {"sinks": np.zeros(1, np.float32)}, {"score_mod": lambda s, b, h, i, j: s * 2}],
    ids=["window", "softcap", "sinks", "score_mod"],
)
def test_what_its_kernel_does_not_compute_is_refused(options):
    q, k, v = operands(3, 70, NARROW)
    with warploom.config.override(emulator={"gpu": "B200"}), pytest.raises(ArgumentError) as caught:
        warploom.attention(q, k, v, layout="bshd", **options)
    assert caught.value.expected == "full or causal attention"


@pytest.mark.full
def test_a_configuration_of_the_other_generation_runs_on_a_machine_of_its_own():
    """In the emulator; a GPU has no other machine."""
    q, k, v = operands(3, 70, NARROW)
    with warploom.config.override(emulator={"gpu": "B200"}):
        got = warploom.attention(q, k, v, layout="bshd", return_lse=True, config=HopperConfig())
    close(got, reference(q, k, v, scale=64**-0.5))
