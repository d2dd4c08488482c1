"""`Kernel.time` and `warploom time`: calls, reports, and refusals, on a mock GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import command_line
from warploom import Kernel, Tile, kernel, ptx
from warploom.driver import library
from warploom.errors import ArgumentError, ArgumentTypeError, NoGpuError
from warploom.runtime.benchmark import timing
from warploom.runtime.benchmark.clock import ClockReading
from warploom.types import f32, u32, u64

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "vector_add.py"
COST_S = {"launch": 100e-6, "mine": 250e-6}
"""Seconds that a launch of the kernel and a call of `mine` take on the mock GPU."""


class PretendedGpu:
    """A GPU of one clock: launches of the kernel and calls of `mine` move it on."""

    name, uuid, index = "Pretended GPU", "", 0

    def __init__(self, index: int = 0, limit_s: float | None = None) -> None:
        self.passed = 0.0
        self.timer = self

    def timed(self, call: Callable[[], object], launches: int) -> float:
        before = self.passed
        for _ in range(launches):
            self.passed += COST_S[str(call())]
        return (self.passed - before) / launches

    def now(self) -> float:
        return self.passed

    def idle(self, seconds: float) -> None:
        self.passed += seconds

    def ready(self, calls: Sequence[Callable[[], object]], launch: str, count: int) -> tuple[Any, int]:
        called: Any = calls[0]
        return (lambda: "launch" if isinstance(called.func, Kernel) else called()), 1

    def clock(self, program: Any, arguments: Sequence[Any], seconds: float) -> tuple[ClockReading, float]:
        return ClockReading(1500, 1000), COST_S["launch"]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "Gpu", PretendedGpu)
    monkeypatch.setattr(timing, "_moved", lambda value, index: value)
    monkeypatch.setattr(timing, "ROTATED_BYTES", 512)


@kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=1, block=32, arch="sm_80")
def double(X, Y):  # type: ignore[no-untyped-def]
    x, y = ptx.global_ptrs(X, Y)
    offset = ptx.special.tid.x().to(u64) * f32.bytes
    value = ptx.load(f32, ptx.addr(x + offset))
    ptx.store(ptx.addr(y + offset), value + value)


@kernel(
    in_specs=(Tile("N", f32), Tile(1, u32, workspace=True)), out_specs=(Tile("N", f32),), grid=1, block=32, arch="sm_80"
)
def counted(X, seen, Y):  # type: ignore[no-untyped-def]
    x, y = ptx.global_ptrs(X, Y)
    offset = ptx.special.tid.x().to(u64) * f32.bytes
    ptx.store(ptx.addr(y + offset), ptx.load(f32, ptx.addr(x + offset)))


def mine(x: Any) -> str:
    return "mine"


X = np.ones(32, np.float32)


@pytest.mark.parametrize("protocol", ["alone", "interleaved", "burst"])
def test_a_kernel_is_timed_in_turn_with_a_callable_by_the_protocol_that_is_named(gpu: None, protocol: str) -> None:
    found = double.time(X, against=mine, protocol=protocol, seconds=0.1)
    assert found.protocol == protocol
    assert found.us == pytest.approx(100)
    assert found.seconds["mine"].median == pytest.approx(250e-6)
    assert found.ratio_to == {"mine": 2.5}
    assert found.clock_mhz == 1500.0
    assert "double" in str(found) and protocol in str(found) and "2.500" in str(found)
    assert json.loads(json.dumps(found.as_dict()))["us"]["double"]["median"] == 100.0


def test_copies_of_the_arrays_are_rotated_through_until_they_exceed_the_cache(gpu: None) -> None:
    assert double.time(X, seconds=0.1).sets == 2, "512 bytes are two sets of two arrays of 128 bytes"


def test_outputs_may_be_passed_and_are_written(gpu: None) -> None:
    out = np.zeros(32, np.float32)
    double.time(X, out=out, seconds=0.1)
    assert (out == 2).all()


def test_a_workspace_is_not_an_argument_of_a_timed_call(gpu: None) -> None:
    assert counted.time(X, seconds=0.1).us == pytest.approx(100)


@pytest.mark.parametrize(
    "options",
    [{"protocol": "fast"}, {"seconds": 0}, {"launch": "thread"}, {"against": {"double": mine}}],
    ids=lambda options: next(iter(options)),
)
def test_a_timing_that_cannot_be_is_refused(gpu: None, options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        double.time(X, **options)


def test_against_takes_what_can_be_called(gpu: None) -> None:
    with pytest.raises(ArgumentTypeError):
        double.time(X, against={"a number": 3})


def test_without_a_gpu_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise library.no_gpu("none here")

    monkeypatch.setattr(library, "load", none)
    with pytest.raises(NoGpuError) as refused:
        double.time(X)
    assert "double" in refused.value.what and "GPU" in refused.value.what
    told = command_line.run("time", str(EXAMPLE))
    assert told.exit_code == 1 and "needs a GPU" in told.stderr and "Traceback" not in told.stderr


def test_the_command_times_each_run_of_the_example_against_a_function_of_the_file(gpu: None, tmp_path: Path) -> None:
    text = EXAMPLE.read_text() + "\ndef theirs(*inputs):\n    return 'mine'\n"
    (tmp_path / "add.py").write_text(text)
    command = ["time", str(tmp_path / "add.py"), "--against", "theirs", "--seconds", "0.1", "--json"]
    told = command_line.run(*command)
    assert told.exit_code == 0, told.stderr
    (found, *_) = json.loads(told.stdout)
    assert found["ratio_to"] == {"theirs": 2.5}


def test_the_command_refuses_a_callable_that_is_not_there(gpu: None) -> None:
    told = command_line.run("time", str(EXAMPLE), "--against", "nobody")
    assert told.exit_code == 2 and "nobody" in told.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("launch", ["graph", "stream"])
def test_on_a_gpu_a_kernel_is_timed_beside_torch(launch: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(32, device="cuda")
    found = double.time(x, against=torch.clone, protocol="interleaved", seconds=0.2, launch=launch)
    assert 0.5 < found.us < 1000
    assert found.sets > 1 and set(found.ratio_to) == {"clone"}
    assert found.clock_mhz is None or 100 < found.clock_mhz < 4000
