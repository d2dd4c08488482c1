"""`config.autotune = "first-calls"`: the first calls of a product run two candidates in turn; the faster stays.

The mock driver times a kernel by its grid: a microsecond a CTA (tests/driver/fake_cuda.c).
"""

from __future__ import annotations

import pytest

from tests.errors import refused
from warploom.errors import ArgumentError
from warploom.operators.first_calls import TIMED, WARM_UPS, Trial
from warploom.settings import config, from_environment

SETUP = """
import os
from warploom import config
from warploom.operators import Problem, choose
from warploom.operators.select import ranking
from warploom.operators.first_calls import TIMED, WARM_UPS
from warploom.operators.spec.gpu import gpu_of
M, N, K = 40, 2048, 2048
a, b, out = bf16(M, K), bf16(N, K).T, bf16(M, N)
problem, gpu = Problem.of(M, N, K), gpu_of(0)
EACH = WARM_UPS + TIMED
def calls(count):
    for _ in range(count):
        warploom.matmul(a, b, out=out)
def mark(word):
    with open(os.environ["FAKE_CUDA_LOG"], "a") as log: log.write(word + "\\n")
settings_of = lambda **more: config.override(autotune="first-calls", **more)
"""


def kernels(log: list[str]) -> list[tuple[int, str]]:
    """The launches in order: what the driver says that they take, and what tells one kernel from another."""
    lines = [line.partition(" stream ")[0] for line in log if line.startswith("launch")]
    return [(int(line.split("grid ")[1].split()[0]), line) for line in lines]


def test_a_trial_asks_each_in_turn_and_keeps_the_first_unless_another_is_faster_by_more_than_noise():
    trial = Trial(["first", "second"])
    assert [trial.next() for _ in range(4)] == ["first", "second"] * 2
    trial.seconds = {"first": [3.0, 1.0, 2.0, 2.0], "second": [1.5, 0.995, 2.0]}
    assert trial.best is None, "the second has too few times"
    trial.seconds["second"].append(2.0)
    assert trial.best == "first"
    trial.seconds["second"][0] = 0.98
    assert trial.best == "second"


@pytest.mark.usefixtures("needs_ptxas")
def test_the_first_calls_alternate_and_the_faster_kernel_stays_for_other_processes_too(on_gpu):
    log = on_gpu(
        SETUP
        + """
with settings_of():
    calls(2 * EACH)
    assert choose(problem, gpu).source == "model"
    mark("decided")
    calls(3)
    assert choose(problem, gpu).source == "tuned"
calls(1)
"""
    )
    at = log.index("decided")
    trials, after = kernels(log[:at]), kernels(log[at:])
    one, other = trials[:2]
    assert one != other and trials == [one, other] * (WARM_UPS + TIMED)
    assert after == [min(one, other)] * 4
    assert sum(line.startswith("event") for line in log) == 2 * 2 * TIMED
    assert not any(line.startswith(("event", "synchronize")) for line in log[at:])
    assert sum(line.startswith("forget event") for line in log) == 2 * 2 * TIMED


@pytest.mark.usefixtures("needs_ptxas")
def test_no_call_waits_for_a_time_and_a_capture_is_not_timed(on_gpu):
    log = on_gpu(
        SETUP
        + """
import ctypes
def set(name, value): ctypes.CDLL(None).setenv(name, value, 1)
set(b"FAKE_CUDA_BUSY", b"1")
with settings_of():
    calls(3 * EACH)
    set(b"FAKE_CUDA_CAPTURING", b"1")
    mark("capture")
    calls(2)
    mark("captured")
    set(b"FAKE_CUDA_CAPTURING", b"0")
    set(b"FAKE_CUDA_BUSY", b"0")
    calls(2)
    assert choose(problem, gpu).source == "tuned"
"""
    )
    captured = log[log.index("capture") : log.index("captured")]
    assert len(set(kernels(captured))) == 1 and not any(line.startswith("event") for line in captured)
    assert not any(line.startswith("synchronize") for line in log)


@pytest.mark.usefixtures("needs_ptxas")
def test_without_a_cache_the_process_remembers_its_choice(on_gpu):
    log = on_gpu(
        SETUP
        + """
with settings_of(cache_dir=None):
    calls(2 * EACH)
    mark("decided")
    calls(3)
"""
    )
    at = log.index("decided")
    assert kernels(log[at:]) == [min(kernels(log[:at]))] * 3


@pytest.mark.usefixtures("needs_ptxas")
def test_a_candidate_that_does_not_build_leaves_the_other(on_gpu):
    log = on_gpu(
        SETUP
        + """
from warploom.errors import CompilationError
from warploom.operators import kernel_cache
first, built = ranking(problem, gpu)[0][0], kernel_cache._built
def refused(problem, gpu, config, device):
    if config == first:
        raise CompilationError("it spills")
    return built(problem, gpu, config, device)
kernel_cache._built = refused
with settings_of():
    calls(EACH + 2)
    assert choose(problem, gpu).config == ranking(problem, gpu)[1][0]
"""
    )
    assert len(set(kernels(log))) == 1


def test_the_setting_takes_its_name_or_a_number_and_nothing_else():
    assert from_environment({"WARPLOOM_AUTOTUNE": "first-calls"}).autotune == "first-calls"
    assert [from_environment({"WARPLOOM_AUTOTUNE": text}).autotune for text in ("", "0", "2")] == [0, 0, 2]
    with refused("argument", expected="0, 1, 2, first-calls", got="'3'"):
        from_environment({"WARPLOOM_AUTOTUNE": "3"})
    assert from_environment({"WARPLOOM_AUTOTUNE": "2"}).autotune == 2
    with pytest.raises(ArgumentError), config.override(autotune="always"):
        pass
    with pytest.raises(ArgumentError):
        from_environment({"WARPLOOM_AUTOTUNE": "3"})
