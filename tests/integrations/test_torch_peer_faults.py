"""Ranks that die: processes are killed; the survivors name them, free the memory, and continue in a new group.

Three gloo processes on CPUs; CPU memory stands in for the memory that GPUs would share.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
import weakref
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as processes  # noqa: E402

from tests.integrations.torch_ranks import begin, preloaded  # noqa: E402
from warploom import config  # noqa: E402
from warploom.errors import ArgumentError, PeerError  # noqa: E402
from warploom.integrations.torch import distributed as distributed  # noqa: E402
from warploom.integrations.torch import symmetric as symmetric  # noqa: E402

pytestmark = pytest.mark.full
SHORT_S = 1.0
PATIENT_S = 120
LEAVES_S = 4 * SHORT_S
"""After which a rank comes that the others no longer wait for."""
DEVICE = torch.device("cpu")


def of_cpu(group, wanted, device):
    """Stands in for `symmetric.make`: the same agreement, and memory of this process."""
    held = torch.zeros(wanted.shape, dtype=wanted.dtype)
    group.agree(("the counters are zero",))
    return symmetric.Exchange(wanted, (held,), (), held, held, np.zeros(wanted.record, np.int32), (held,))


def exchange(*call: object) -> symmetric.Exchange:
    """What a product of the default group would have made."""
    known = distributed.ranks_of(None)
    wanted = symmetric.MemorySizes((8,), torch.int32, 4, 4, 8, lambda index: None)
    return known.exchange(call, DEVICE, lambda: wanted)


def attempt(*call: object) -> str:
    """The code of the error, and the ranks that its first line names."""
    try:
        exchange(*call)
    except (ArgumentError, PeerError) as error:
        first = str(error).splitlines()[0]
        return f"{error.code} {[rank for rank in range(3) if f'rank {rank}' in first]}"
    return "made"


def begin_anew(rank: int, ranks: int, port: int) -> None:
    dist.destroy_process_group()
    begin(rank, ranks, port, "gloo")


def survivor_of_two(rank: int, ports: list[int]) -> list[str]:
    """Rank 2 is killed."""
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    lines = [attempt("product", 16)]
    lines.append(f"in time {SHORT_S <= time.monotonic() - began < PATIENT_S / 2}")
    memory = weakref.ref(exchange("product", 8).data[0])
    distributed.reset()
    gc.collect()
    lines.append(f"freed {memory() is None}")
    begin_anew(rank, 2, ports[1])
    lines.append(attempt("product", 8))
    return lines


def survivor_of_the_store(rank: int, ports: list[int]) -> list[str]:
    """Rank 0, whose process has the store, is killed."""
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    lines = [attempt("product", 16)]
    distributed.reset()
    begin_anew(rank - 1, 2, ports[1])
    lines.append(attempt("product", 8))
    return lines


def late(rank: int, ports: list[int]) -> list[str]:
    """Rank 2 comes when the waits of the others have timed out; all begin anew then."""
    if rank == 2:
        time.sleep(LEAVES_S)
    lines = [attempt("product", 16)]
    with config.override(peer_timeout_s=PATIENT_S):
        distributed.reset()
        lines.append(attempt("product", 16))
    return lines


def in_an_old_store(rank: int, ports: list[int]) -> list[str]:
    """A group that is made anew in the store of the old one, where other calls were compared under the same names."""
    lines: list[str] = []
    dist.destroy_process_group()
    store = dist.TCPStore("127.0.0.1", ports[1], 3, rank == 0)
    with config.override(peer_timeout_s=PATIENT_S):
        for size in (16, 32, 64):
            dist.init_process_group("gloo", store=dist.PrefixStore(str(size), store), rank=rank, world_size=3)
            group = distributed.ranks_of(None)
            group.store = store  # the same for all of them, as torchrun's is
            if rank == 2:
                time.sleep(SHORT_S / 4)  # the others look first
            lines.append(attempt("product", size))
            dist.barrier()
            dist.destroy_process_group()
    return lines


def compared(rank: int, ports: list[int]) -> list[str]:
    """Calls that all ranks know, made in another order by one of them."""
    lines = [attempt("product", 8), attempt("product", 16)]
    with config.override(peer_compare=True, peer_timeout_s=PATIENT_S):
        lines.append(attempt("product", 8))
        lines.append(attempt("product", 16 if rank == 1 else 8))
        lines.append(attempt("product", 16))
    return lines


def worker(rank: int, act, ports: list[int], folder: str) -> None:
    begin(rank, 3, ports[0], "gloo")
    symmetric.make = of_cpu
    with config.override(peer_timeout_s=PATIENT_S):
        exchange("product", 8)
    dist.barrier()
    with config.override(peer_timeout_s=SHORT_S):
        lines = act(rank, ports)
    Path(folder, f"{rank}.txt").write_text("\n".join(lines))
    if act in (late, compared):
        dist.barrier()
    else:
        time.sleep(SHORT_S)  # the store of the new group lives in one of them
    os._exit(0)


def run(act, folder: Path) -> dict[int, list[str]]:
    """The lines of the ranks that lived."""
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    context = processes.get_context(preloaded())
    ranks = [context.Process(target=worker, args=(rank, act, ports, str(folder))) for rank in range(3)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(PATIENT_S)
    hung = [each for each in ranks if each.is_alive()]
    for each in hung:
        each.kill()
    assert not hung
    files = {rank: Path(folder, f"{rank}.txt") for rank in range(3)}
    return {rank: file.read_text().splitlines() for rank, file in files.items() if file.exists()}


def test_a_killed_rank_is_named_and_the_others_go_on_without_it(tmp_path):
    found = run(survivor_of_two, tmp_path)
    assert found == {rank: ["peer-timeout [2]", "in time True", "freed True", "made"] for rank in (0, 1)}


def test_a_killed_store_is_an_error_and_a_new_group_is_made(tmp_path):
    found = run(survivor_of_the_store, tmp_path)
    assert set(found) == {1, 2}
    for lines in found.values():
        assert lines[0].startswith("peer-timeout") and lines[1] == "made"


def test_who_comes_late_is_told_who_has_left_and_does_not_go_on_alone(tmp_path):
    found = run(late, tmp_path)
    assert found == {
        0: ["peer-timeout [2]", "made"], 1: ["peer-timeout [2]", "made"], 2: ["peer-timeout [0]", "made"],
    }  # fmt: skip


def test_a_group_made_anew_does_not_read_what_the_old_one_has_left_in_the_store(tmp_path):
    assert run(in_an_old_store, tmp_path) == {rank: ["made"] * 3 for rank in range(3)}


def test_known_calls_in_another_order_are_refused_where_every_call_is_compared(tmp_path):
    found = run(compared, tmp_path)
    assert {tuple(lines[:3]) for lines in found.values()} == {("made",) * 3}
    assert all(lines[3].startswith("peer-call") for lines in found.values())
    assert {lines[4] for lines in found.values()} == {"made"}
