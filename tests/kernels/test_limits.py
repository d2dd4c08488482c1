"""Limits on building a kernel: the tracing of an instruction, 2 s of ptxas, no spills and no remarks.

benchmarks/results/*/emulator-speed.json has the times of a quiet machine. Here, tracing is limited by two numbers that
no slow or busy machine changes: how many Python functions it enters for each instruction of the text, and how often a
small step in Python runs in the same time. ptxas gets `BUSY` times its limit, because the same work takes up to twice
as long while others use the processor's other half.
"""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import warp_specialised
from examples.hopper import f64, sparse, stream_k
from tests.kernels.test_hopper_gemm import LARGE, SMALL
from tests.kernels.test_small_m import PROBLEMS
from warploom.asm.nodes import Instruction, walk
from warploom.driver import resources, toolchain
from warploom.driver.resources import Resources
from warploom.kernels import walkthrough
from warploom.kernels.hopper import block_scaled, gemm, grouped, grouped_config, small_m
from warploom.kernels.hopper.description import Config, Fusion, Product
from warploom.kernels.hopper.small_m_config import choose
from warploom.kernels.ladder import RUNGS
from warploom.lang import Kernel
from warploom.runtime.machine import H200
from warploom.types import e4m3

STEPS = 150
"""Of `steps`, in the time of an instruction, from the Python function to the checked text. 50 to 111 are, with Python
3.11 and 3.13 and 0.4 us a step, most of them for the walkthrough kernel."""
CALLS = 75
"""Python functions entered for each instruction, with Python 3.11; later ones enter fewer. 29 to 72 are, most of them
for the walkthrough kernel, whose every step has its own descriptors."""
PTXAS_S = 2.0
BUSY = 3.0
ROUNDS = 5
FP8 = Product(e4m3, e4m3)
NARROW = {
    "two of 64 x 80": Config(tile_n=80, stages=6, ctas=1), "two of 64 x 96": Config(tile_n=96, stages=6, ctas=1),
    "one of 64 x 80": Config(tile_m=64, tile_n=80, consumers=1, stages=8, ctas=1),
    "one of 64 x 200": Config(tile_m=64, tile_n=200, consumers=1, stages=5, ctas=1),
    "two of 128 x 104": Config(tile_m=256, tile_n=104, ctas=1), "turns of 64 x 8": Config("ping_pong", 64, 8, ctas=1),
    "three of 64 x 72": Config(tile_m=192, tile_n=72, consumers=3, epi_stages=1, ctas=1),
}  # fmt: skip
"""So narrow that ptxas finds the registers at launch by itself no more: `hopper.gemm.at_launch`."""
LONG: dict[str, Callable[[], Kernel]] = {
    "r23_staggered": lambda: RUNGS[-1].build(),
    "silu and a gate": lambda: gemm.build(
        Product(), Config("ping_pong", 128, 176, stages=5, epi_stages=1), Fusion(activation="silu", gate=True)
    ),
    "row scales, staggered tail": lambda: gemm.build(
        FP8, Config("staggered", 256, 128, multicast="a", split_tail=True), Fusion(scales="row")
    ),
    "walkthrough": lambda: walkthrough.build_gemm_m64n64(64, 64, 2048),
}
"""Kernels with long texts, each of another kind."""
KERNELS: dict[str, Callable[[], Kernel]] = {
    **{rung.module: rung.build for rung in RUNGS},
    **{name: lambda config=config: gemm.build(Product(), config) for name, config in {**SMALL, **NARROW}.items()},
    **{config.name(): lambda config=config: gemm.build(FP8, config) for config in LARGE},
    **{
        f"grouped {config.name()}": lambda config=config: grouped.build(FP8, config, Fusion(scales="row"))
        for config in grouped_config.CHOICES
    },
    **{
        f"decode {problem}": lambda problem=problem: small_m.build(Product(), choose(*problem, H200().sms))
        for problem in PROBLEMS
    },
    "block_scaled": lambda: block_scaled.build(FP8),
    "block_scaled, large rows": lambda: block_scaled.build(FP8, block_scaled.LARGE_ROWS),
    "warp_specialised": warp_specialised.build,
    "sparse": sparse.build,
    "f64": f64.build,
    **{way: lambda way=way: stream_k.build(stream_k.Config(way)) for way in stream_k.WAYS},
    **LONG,
}


COUNT = 20_000


@dataclass
class Node:
    name: str
    operands: tuple[int, ...]


def steps() -> None:
    """Do `COUNT` times what tracing consists of: a call, an object with a text and a tuple, an entry in a table."""

    def step(at: int) -> None:
        node = Node(f"%r{at}", (at, at + 1))
        made[node.name] = node

    made: dict[str, Node] = {}
    for at in range(COUNT):
        step(at & 1023)


def seconds(run: Callable[[], object]) -> float:
    """The processor time it takes."""
    started = time.process_time()
    run()
    return time.process_time() - started


def instructions(kernel: Kernel) -> int:
    (entry,) = kernel.built().module.entries
    return sum(isinstance(statement, Instruction) for statement in walk(entry.body or ()))


def assembled(kernel: Kernel, folder: Path) -> tuple[Resources, float]:
    """What ptxas says of a kernel, and the processor time it took."""
    tool = toolchain.ptxas()
    if tool is None:
        pytest.skip("no ptxas here")
    Path(folder, "k.ptx").write_text(kernel.ptx())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = tool.run("-v", f"-arch={kernel.arch}", "-o", "k.cubin", "k.ptx", cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    return resources.parse(log)[kernel.name], after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize("name", KERNELS)
def test_it_is_assembled_in_time_without_spills_and_remarks(name: str, tmp_path: Path):
    used, seconds = assembled(KERNELS[name](), tmp_path)
    assert (used.spills, used.stack, used.notes) == (0, 0, ())
    assert seconds < PTXAS_S * BUSY


@pytest.mark.parametrize("name", NARROW)
def test_registers_move_between_the_roles_of_a_narrow_tile(name: str, tmp_path: Path):
    """ptxas gives every thread at launch what the text says, and the roles change it."""
    kernel = KERNELS[name]()
    said = re.search(r"\.maxnreg (\d+)", kernel.ptx())
    assert said is not None and "setmaxnreg.inc" in kernel.ptx()
    assert assembled(kernel, tmp_path)[0].registers == int(said[1])


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("name", LONG)
def test_tracing_takes_few_steps_for_each_instruction(name: str):
    kernel = LONG[name]()
    kernel.ptx()  # what is looked up once in a process
    again, calls = kernel.bind(), 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        again.ptx()
    finally:
        sys.setprofile(before)
    assert calls / instructions(again) < CALLS


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("name", LONG)
def test_tracing_is_quick(name: str):
    kernel = LONG[name]()
    kernel.ptx()
    # In turn, so that a machine which becomes slower makes both slower; the least, so that no interruption counts.
    times = [(seconds(kernel.bind().ptx), seconds(steps)) for _ in range(ROUNDS)]
    traced, stepped = map(min, zip(*times, strict=True))
    assert traced / instructions(kernel) < STEPS * stepped / COUNT
