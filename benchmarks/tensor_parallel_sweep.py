"""What an all-gather's constants cost on all GPUs of this machine: streams, chunks and CTAs, beside its baselines.

    python -m benchmarks.tensor_parallel_sweep [--out benchmarks/results/nvidia-h100/sweep-all-gather.json]
                                               [--seconds 120] [--shapes 6]

First the rates of the copy engines: every GPU writes `SENT` bytes to each of the others, in pieces, streams and with
flags of several kinds. Then the all-gathers of `tensor_parallel`, in bf16 and, with the gathered A returned, in e4m3.
`VARIANTS` are calls with other constants than the modules'; each has a process group of its own, as a group keeps one
plan for a shape. Checks, rounds and times are those of `tensor_parallel_rows`. Each row is written when it is measured.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.tensor_parallel import SHAPES, header, told
from benchmarks.tensor_parallel_cases import TOLERANCE, Contest
from benchmarks.tensor_parallel_machine import BUILDERS, Gpus
from benchmarks.tensor_parallel_rows import surviving, timed
from warploom.isa import dtypes
from warploom.kernels.hopper import copied_rows, gemm_all_gather, pushed_rows, ranked_tile
from warploom.kernels.hopper.description import Fusion, Product

SENT, PITCH = 64 << 20, 56 << 10
WIDTHS_OF_CHUNKS = (4480, 8192, 8576, 8704, 9216, 9600, 9728, 10240)
"""Bytes of a row's chunk: multiples of 128, 512 and 1024."""
WIDTHS = {"bf16": Product(), "e4m3": Product(dtypes.e4m3, dtypes.e4m3, dtypes.bf16)}
PATIENCE_S = "10"
BUILD_S, STEP_S = 60, 90
Constants = dict[str, float]
VARIANTS: dict[str, tuple[str, Constants]] = {
    "warploom push": ("push", {}),
    "warploom copy": ("copy", {}),
    "warploom copy 1 stream": ("copy", {"STREAMS": 1}),
    **{f"warploom copy, {us} us": ("copy", {"COPY_US": us}) for us in (1, 2, 8)},
    **{f"warploom copy, {count} k-tiles": ("copy", {"WHOLE_K_TILES": count}) for count in (1, 2, 4, 16)},
}
"""By name: the form, and the constants of its modules."""
CHANGED_BUILD = lru_cache(gemm_all_gather.build.__wrapped__)  # type: ignore[attr-defined]
"""Builds of the one variant whose kernel has other constants."""


@contextmanager
def constants(changed: Constants) -> Iterator[None]:
    """The modules with other constants, and kernels that are built with them."""
    from warploom.integrations.torch import copy_engines

    with ExitStack() as stack:
        for name, value in changed.items():
            module = next(each for each in (copy_engines, copied_rows, pushed_rows) if hasattr(each, name))
            stack.enter_context(mock.patch.object(module, name, value))
        if changed.keys() & vars(pushed_rows).keys():
            stack.enter_context(mock.patch.object(gemm_all_gather, "build", CHANGED_BUILD))
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


# -- the all-gathers -------------------------------------------------------------------------------------------------


