"""Several processes of one torch.distributed group, as tests start and end them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes


def preloaded() -> str:
    """A start method for processes that have imported torch already, which takes each of them seconds."""
    context = processes.get_context("forkserver")
    context.set_forkserver_preload(["tests.integrations.rank_modules"])
    return "forkserver"


def spawn(worker: Callable[[int, int, int, str], None], world: int, folder: Path) -> list[list[str]]:
    """Run `worker(rank, world, port, folder)` in each process; returns the lines that each rank gave to `end`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.start_processes(worker, args=(world, port, str(folder)), nprocs=world, start_method=preloaded())
    return [Path(folder, f"{rank}.txt").read_text().splitlines() for rank in range(world)]


def begin(rank: int, world: int, port: int, backend: str) -> None:
    """Join the group."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group(backend, **({} if backend == "gloo" else {"device_id": torch.device("cuda", rank)}))


def end(folder: str, rank: int, lines: Iterable[object]) -> None:
    """Keep what a rank found, leave the group, and end the process.

    The interpreter is not finalised: threads of gloo may still want its lock then, and abort the process ("terminate
    called without an active exception", now and then on a busy machine).
    """
    Path(folder, f"{rank}.txt").write_text("\n".join(map(str, lines)))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)
