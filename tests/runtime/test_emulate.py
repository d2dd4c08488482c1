"""Calls on host arrays: the emulator runs them; calls that would take too long are refused before they start."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.errors import refused
from tests.runtime.kernels import PROGRAM, SCALE_ADD
from warploom.runtime import A100, B200, H200, Caller, Machine, Program, emulate, estimate, loading
from warploom.settings import config

N = 200
A, B = np.arange(N, dtype=np.float32), np.full(N, 0.5, np.float32)
WANTED = 3 * A + B


def test_a_call_makes_its_output():
    result = Caller(PROGRAM)(A, B, 3.0)
    assert isinstance(result, np.ndarray) and result.tolist() == WANTED.tolist()


@pytest.mark.parametrize("how", ["out", "positional", "keyword scalar"])
def test_a_call_fills_the_output_it_is_given(how):
    c = np.zeros(N, np.float32)
    call = Caller(PROGRAM)
    if how == "out":
        result = call(A, B, 3.0, out=c)
    elif how == "positional":
        result = call(A, B, c, 3.0)
    else:
        result = call(A, B, out=c, alpha=3.0)
    assert result is c and c.tolist() == WANTED.tolist()


def test_torch_tensors_on_the_cpu_give_a_torch_tensor():
    torch = pytest.importorskip("torch")
    result = Caller(PROGRAM)(torch.from_numpy(A), torch.from_numpy(B), 3.0)
    assert isinstance(result, torch.Tensor) and result.tolist() == WANTED.tolist()


@pytest.mark.parametrize("call", [Caller(PROGRAM), partial(emulate, PROGRAM)], ids=["called", "emulated"])
def test_an_output_that_wants_a_gradient_is_refused(call):
    torch = pytest.importorskip("torch")
    a, b, out = torch.from_numpy(A), torch.from_numpy(B), torch.zeros(N, requires_grad=True)
    with refused("not-writable"):
        call(a, b, 3.0, out=out)
    assert not out.detach().any(), "nothing was written"
    with torch.no_grad():
        call(a, b, 3.0, out=out)
    assert out.tolist() == WANTED.tolist()


def test_emulate_reports_outputs_and_counters():
    report = emulate(PROGRAM, A, B, 3.0, check=False)
    assert report.ok and "array(" not in repr(report)
    assert report.outputs[0].tolist() == WANTED.tolist()
    assert report.counters.global_load_bytes == 2 * 4 * N and report.launch["grid"] == (4, 1, 1)


def empty(target: str) -> str:
    return f".version 9.0\n.target {target}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("sm_100a", H200(4)), ("sm_100f", H200(4)), ("sm_90a", B200(4)), ("sm_90a", Machine("H200", "sm_90", 4)),
        ("sm_103a", B200(4)), ("sm_100a", Machine("B300", "sm_103a", 4)), ("sm_90", A100(4)), ("sm_120", B200(4)),
    ],
)  # fmt: skip
def test_a_machine_that_does_not_run_the_kernels_target_is_refused(target, machine):
    with refused("wrong-gpu"):
        emulate(empty(target), grid=1, block=32, machine=machine)


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("sm_80", H200(4)), ("sm_80", B200(4)), ("sm_90a", H200(4)), ("sm_100f", B200(4)),
        ("sm_100f", Machine("B300", "sm_103a", 4)), ("sm_100a", None), ("sm_110f", None), ("sm_30", A100(4)),
    ],
)  # fmt: skip
def test_a_machine_that_runs_the_kernels_target_is_taken(target, machine):
    assert emulate(empty(target), grid=1, block=32, machine=machine).ok


@pytest.mark.parametrize("as_path", [False, True])
def test_a_text_and_the_path_of_a_text_are_run_with_their_parameters_in_order(tmp_path, as_path):
    what = tmp_path / "scale_add.ptx"
    what.write_text(SCALE_ADD)
    c = np.zeros(N, np.float32)
    report = emulate(
        what if as_path else SCALE_ADD, A, B, c, np.uint32(N), 3.0, grid=(4, 1, 1), block=(64, 1, 1), check=False
    )
    assert c.tolist() == WANTED.tolist() and report.entry == "scale_add"


def test_the_zero_byte_that_nvrtc_counts_at_the_end_of_a_text_is_no_part_of_it():
    c = np.zeros(N, np.float32)
    emulate(SCALE_ADD + "\0", A, B, c, np.uint32(N), 3.0, grid=(4, 1, 1), block=(64, 1, 1))
    assert c.tolist() == WANTED.tolist()


def test_anything_with_a_program_is_run():
    class Kernel:
        def program(self):
            return PROGRAM

    assert emulate(Kernel(), A, B, 3.0, check=False).outputs[0][1] == 3.5


def test_a_text_takes_block_and_cluster_from_its_directives():
    text = SCALE_ADD.replace("\n{", "\n.reqntid 64, 1, 1\n.reqnctapercluster 2, 1, 1\n{", 1)
    program = Program.from_text(text)
    assert (program.block, program.cluster, program.arch) == ((64, 1, 1), (2, 1, 1), "sm_90a")
    assert [parameter.kind for parameter in program.parameters] == ["pointer"] * 3 + ["scalar"] * 2


def test_a_text_with_several_kernels_needs_to_be_told_which():
    second = SCALE_ADD[SCALE_ADD.index(".visible") :].replace("scale_add", "second")
    with refused("not-this-text"):
        Program.from_text(SCALE_ADD + second)
    assert Program.from_text(SCALE_ADD + second, entry="second").entry == "second"


def test_strided_inputs_are_read_where_they_lie():
    wide = np.stack([A, -A])
    c = np.zeros(N, np.float32)
    emulate(SCALE_ADD, wide[0], B, c, N, 3.0, grid=4, block=64, check=False)
    assert c.tolist() == WANTED.tolist()


# -- the cost, before -------------------------------------------------------------------------------------------


def big(clusters: int):
    n = clusters * 64
    return np.ones(n, np.float32), np.ones(n, np.float32), np.zeros(n, np.float32)


def test_what_would_take_too_long_is_refused_and_nothing_is_written():
    a, b, c = big(2000)
    with config.override(emulator={"limit_s": 0.01}), refused("cost-limit") as caught:
        Caller(PROGRAM)(a, b, 2.0, out=c)
    assert not c.any()
    assert "limit_s" in str(caught.value) and "2000 clusters" in str(caught.value)


def test_a_small_grid_is_not_asked_about(monkeypatch):
    monkeypatch.setattr(estimate, "refuse_if_long", lambda found, *rest: pytest.fail("asked") if found else None)
    with config.override(emulator={"limit_s": 0.0}):
        assert Caller(PROGRAM)(A, B, 3.0).tolist() == WANTED.tolist()


def test_an_estimate_is_the_sample_times_the_clusters():
    found = estimate.estimate(100, lambda clusters, steps: 2.0 * clusters)
    assert (found.seconds, found.at_least, str(found)) == (200.0, False, "about 3 min")
    with refused("cost-limit"):
        estimate.refuse_if_long(found, 60, "gemm")
    estimate.refuse_if_long(found, 300, "gemm")


def test_what_a_run_does_once_is_not_multiplied_by_the_clusters():
    def sample(clusters, steps):
        return 0.02 + 0.001 * clusters

    assert estimate.estimate(4096, sample, limit_s=60).seconds < 10
    assert estimate.estimate(1000, sample, limit_s=60).seconds == pytest.approx(21), "within the limit, one is enough"


def test_a_sample_that_does_not_end_is_a_lower_bound_and_one_that_fails_is_none():
    from warploom.errors import DeadlockError, StepLimitError

    def endless(clusters, steps):
        error = StepLimitError("still running")
        error.seconds = 1.5
        raise error

    def waits(clusters, steps):
        raise DeadlockError("waits for the next CTA")

    assert str(estimate.estimate(100, endless)) == "at least 2 min"
    assert estimate.estimate(100, waits) is None


# -- interrupts and progress --------------------------------------------------------------------------------------


def test_the_progress_bar_shows_itself_only_on_a_terminal_and_after_a_while(monkeypatch):
    from warploom.runtime.progress import Progress

    with Progress("k", after_s=0.0) as bar:
        bar(1, 10)
    assert bar._bar is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Progress("k", after_s=0.0) as bar:
        bar(1, 10)
        assert bar._bar is not None
    with Progress("k", after_s=60.0) as bar:
        bar(1, 10)
    assert bar._bar is None


def test_an_interrupt_in_the_middle_reaches_the_caller(monkeypatch):
    from warploom.emulator import api

    def interrupted(*args, **rest):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Caller(PROGRAM)(A, B, 3.0)


def test_a_text_is_parsed_and_decoded_once():
    for kept in (loading.parsed, loading.loaded):
        kept.cache_clear()
    results = [emulate(PROGRAM, A, B, 3.0, check=check) for check in (False, True, False, True)]
    assert loading.parsed.cache_info().misses == loading.loaded.cache_info().misses == 1
    assert all(np.array_equal(one.outputs[0], results[0].outputs[0]) and one.ok for one in results)