def contest(machine: Gpus, groups: dict[str, Any], width: str, m: int, n: int, k: int) -> Contest:
    """The baselines, and ours in each variant, by its group."""
    import torch.distributed._symmetric_memory as symmetric

    from warploom.integrations.torch import peer_launch
    from warploom.integrations.torch.peer_epilogue import PLAIN, PeerEpilogue

    torch, dist, world = machine.torch, machine.dist, machine.world
    generator = torch.Generator(machine.device).manual_seed(machine.rank + 1)
    dtype, eight = (torch.float8_e4m3fn, True) if width == "e4m3" else (torch.bfloat16, False)

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, device=machine.device, dtype=torch.bfloat16, generator=generator).to(dtype)

    a, b = drawn(m // world, k), drawn(n // world, k).mT
    whole, out = a.new_empty(m, k), torch.empty(m, n // world, device=machine.device, dtype=torch.bfloat16)
    one, group = torch.tensor([0.5], device=machine.device), dist.group.WORLD.group_name
    end = PeerEpilogue(one, one, out_dtype=torch.bfloat16) if eight else PLAIN

    def gather() -> Any:
        dist.all_gather_into_tensor(whole.view(torch.uint8), a.view(torch.uint8))

    def mm() -> Any:
        if eight:
            return torch._scaled_mm(whole, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True, out=out)
        return torch.mm(whole, b, out=out)

    shared = symmetric.empty(tuple(a.shape), dtype=dtype, device=machine.device)
    symmetric.rendezvous(shared, group)
    shared.view(torch.uint8).copy_(a.view(torch.uint8))
    ops = torch.ops.symm_mem
    more = ([one], 0, group, [None], [None], [torch.bfloat16], [True])
    calls: dict[str, Callable[[], Any]] = {
        "nccl": lambda: (gather(), mm())[1], "mm": mm, "collective": gather,
        "torch fused": (lambda: ops.fused_all_gather_scaled_matmul(shared, [b], one, *more)[1][0]) if eight
        else (lambda: ops.fused_all_gather_matmul(shared, [b], 0, group)[1][0]),
    }  # fmt: skip
    for name, (by, changed) in VARIANTS.items():
        known = peer_launch.ranks_of(groups[name])
        kept = torch.empty_like(whole) if eight else None

        def call(known: Any = known, by: str = by, kept: Any = kept) -> Any:
            return peer_launch.all_gather_matmul(known, a, b, out, end=end, by=by, kept=kept)

        problem = ""
        try:
            with constants(changed):
                for _ in range(3):  # what is repeated is kept
                    call()
                machine.synchronize()
            known.check()
            gather()
            if kept is not None and not torch.equal(kept.view(torch.uint8), whole.view(torch.uint8)):
                problem = "it kept other rows"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:300]
        if problem:
            print(f"rank {machine.rank}: {name}: {problem}", flush=True)
        if machine.most(float(bool(problem))):
            known.forget()
        else:
            calls[name] = call
    gather()
    expected = whole.float() @ b.float() * (0.25 if eight else 1)
    return Contest(calls, expected, {}, out, 10)


def worker(rank: int, world: int, port: int, options: argparse.Namespace) -> None:
    from warploom.integrations.torch import peer_launch

    faulthandler.dump_traceback_later(STEP_S, exit=True)
    machine = Gpus(rank, world, port)
    evidence: dict[str, Any] = {"rows": []}

    def write() -> None:
        if rank == 0 and options.out:
            about = {
                **header(machine),
                "suite": "sweep-all-gather",
                "command": "python -m benchmarks.tensor_parallel_sweep",
            }
            Path(options.out).write_text(json.dumps({**about, **evidence}, indent=1) + "\n")

    groups = {name: machine.dist.new_group(list(range(world))) for name in VARIANTS}
    evidence["rates"] = rates(machine)
    if rank == 0:
        print(json.dumps(evidence["rates"], indent=0), flush=True)
    write()
    for m, n, k in [SHAPES[at] for at in (1, 2, 5, 0, 4, 3)][: options.shapes]:
        for width in ("bf16", "e4m3"):
            began = time.time()
            if machine.most(began - options.began) > options.seconds:
                continue
            faulthandler.dump_traceback_later(STEP_S, exit=True)
            posed = contest(machine, groups, width, m, n, k)
            errors, failed = surviving(posed, machine, TOLERANCE, lambda name, problem: None)
            kind = "all-gather" if width == "bf16" else "all-gather-e4m3"
            row = {"kind": kind, "m": m, "n": n, "k": k, "relative_error": errors, "failed": failed}
            row |= timed(posed.calls, machine, lambda name, problem: None)
            evidence["rows"].append(row)
            write()
            if rank == 0:
                told(row, time.time() - began)
            del posed
            machine.synchronize()
            for each in groups.values():
                peer_launch.ranks_of(each).forget()
            machine.torch.cuda.empty_cache()
    faulthandler.cancel_dump_traceback_later()
    machine.dist.barrier()
    machine.dist.destroy_process_group()


def build(width: str, config: Any, world: int, copied: bool, changed: Constants) -> None:
    """Build a kernel into the cache."""
    fusion = Fusion(scales="tensor") if width == "e4m3" else Fusion()
    with constants(changed):
        made = gemm_all_gather.build(world, WIDTHS[width], config, fusion, keep=width == "e4m3", copied=copied)
        made.resources()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", default="")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--shapes", type=int, default=len(SHAPES))
    options = parser.parse_args()
    options.began = time.time()
    import torch

    world = torch.cuda.device_count()
    if world < 2:
        print("this needs a machine with two GPUs or more")
        return 1
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    configs = {ranked_tile.choose(m // world, n // world, world, sms) for m, n, _ in SHAPES}
    kinds = {(by == "copy", tuple(c.items()) if "MOST_EIGHTHS" in c else ()) for by, c in VARIANTS.values()}
    pool = ProcessPoolExecutor(min(BUILDERS, (os.cpu_count() or 2) - 1), mp_context=get_context("spawn"))
    jobs = [
        pool.submit(build, width, config, world, copied, dict(changed))
        for width in WIDTHS for config in configs for copied, changed in kinds
    ]  # fmt: skip
    for job in jobs:
        if (problem := job.exception(BUILD_S)) is not None:
            print(f"not built: {problem}", flush=True)
    pool.shutdown(wait=False, cancel_futures=True)
    print(f"built {len(jobs)} kernels in {time.time() - options.began:.0f} s", flush=True)
    os.environ.setdefault("WARPLOOM_PEER_TIMEOUT_S", PATIENCE_S)
    torch.multiprocessing.spawn(worker, args=(world, 29477 + os.getpid() % 1000, options), nprocs=world)  # type: ignore[no-untyped-call]
    return 0


if __name__ == "__main__":
    sys.exit(main())
