"""The machine of `benchmarks.tensor_parallel`: its GPUs under NCCL, or CPU processes under gloo.

The CPU processes have no meaningful clock; they test the program without GPUs. Kernels are built before the ranks
start, on all cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from warploom.collective.reduce.peers import FORMS
from warploom.kernels.hopper import gemm_all_gather, gemm_all_reduce, gemm_reduce_scatter, ranked_tile
from warploom.kernels.hopper.description import Fusion, Product
from warploom.settings import GATHERS

BUILDERS = 24
Call = Callable[[], Any]
Case = tuple[Any, ...]
"""Kind, M, N, K of the whole product, and further parameters of a kind."""


class Gpus:
    """One GPU per rank."""

    fused = True
    """True if PyTorch's symmetric memory and its fused operators are available."""

    def __init__(self, rank: int, world: int, port: int) -> None:
        import torch
        import torch.distributed as dist

        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        self.rank, self.world = rank, world
        self.device = self._device()
        dist.init_process_group(**self._backend())
        import torch.distributed._symmetric_memory  # defines PyTorch's operators

        self.torch, self.dist = torch, dist

    def _device(self) -> Any:
        import torch

        torch.cuda.set_device(self.rank)
        return torch.device("cuda", self.rank)

    def _backend(self) -> dict[str, Any]:
        return {"backend": "nccl", "device_id": self.device}

    def versions(self) -> dict[str, str]:
        """Versions of the libraries."""
        return {"torch": self.torch.__version__, "nccl": ".".join(map(str, self.torch.cuda.nccl.version()))}

    def name(self) -> str:
        """The name of the GPU."""
        return str(self.torch.cuda.get_device_name(self.device))

    def synchronize(self) -> None:
        """Wait for this rank's GPU."""
        self.torch.cuda.synchronize()

    def sms(self) -> int:
        """The number of multiprocessors of a GPU."""
        return int(self.torch.cuda.get_device_properties(self.device).multi_processor_count)

    def microseconds(self, call: Call, repeats: int) -> float:
        """Microseconds per call on this rank, over many calls between two events."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        self.synchronize()
        return float(start.elapsed_time(end)) * 1000 / repeats

    def on_host(self, call: Call, repeats: int = 50) -> float:
        """Host microseconds of a call that waits for nothing."""
        self.synchronize()
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        ended = time.perf_counter()
        self.synchronize()
        return (ended - began) * 1e6 / repeats

    def replayed(self, call: Call, count: int) -> Call:
        """The replay of a graph of this many calls."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(count):
                call()
        replay: Call = graph.replay
        return replay

    def most(self, value: float) -> float:
        """The maximum over all ranks."""
        held = self.torch.tensor([value], device=self.device)
        self.dist.all_reduce(held, op=self.dist.ReduceOp.MAX)
        return float(held)


class Processes(Gpus):
    """See the module's docstring."""

    fused = False

    def _device(self) -> Any:
        import torch

        torch.set_num_threads(1)
        return torch.device("cpu")

    def _backend(self) -> dict[str, Any]:
        return {"backend": "gloo"}

    def versions(self) -> dict[str, str]:
        return {"torch": self.torch.__version__}

    def name(self) -> str:
        return "no GPU: the program was tried"

    def synchronize(self) -> None:
        pass

    def sms(self) -> int:
        return 132

    def microseconds(self, call: Call, repeats: int) -> float:
        return self.on_host(call, 1)

    def replayed(self, call: Call, count: int) -> Call:
        return call


# -- building ahead ----------------------------------------------------------------------------------------------------


def kernels(case: Case, world: int, sms: int) -> list[tuple[str, dict[str, Any]]]:
    """The kernels of a case, each as the name of a module and its build arguments."""
    from warploom.isa import dtypes

    kind, m, n, k, *_ = case
    eight = kind.endswith("e4m3")
    product = Product(dtypes.e4m3, dtypes.e4m3, dtypes.bf16) if eight else Product()
    fusion = Fusion(scales="tensor") if eight else Fusion()
    made: list[tuple[str, dict[str, Any]]] = []
    if kind.startswith("all-gather"):
        of_all = {"ranks": world, "product": product, "fusion": fusion}
        made = [
            ("gather", {**of_all, "config": ranked_tile.choose(m // world, n // world, world, sms, slots=by == "tma"),
                        "by": by, "keep": keep})
            for by in GATHERS
            for keep in ((False, True) if eight else (False,))
        ]  # fmt: skip
    elif kind.startswith("reduce-scatter"):
        config = ranked_tile.choose(m // world, n, world, sms, staged=True)
        made = [("scatter", {"ranks": world, "product": product, "config": config, "fusion": fusion})]
    elif kind == "all-reduce":
        tile = gemm_all_reduce.choose(m, n, k // world, sms, product, None, world)
        made = [("sum", {"ranks": world, "product": product, "config": tile, "form": form}) for form in FORMS]
    return made


def build(what: str, options: dict[str, Any]) -> float:
    """Build a kernel into the cache; returns the seconds it took."""
    began = time.monotonic()
    module = {"gather": gemm_all_gather, "scatter": gemm_reduce_scatter, "sum": gemm_all_reduce}[what]
    module.build(**options).resources()  # type: ignore[attr-defined]
    return time.monotonic() - began


def build_ahead(cases: list[Case], world: int, sms: int, seconds: float) -> None:
    """Build the kernels of these cases on all cores, until time is up. Failures are reported by their cases."""
    jobs: list[tuple[str, dict[str, Any]]] = []
    for case in cases:
        jobs += [job for job in kernels(case, world, sms) if job not in jobs]
    if not jobs:
        return
    began = time.monotonic()
    workers = max(1, min(BUILDERS, (os.cpu_count() or 2) - 1, len(jobs)))
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    waiting = [pool.submit(build, *job) for job in jobs]
    done = 0
    try:
        for one in as_completed(waiting, timeout=seconds):
            done += one.exception() is None
    except TimeoutError:
        pass
    pool.shutdown(wait=False, cancel_futures=True)
    print(f"built {done} of {len(jobs)} kernels ahead in {time.monotonic() - began:.0f} s", flush=True)
