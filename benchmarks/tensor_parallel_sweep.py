"""Other constants and forms of products with an all-gather or a reduce-scatter, beside their baselines, on all GPUs.

    python -m benchmarks.tensor_parallel_sweep [--out benchmarks/results/nvidia-h200/sweep-all-gather.json]
                                               [--only all-gather] [--seconds 240] [--shapes 6] [--rates] [--like 4]
                                               [--variants "push$|tma"]

The products of `tensor_parallel` in bf16. `VARIANTS` are calls with other constants, configurations or build options
than the default; each has a process group of its own, as a group keeps one plan for a shape. Checks, rounds and times
are those of `tensor_parallel_rows`. Each row is written when it is measured, with the geometric means of all rows so
far ("means": of the faster baseline, over the products that all variants have). `--variants` takes those whose names
match a regular expression. `--rates` first measures the copy engines: every GPU writes `SENT` bytes to each of the
others, in pieces, streams and with flags of several kinds. `--like R` narrows the products so that a GPU receives or
sends as many bytes per operation as one of R GPUs: on two GPUs, `--like 4` asks what four would.

Nothing hangs: a kernel waits `PATIENCE_S` seconds for another GPU, a row ends after `STEP_S`, a build after `BUILD_S`,
and no row is begun after `--seconds`.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, prod
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.tensor_parallel import SHAPES, header, told
from benchmarks.tensor_parallel_cases import TOLERANCE, Contest, all_gather, reduce_scatter
from benchmarks.tensor_parallel_machine import BUILDERS, Gpus
from benchmarks.tensor_parallel_rows import surviving, timed
from warploom.kernels.hopper import (
    copied_rows,
    gemm_all_gather,
    gemm_reduce_scatter,
    pushed_by_tma,
    pushed_rows,
    ranked_tile,
)
from warploom.kernels.hopper.description import PANEL, Config
from warploom.lang import Kernel

SENT, PITCH = 64 << 20, 56 << 10
WIDTHS_OF_CHUNKS = (4480, 8192, 8576, 8704, 9216, 9600, 9728, 10240)
"""Bytes of a row's chunk: multiples of 128, 512 and 1024."""
PATIENCE_S = "10"
BUILD_S, STEP_S, SMS = 60, 60, 132
KINDS = {"all-gather": gemm_all_gather, "reduce-scatter": gemm_reduce_scatter}
CHOOSE = ranked_tile.choose


@dataclass(frozen=True)
class Variant:
    """A call: its form, constants of modules, fields of its configuration, options of its build."""

    by: str = ""
    constants: dict[str, float] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    build: dict[str, Any] = field(default_factory=dict)


def _by_tma(in_flight: int, **constants: float) -> Variant:
    return Variant("tma", constants, build={"in_flight": in_flight})


VARIANTS: dict[str, dict[str, Variant]] = {
    "all-gather": {
        "warploom push": Variant("push"),
        "warploom tma": _by_tma(pushed_by_tma.IN_FLIGHT),
        "warploom copy": Variant("copy"),
        "warploom copy, 2 us": Variant("copy", {"COPY_US": 2}),
        **{f"warploom tma, {count} in flight": _by_tma(count) for count in (4, 6, 8, 16)},
        "warploom tma, 32 chunks": _by_tma(pushed_by_tma.IN_FLIGHT, MOST_CHUNKS=32),
        "warploom tma, 16 rows": _by_tma(pushed_by_tma.IN_FLIGHT, ROWS=16),
    },
    "reduce-scatter": {"warploom 1 CTA": Variant(config={"ctas": 1}), "warploom 2 CTAs": Variant(config={"ctas": 2})},
}
"""By kind and name."""


@contextmanager
def changed(variant: Variant) -> Iterator[None]:
    """The modules with other constants."""
    from warploom.integrations.torch import copy_engines

    modules = (copy_engines, copied_rows, pushed_rows, pushed_by_tma, gemm_all_gather, gemm_reduce_scatter)
    with ExitStack() as stack:
        for name, value in variant.constants.items():
            for module in modules:
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, value))
        yield


