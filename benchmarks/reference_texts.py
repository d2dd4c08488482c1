"""Time the hand-written reference texts next to our kernels of the same design.

    python benchmarks/reference_texts.py [--texts PATTERN] [--seconds S] [--out FILE] [--append] [--pretend]

`tests/foreign/reference` has nine PTX texts that gave right results on an H200. Each is timed on the shapes where it
was fastest (`DUELS`), in one process, alone and interleaved, by graph replays over rotating operands, and checked
against the exact result:

    reference            the text, launched as in tests/foreign/reference_kernels.py
    warploom:same-idea   our kernel with its design, tile, stages and cluster; a dependent launch if the text has one
    warploom:chosen      the kernel that `matmul` runs there, unless it is the same

A text gets its tiles as a list, in the order in which our kernels walk: bands of 8 tiles of a cluster, back and forth.
The decode texts read weights before the previous kernel has ended, so our kernels promise constant weights there.

--pretend: small products in the emulator, with a mock clock; nothing is written unless --out is given.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

from warploom import operators
from warploom.kernels.hopper.description import Config
from warploom.kernels.hopper.names import any_config
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.lab import bench, evidence, library_calls, operands
from warploom.lab.contender import COMPILE_S, Beat, Contender, Prepared
from warploom.lab.gpu_stage import GpuStage, compared
from warploom.lab.operands import Operands
from warploom.lab.plans import Plan
from warploom.lab.roofline import grouped
from warploom.lab.suites import Suite
from warploom.lab.work import GemmWork
from warploom.operators import select
from warploom.operators.spec.gpu import EMULATED, gpu_of
from warploom.runtime import Program, build, emulate, on_gpu
from warploom.runtime.benchmark.power import PowerMeter, driver_version
from warploom.runtime.benchmark.watchdog import LIMIT_S, Watchdog
from warploom.runtime.bind import Shape
from warploom.runtime.dispatch import named_views, place, sort_out
from warploom.runtime.progress import Progress

ROOT = Path(__file__).resolve().parents[1]


def by_path(path: Path) -> ModuleType:
    """A module loaded from its file. The texts' folder has modules named after compilers, so it stays off the path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


texts = by_path(ROOT / "tests" / "foreign" / "reference_kernels.py")
Large, Decode = texts.Large, texts.Decode

OUT = ROOT / "benchmarks/results/nvidia-h200/reference-texts.json"
NAME, PROTOCOLS = "reference-texts", ("alone", "interleaved")
REFERENCE, SAME, CHOSEN = "reference", "warploom:same-idea", "warploom:chosen"
GROUP = 8
"""Tiles of a cluster in a band of the raster, as in the configurations below."""
ROUNDS = 20
"""Slices of each contender under the protocol "interleaved"; the verdict uses "alone"."""
TIE = 0.985
"""Least ratio that counts as not slower."""
TEXTS: dict[str, Large | Decode] = {kernel.name: kernel for kernel in (*texts.LARGE, *texts.DECODE)}


@dataclass(frozen=True)
class Duel:
    """A text, our kernel of the same design, and the shapes.

    Attributes:
        text: its name.
        config: our configuration, by name; the text decides whether the launch is dependent.
        shapes: M, N, K.
        why: the reason for these shapes.
    """

    text: str
    config: str
    shapes: tuple[tuple[int, int, int], ...]
    why: str

    @property
    def kernel(self) -> Large | Decode:
        return TEXTS[self.text]

    def problem(self, shape: tuple[int, int, int]) -> GemmWork:
        """The product of a shape in the text's types, with its scales."""
        if isinstance(self.kernel, Decode):
            return GemmWork(*shape)
        scales = {"none": "", "tensor": "tensor", "block": "block128"}[self.kernel.scales]
        return GemmWork(*shape, dtype="e4m3" if scales else "bf16", scales=scales)

    @property
    def small(self) -> GemmWork:
        """One tile of a cluster and few steps of k, which the emulator computes in a second."""
        kernel = self.kernel
        if isinstance(kernel, Decode):
            return self.problem((kernel.rows, 128, 1024))
        return self.problem((*kernel.unit, (kernel.least_steps + 1) * kernel.tile[2]))


