"""Programs kept on disk, and the fallback if a chosen configuration does not build."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

import warploom
from tests.errors import refused
from tests.operators.test_matmul import BF16, assert_close, draw
from warploom.driver.cache import builds
from warploom.errors import CacheWarning, CompilationError, OtherKernelWarning
from warploom.isa import dtypes
from warploom.isa.dtypes import bf16
from warploom.kernels.hopper.description import Config, Fusion
from warploom.operators import Problem, choose, kernel_cache
from warploom.operators.families import candidates
from warploom.operators.select import kernel_of, ranking
from warploom.operators.spec.gpu import EMULATED
from warploom.operators.warm import warm
from warploom.runtime.machine import H200

UNKNOWN = replace(EMULATED, name="a GPU without a table")
PATIENCE_S = 120
EVERYTHING = Fusion(True, None, "column", bf16, "silu", True, True)


@pytest.fixture(autouse=True)
def forgotten():
    """Nothing is remembered of other tests."""
    yield
    kernel_cache._program.cache_clear()
    kernel_cache.replaced.cache_clear()


@pytest.mark.parametrize(
    "problem",
    [
        Problem.of(300, 72, 40, fusion=EVERYTHING), Problem.of(300, 73, 40), Problem.of(8, 2048, 4096),
        Problem.of(256, 256, 256, "e4m3", fusion=Fusion(scales="block128")),
    ],
    ids=Problem.describe,
)  # fmt: skip
def test_a_program_survives_its_file(problem: Problem):
    config = candidates(problem, UNKNOWN)[0]
    program = kernel_of(problem, config).program()
    again = kernel_cache.from_bytes(kernel_cache.to_bytes(program))
    assert again == program
    assert all(mine.dtype is theirs.dtype for mine, theirs in zip(again.arrays, program.arrays, strict=True))
    dims = {"M": problem.m, "N": problem.n, "K": problem.k, "blocks": 1 << 20, "places": 1 << 20}
    assert again.grid(dims, H200()) == program.grid(dims, H200())


def test_a_second_process_traces_nothing(tmp_path, monkeypatch):
    problem, config = Problem.of(300, 72, 40), Config("ping_pong", 64, 64, stages=2, epi_stages=1)
    with warploom.config.override(cache_dir=tmp_path):
        first = kernel_cache.program_of(problem, config, keep=True)
        kernel_cache._program.cache_clear()
        monkeypatch.setattr(kernel_cache, "kernel_of", None)
        assert kernel_cache.program_of(problem, config, keep=True) == first
        assert kernel_cache.program_of(Problem.of(64, 136, 8), config, keep=True) == first, "sizes are arguments"
        monkeypatch.setattr(kernel_cache, "sources", lambda: "another state of the package")
        kernel_cache._program.cache_clear()
        with pytest.raises(TypeError):
            kernel_cache.program_of(problem, config, keep=True)


def test_a_file_of_a_program_names_nothing_but_the_package_s_own():
    class Wrong:
        def __reduce__(self):
            return print, ("never said",)

    with pytest.raises(pickle.UnpicklingError):
        kernel_cache.from_bytes(pickle.dumps(Wrong()))


def test_what_does_not_build_gives_way_to_the_next_best_and_says_so_once(monkeypatch):
    problem = Problem.of(300, 136, 72)
    chosen = choose(problem, UNKNOWN)
    real = kernel_cache.kernel_of

    def refuse(problem, config):
        if config == chosen.config:
            raise CompilationError("it spills")
        return real(problem, config)

    monkeypatch.setattr(kernel_cache, "kernel_of", refuse)
    with pytest.warns(OtherKernelWarning) as caught:
        other, program = kernel_cache.ready(problem, UNKNOWN, chosen)
        again, _ = kernel_cache.ready(problem, UNKNOWN, chosen)
    assert other == again and len(caught) == 1
    for word in (chosen.config.name(), other.config.name(), "it spills"):
        assert word in str(caught[0].message)
    assert other.config == [config for config, _ in ranking(problem, UNKNOWN)][1]
    assert program == real(problem, other.config).program()
    with refused("compilation"):
        kernel_cache.ready(problem, UNKNOWN, choose(problem, UNKNOWN, chosen.config))


def test_matmul_runs_what_replaced_the_choice(monkeypatch):
    real, refused = kernel_cache.kernel_of, []

    def refuse(problem, config):
        if config in refused or len(refused) < 2:
            refused.append(config)
            raise CompilationError("it spills")
        return real(problem, config)

    monkeypatch.setattr(kernel_cache, "kernel_of", refuse)
    rng = np.random.default_rng(0)
    a, b = draw(rng, (72, 64), BF16), draw(rng, (64, 40), BF16)
    with pytest.warns(OtherKernelWarning):
        assert_close(warploom.matmul(a, b), a, b)


@pytest.mark.parametrize("name", sorted(dtypes.ALL))
def test_a_type_is_the_same_object_in_every_process(name: str):
    dtype = dtypes.ALL[name]
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype


@pytest.mark.full
def test_kernels_built_ahead_in_other_processes_are_those_of_a_first_call(tmp_path):
    """Sizes that `Llama-3-8B` has at 64 rows, whose gated kernel told bf16 by identity."""
    gated = replace(Problem.of(64, 14336, 4096), fusion=Fusion(activation="silu", gate=True))
    added = replace(Problem.of(64, 4096, 4096), fusion=Fusion(addend=True))
    with warploom.config.override(cache_dir=tmp_path):
        found = warm([gated, added], EMULATED, workers=2, progress=False)
        assert not found.failed and found.built == 2
        for problem in (gated, added):
            config = choose(problem, EMULATED).config
            kept = kernel_cache.program_of(problem, config, keep=True)
            assert statements(kept.text) == statements(kernel_of(problem, config).program().text)


def test_what_a_full_disk_cannot_store_is_not_said_to_be_built_ahead(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    problem = Problem.of(16, 64, 64)
    with warploom.config.override(cache_dir=tmp_path):
        with monkeypatch.context() as disk, pytest.warns(CacheWarning):
            disk.setattr("warploom.driver.cache._write_all", full)
            found = warm([problem], EMULATED, workers=0, progress=False)
        assert found.built == 0 and str(tmp_path) in found.failed[problem.describe()]
        builds().clear()
        found = warm([problem], EMULATED, workers=0, progress=False)
        assert (found.built, found.failed) == (1, {})


@pytest.mark.slow
@pytest.mark.parametrize("to_all", [False, True])
def test_an_interrupted_warm_ends_at_once_and_goes_on_later(tmp_path, to_all):
    """Ctrl-C at a terminal reaches every process, `kill -INT` the first one alone."""
    sizes = ",".join(f"{16 * at}x{512 * at}x1024" for at in range(1, 25))
    begun = subprocess.Popen(
        [sys.executable, "-m", "warploom", "warm", sizes, "--workers", "2"], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "WARPLOOM_CACHE_DIR": str(tmp_path)}, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )  # fmt: skip

    def kept():
        return [path for path in tmp_path.glob("cubin/*/*") if path.is_file()]

    end = time.monotonic() + PATIENCE_S
    while not kept() and begun.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    (os.killpg if to_all else os.kill)(begun.pid, signal.SIGINT)
    _, said = begun.communicate(timeout=PATIENCE_S)
    assert begun.returncode == 130 and "Traceback" not in said and kept()
    with warploom.config.override(cache_dir=tmp_path):
        problems = [Problem.of(16 * at, 512 * at, 1024) for at in range(1, 25)]
        found = warm(problems, EMULATED, workers=0, progress=False)
        assert not found.failed and found.built < found.kernels


def statements(text: str) -> list[str]:
    """A text without the lines that say where it was traced."""
    return [line for line in text.splitlines() if not line.lstrip().startswith((".loc", ".file", "//"))]