def shapes_of(options: argparse.Namespace, world: int) -> list[tuple[int, int, int]]:
    """The products, what matters most first. With `like`, N is narrower: a GPU exchanges (world - 1) / world of all
    rows while it computes 1 / world of the product, so N goes by (world - 1). The third then has hardly any product."""
    chosen, unit = [SHAPES[at] for at in (1, 0, 2, 5, 4, 3)], PANEL * world
    if options.like:
        part = (world - 1) / (options.like - 1)
        chosen = [(m, ceil(n * part / unit) * unit, k) for m, n, k in chosen]
        chosen.insert(2, (16384, 176 * world, 12800))
    return chosen[: options.shapes]


def config_of(kind: str, variant: Variant, m: int, n: int, world: int, sms: int) -> Config:
    """The configuration of a variant."""
    columns, staged = (n // world, False) if kind == "all-gather" else (n, True)
    return replace(CHOOSE(m // world, columns, world, sms, staged=staged, slots=variant.by == "tma"), **variant.config)


BUILDS = {kind: module.build.__wrapped__ for kind, module in KINDS.items()}  # type: ignore[attr-defined]


@lru_cache
def built(kind: str, name: str, world: int, config: Config) -> Kernel:
    """The kernel of a variant."""
    variant = VARIANTS[kind][name]
    options = {"by": variant.by, **variant.build} if kind == "all-gather" else variant.build
    with changed(variant):
        made: Kernel = BUILDS[kind](world, config=config, **options)
        made.resources()
    return made


@contextmanager
def called_as(kind: str, name: str, config: Config) -> Iterator[None]:
    """Calls of the library's functions are those of a variant."""
    variant = VARIANTS[kind][name]

    def build(ranks: int, *_: Any, **__: Any) -> Kernel:
        return built(kind, name, ranks, config)

    with (
        changed(variant), mock.patch.object(ranked_tile, "choose", lambda *_, **__: config),
        mock.patch.object(KINDS[kind], "build", build),
    ):  # fmt: skip
        yield


# -- the copy engines ------------------------------------------------------------------------------------------------


def rates(machine: Gpus) -> dict[str, float]:
    """GB/s out of each GPU, of the slowest one, by what is copied."""
    import torch.distributed._symmetric_memory as symmetric

    from warploom.driver.side_streams import CopyOfRows, SetFlag, SideStreams

    torch, rank, world = machine.torch, machine.rank, machine.world
    shared = symmetric.empty(world * SENT + 4096, dtype=torch.uint8, device=machine.device)
    handle = symmetric.rendezvous(shared, machine.dist.group.WORLD.group_name)
    inbox = [handle.get_buffer(each, shared.shape, shared.dtype).data_ptr() for each in range(world)]
    source, one = torch.zeros(SENT, dtype=torch.uint8, device=machine.device), torch.ones(1, device=machine.device)

    def copies(streams: int, chunks: int, strided: bool, flag: str, peers: str, width: int = 0) -> SideStreams:
        made: list[list[Any]] = [[] for _ in range(streams)]
        pairs = [(to, chunk) for to in range(1, world) for chunk in range(chunks)]
        if peers == "together":
            pairs.sort(key=lambda pair: pair[1])
        for number, (place, chunk) in enumerate(pairs):
            to, size = (rank - place) % world, SENT // chunks
            across = width or PITCH // chunks
            start = chunk * (across if strided else size)
            stream = made[number % streams]
            shape = (SENT // PITCH, across, PITCH) if strided else (1, size, size)
            stream.append(CopyOfRows(inbox[to] + rank * SENT + start, source.data_ptr() + start, *shape))
            place_of_flag = inbox[to] + world * SENT + 4 * number
            if flag == "write":
                stream.append(SetFlag(place_of_flag, one.data_ptr()))
            elif flag == "copy":
                stream.append(CopyOfRows(place_of_flag, one.data_ptr(), 1, 4, 4))
        return SideStreams(machine.rank, made)

    found = {}
    cases = [(1, 1, False, "none", "in turn"), (1, 8, False, "none", "in turn"), (3, 1, False, "none", "together")]
    cases += [
        (streams, 8, strided, flag, "in turn")
        for streams in (1, 2) for strided in (False, True) for flag in ("none", "write", "copy")
    ]  # fmt: skip
    cases += [(streams, 8, True, "write", peers) for streams in (2, 3, 4) for peers in ("in turn", "together")]
    cases += [(streams, chunks, True, "write", "in turn") for streams in (2, 3) for chunks in (4, 16)]
    every = [(case, 0) for case in cases]
    every += [((2, PITCH // width, True, "write", "in turn"), width) for width in WIDTHS_OF_CHUNKS]
    for case, width in every:
        streams, chunks, strided, flag, peers = case
        side, raw = copies(*case, width), torch.cuda.current_stream().cuda_stream

        def run(side: Any = side, raw: int = raw) -> None:
            side.begin(raw, [])
            side.end(raw, [])

        run()
        machine.synchronize()
        machine.dist.barrier()
        us = sorted(machine.most(machine.microseconds(run, 5)) for _ in range(3))[1]
        name = f"{streams} streams, {chunks} {'strided' if strided else 'contiguous'} pieces, flags: {flag}, {peers}"
        sent = SENT // PITCH * width * chunks if width else SENT
        found[name + f", {width} bytes wide" * bool(width)] = round((world - 1) * sent / us / 1e3, 1)
    return found


# -- the products ----------------------------------------------------------------------------------------------------


def contest(machine: Gpus, groups: dict[str, Any], kind: str, m: int, n: int, k: int) -> Contest:
    """The baselines, and ours in each variant, by its group."""
    from warploom.integrations.torch import peer_launch

    torch, world = machine.torch, machine.world
    posed = (all_gather if kind == "all-gather" else reduce_scatter)(machine, m, n, k, ())
    posed.calls.pop("warploom")
    generator = torch.Generator(machine.device).manual_seed(machine.rank + 1)
    sizes = [(m // world, k), (n // world, k)] if kind == "all-gather" else [(m, k // world), (n, k // world)]
    a, weight = (torch.randn(each, device=machine.device, dtype=torch.bfloat16, generator=generator) for each in sizes)
    b = weight.mT
    for name, variant in VARIANTS[kind].items():
        known, config = peer_launch.ranks_of(groups[name]), config_of(kind, variant, m, n, world, machine.sms())

        def call(known: Any = known, by: str = variant.by) -> Any:
            if kind == "all-gather":
                return peer_launch.all_gather_matmul(known, a, b, posed.out, by=by)
            return peer_launch.matmul_reduce_scatter(known, a, b, posed.out)

        problem = ""
        try:
            with called_as(kind, name, config):
                for _ in range(3):  # what is repeated is kept
                    call()
                machine.synchronize()
            known.check()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:300]
        if problem:
            print(f"rank {machine.rank}: {name}: {problem}", flush=True)
        if machine.most(float(bool(problem))):
            known.forget()
        else:
            posed.calls[name] = call
    posed.bits = 10
    return posed


def means(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Geometric means of the ratios to the faster baseline, over the rows in which no variant failed."""
    whole = [row["forms"] for row in rows if not row["failed"]]
    names = set.intersection(*map(set, whole)) if whole else set()
    return {name: round(prod(row[name]["ratio"] for row in whole) ** (1 / len(whole)), 4) for name in sorted(names)}


def worker(rank: int, world: int, port: int, options: argparse.Namespace) -> None:
    from warploom.integrations.torch import peer_launch

    faulthandler.dump_traceback_later(STEP_S, exit=True)
    machine = Gpus(rank, world, port)
    evidence: dict[str, Any] = {"rows": []}

    def write() -> None:
        if rank == 0 and options.out:
            about = {
                **header(machine),
                "suite": f"sweep-{options.only}",
                "command": f"python -m benchmarks.tensor_parallel_sweep --only {options.only}"
                + f" --like {options.like}" * bool(options.like),
                "means": means(evidence["rows"]),
            }
            Path(options.out).write_text(json.dumps({**about, **evidence}, indent=1) + "\n")

    groups = {name: machine.dist.new_group(list(range(world))) for name in VARIANTS[options.only]}
    if options.rates:
        evidence["rates"] = rates(machine)
        if rank == 0:
            print(json.dumps(evidence["rates"], indent=0), flush=True)
        write()
    for m, n, k in shapes_of(options, world):
        began = time.time()
        if machine.most(began - options.began) > options.seconds:
            continue
        faulthandler.dump_traceback_later(STEP_S, exit=True)
        posed = contest(machine, groups, options.only, m, n, k)
        errors, failed = surviving(posed, machine, TOLERANCE, lambda name, problem: None)
        row = {"kind": options.only, "m": m, "n": n, "k": k, "relative_error": errors, "failed": failed}
        row |= timed(posed.calls, machine, lambda name, problem: None)
        evidence["rows"].append(row)
        write()
        if rank == 0:
            told(row, time.time() - began)
            print("    geometric means so far:", means(evidence["rows"]), flush=True)
        del posed
        machine.synchronize()
        for each in groups.values():
            peer_launch.ranks_of(each).forget()
        machine.torch.cuda.empty_cache()
    faulthandler.cancel_dump_traceback_later()
    machine.dist.barrier()
    machine.dist.destroy_process_group()


def ahead(kind: str, name: str, config: Config, world: int) -> str:
    """Build a kernel into the cache; returns what to print."""
    began = time.time()
    spilled = built(kind, name, world, config).resources().spill_stores
    return f"{name}, {config.name()}: {spilled} spills, {time.time() - began:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", default="")
    parser.add_argument("--only", default="all-gather", choices=KINDS)
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--build", action="store_true", help="only build the kernels, for --ranks GPUs")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--like", type=int, default=0, help="as many bytes per operation as with so many GPUs")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--shapes", type=int, default=len(SHAPES))
    parser.add_argument("--variants", default="", help="a regular expression for their names")
    options = parser.parse_args()
    options.began = time.time()
    chosen = {name: each for name, each in VARIANTS[options.only].items() if re.search(options.variants, name)}
    if not chosen:
        print(f"no variant matches {options.variants!r}: {', '.join(VARIANTS[options.only])}")
        return 1
    VARIANTS[options.only] = chosen
    import torch

    world = options.ranks if options.build else torch.cuda.device_count()
    if world < 2:
        print("this needs a machine with two GPUs or more")
        return 1
    sms = SMS  # not asked of the driver: the processes that build and measure are forked
    jobs = {(name, config_of(options.only, variant, m, n, world, sms))
            for m, n, _ in shapes_of(options, world) for name, variant in VARIANTS[options.only].items()}  # fmt: skip
    pool = ProcessPoolExecutor(min(BUILDERS, (os.cpu_count() or 2) - 1), mp_context=get_context("fork"))
    for job in [pool.submit(ahead, options.only, name, config, world) for name, config in jobs]:
        try:
            print(job.result(BUILD_S), flush=True)
        except Exception as error:
            print(f"not built: {error!r}"[:300], flush=True)
    pool.shutdown(wait=False, cancel_futures=True)
    print(f"built {len(jobs)} kernels in {time.time() - options.began:.0f} s", flush=True)
    if options.build:
        return 0
    os.environ.setdefault("WARPLOOM_PEER_TIMEOUT_S", PATIENCE_S)
    arguments = world, 29477 + os.getpid() % 1000, options
    torch.multiprocessing.start_processes(worker, args=arguments, nprocs=world, start_method="fork")  # type: ignore[no-untyped-call]
    return 0


if __name__ == "__main__":
    sys.exit(main())