LONG, SHORT, TALL = (8192, 8192, 8192), (8192, 8192, 1024), (16384, 4096, 1536)
DUELS = (
    Duel("bf16_cooperative_128x256", "cooperative_128x256x4_2b_g8", (LONG,),
         "whole waves of its tile, and K so long that its ends do not count"),
    Duel("bf16_staggered_256x192", "staggered_256x192x3_2a_g8", (LONG,),
         "held by power there, and its tile loads least for each product"),
    Duel("bf16_pingpong_128x192", "ping_pong_128x192x5_2b_g8", (SHORT, TALL),
         "K is short: the one consumer's end stands beside the other's products"),
    Duel("bf16_staggered_256x128", "staggered_256x128x4_2a_g8", (SHORT, TALL),
         "K is short: ends that are apart are worth most, and whole waves"),
    Duel("fp8_staggered_256x128", "staggered_256x128x4_2a_g8", ((4096, 4096, 4096),),
         "the first of the fp8 texts there"),
    Duel("fp8_pingpong_128x192", "ping_pong_128x192x5_2b_g8", ((8192, 8192, 2048),),
         "the first of the fp8 texts there: K is short"),
    Duel("fp8_block128_192x128", "cooperative_192x128x4_g8,epi_stages=1", (LONG,),
         "ahead of cuBLAS's kernel with scales of blocks there, alone"),
    Duel("bf16_decode_m16", "n16_w64k2s11_start_cw_wide", ((16, 8192, 8192),),
         "the fastest for 16 rows there"),
    Duel("bf16_decode_m8_splitk2", "n8_w64k2s6_S2c_o2_start_cw", ((1, 8192, 8192),),
         "the fastest for one row there, but for the place of its trigger"),
)  # fmt: skip
"""The shapes on which each text was fastest on an H200 before warploom had its own kernels."""


# -- contenders ----------------------------------------------------------------------------------------------------


class Reference(Contender):
    """A text, set up once for each set of operands."""

    name = REFERENCE
    dtypes = ("bf16", "e4m3")
    scales = ("", "tensor", "block128")

    def __init__(self, kernel: Large | Decode) -> None:
        self.kernel = kernel

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        beat(f"{self.kernel.name}, building", COMPILE_S)
        program = self.program(problem, multiprocessors(sets[0].a))
        facts: dict[str, Any] = {"text": self.kernel.name, "pdl": program.pdl}
        used = build(program).resources.get(program.entry)
        if used is not None:
            facts |= {"registers": used.registers, "spill_bytes": used.spills,
                      "shared_bytes": used.static_shared + program.dynamic_smem}  # fmt: skip
        facts["text_sha256"] = evidence.ptx_sha256(program.text)
        calls = [laid_out(program, self.arguments(problem, o), beat) for o in sets]
        return Prepared(calls, self.kernel.name, f"g{GROUP}" if isinstance(self.kernel, Large) else "", facts)

    def program(self, problem: GemmWork, sms: int) -> Program:
        """The text with its launch: as many clusters as the GPU holds, but at most one per tile."""
        kernel = self.kernel
        if isinstance(kernel, Decode):
            return kernel.program(**kernel.launch(problem.n))
        clusters = min(sms // (kernel.cluster[0] * kernel.cluster[1]), len(kernel.tiles(problem.m, problem.n)))
        return kernel.program(**kernel.launch(clusters))

    def arguments(self, problem: GemmWork, o: Operands) -> list[Any]:
        """The parameters for a set of operands; scale factors of a tile beyond the last row are ones."""
        if isinstance(self.kernel, Decode):
            return self.kernel.arguments(o.a, o.b, o.out)
        scales: list[Any] = []
        if problem.scales == "tensor":
            scales = [o.scale_a.reshape(1), o.scale_b.reshape(1)]
        elif problem.scales:
            along_m = o.scale_a.new_ones(problem.k // 128, self.kernel.padded(problem.m))
            along_m[:, : problem.m] = o.scale_a.T
            scales = [along_m, o.scale_b]
        return self.kernel.arguments(o.a, o.b, o.out, *scales, order=grouped(GROUP))


class Ours(Contender):
    """Our kernel in one configuration, called through `matmul`. `config`: maps a problem to it."""

    dtypes, scales = Reference.dtypes, Reference.scales

    def __init__(self, name: str, text: str, config: Callable[[GemmWork], Config | SmallMConfig]) -> None:
        self.name, self.text, self.config = name, text, config

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        beat(f"{self.name}, building", COMPILE_S)
        config = self.config(problem)
        prepared = library_calls.prepare(problem, sets, pinned=config)
        prepared.program = None  # no reading of the clock inside: the text has none to be held against
        prepared.facts |= {"text": self.text, "pdl": config.pdl}
        return prepared


class Chosen(Ours):
    """The kernel that `matmul` runs, if it differs from ours of the same design."""

    def __init__(self, duel: Duel) -> None:
        super().__init__(CHOSEN, duel.text, lambda problem: chosen(duel, problem))
        self.duel = duel

    def missing(self, problem: GemmWork | None = None) -> str | None:
        reason = super().missing(problem)
        if reason is None and problem is not None:
            both = [text_of(problem, config(self.duel, problem)) for config in (same_idea, chosen)]
            if both[0] == both[1]:
                return f"matmul runs the kernel of the same idea as {self.duel.text} at {problem.shape}"
        return reason


def same_idea(duel: Duel, problem: GemmWork) -> Config | SmallMConfig:
    """Our configuration with the text's design."""
    config = any_config(duel.config)
    return config if isinstance(config, SmallMConfig) else replace(config, pdl=duel.kernel.pdl)


def chosen(duel: Duel, problem: GemmWork) -> Any:
    """The library's configuration on this GPU, or for an H200 without one; weights are constant if the text's are."""
    import torch

    gpu = gpu_of(0) if torch.cuda.is_available() else EMULATED
    config = operators.choose(problem.posed, gpu).config
    return select.promised(config) if isinstance(duel.kernel, Decode) else config


def text_of(problem: GemmWork, config: Any) -> str:
    """The PTX of a configuration."""
    return select.kernel_of(problem.posed, config).ptx()


def multiprocessors(array: Any) -> int:
    """The GPU of a tensor; for CPU tensors, the emulated one."""
    import torch

    if not array.is_cuda:
        return EMULATED.sms
    return torch.cuda.get_device_properties(array.device).multi_processor_count


def laid_out(program: Program, arguments: list[Any], beat: Beat) -> Callable[[], object]:
    """A callable for a text, checked and run once; later calls only enqueue it. On the CPU each call is an
    emulation."""
    call = sort_out(program, arguments, None, {})
    if place(program, named_views(call, []))[0] == "cpu":
        return lambda: emulate(program, *arguments, check=False)
    import torch

    beat(f"{program.name}, first launch", LIMIT_S)
    launch, _ = on_gpu.run(call, [], Shape(), None)
    torch.cuda.synchronize()

    def again() -> list[Any]:
        launch(torch.cuda.current_stream().cuda_stream)
        return arguments  # whose memory has to stay: the launch has addresses only

    return again


# -- where it runs -------------------------------------------------------------------------------------------------


class Pretended(AbstractContextManager[None]):
    """No GPU: operands on the CPU, results by the emulator, and a clock on which every call takes a millisecond."""

    name, driver, uuid = "pretended", "", ""

    def __init__(self) -> None:
        self.timer, self._time = self, 0.0

    def __exit__(self, *error: object) -> None: ...

    def timed(self, call: Callable[[], object], launches: int) -> float:
        started = self._time
        for _ in range(launches):
            call()
        return (self._time - started) / launches

    def now(self) -> float:
        return self._time

    def idle(self, seconds: float) -> None:
        self._time += seconds

    def operands(self, problem: GemmWork, data: str) -> list[Operands]:
        return operands.make(problem, data, sets=1, device="cpu")

    def check(self, problem: GemmWork, sets: Sequence[Operands], prepared: Prepared) -> tuple[float, bool]:
        return compared(operands.reference(problem, sets[0]), sets, prepared, lambda: None)

    def ready(self, prepared: Prepared, launch: str, count: int) -> tuple[Callable[[], object], int]:
        return lambda: self.idle(1e-3), 1

    def clock(self, prepared: Prepared, seconds: float) -> None:
        return None

    def share(self, reading: Any, tflops: float, dtype: str) -> None:
        return None

    def host_us(self, prepared: Prepared) -> float:
        raise NotImplementedError

    def release(self) -> None:
        pass


def plans(pattern: str, seconds: float, pretend: bool) -> list[Plan]:
    """One plan for each duel whose text's name matches."""
    made = []
    for duel in DUELS:
        if not fnmatch(duel.text, pattern):
            continue
        problems = (duel.small,) if pretend else tuple(map(duel.problem, duel.shapes))
        mine = Ours(SAME, duel.text, lambda problem, duel=duel: same_idea(duel, problem))
        made.append(Plan(Suite(NAME, NAME, problems, (REFERENCE,), PROTOCOLS), problems,
                               (Reference(duel.kernel), mine, Chosen(duel)), PROTOCOLS, seconds=seconds,
                               rounds=ROUNDS))  # fmt: skip
    return made


def line_of(row: dict[str, Any]) -> str:
    """The printed summary of a row."""
    sizes = "x".join(str(row[name]) for name in "mnk")
    watts = f", {row['pj_per_flop']:.3f} pJ per FLOP" if "pj_per_flop" in row else ""
    slower = "  SLOWER" if row["protocol"] == "alone" and row["ratio_to"].get(REFERENCE, 1.0) < TIE else ""
    return (
        f"{row['text']} {sizes} {row['protocol']}: {row['provider']} {row['config']}"
        f"{' pdl' if row['pdl'] else ''}: {row['us']['median']:.1f} us, {row['tflops']['median']:.1f} TFLOP/s{watts}, "
        f"{row['ratio_to'].get(REFERENCE, float('nan')):.4f}{slower}"
    )


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the program; returns the contents of its file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", default="*", help="names of texts, as file names are matched")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each contender alone, in two blocks")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--append", action="store_true", help="keep the rows that --out has of other runs")
    parser.add_argument("--pretend", action="store_true")
    options = parser.parse_args(words)
    out = options.out or (None if options.pretend else OUT)
    stage: Any = Pretended() if options.pretend else GpuStage()
    meter, all_of_them = PowerMeter(stage.uuid), bench.Results()

    def finish(ended: str = "") -> dict[str, Any]:
        head = evidence.header(NAME, gpu=stage.name, driver=driver_version())
        head |= {**meter.header(), "data": "normal", "seconds": options.seconds, "missing": all_of_them.missing,
                 "failed": all_of_them.failed, "summary": all_of_them.summary()}  # fmt: skip
        whole: dict[str, Any] = {**head, **({"ended": ended} if ended else {}), "rows": all_of_them.rows}
        if out is not None:
            if options.append and out.exists():
                whole = evidence.added(evidence.read(out), head, all_of_them.rows)
            evidence.write(out, {key: value for key, value in whole.items() if key != "rows"}, whole["rows"])
        return whole

    def hang(who: str) -> None:
        print(f"no answer from the GPU for a while: {who}; what was measured before is kept", flush=True)
        finish(f"no answer from the GPU for a while: {who}")

    todo = plans(options.texts, options.seconds, options.pretend)
    steps = sum(plan.steps for plan in todo)
    with stage, Watchdog(hang) as watchdog, meter, Progress(total=steps, every_s=0.0) as progress:
        for plan in todo:
            one = bench.Bench(plan, stage, meter, watchdog, progress.say, progress.step)
            one.results = all_of_them
            meter.labelled.clear()  # labels name no text
            first = len(all_of_them.rows)
            one.run()
            for row in all_of_them.rows[first:]:
                progress.say(line_of(row))
    whole = finish()
    for each in whole["summary"]:
        print(f"{each['provider']}, {each['problems']}, {each['protocol']}: {each['geomean']:.4f} of the texts over "
              f"{each['count']}, least {each['min']:.4f}")  # fmt: skip
    for kind in ("missing", "failed"):
        for each in whole[kind]:
            print(f"{kind}: {each['provider']} {each.get('shape', '')} {each['reason']}")
    return whole


if __name__ == "__main__":
    main()
