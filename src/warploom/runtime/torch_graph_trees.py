"""CUDA graphs of torch.compile (`mode="reduce-overhead"` or "max-autotune"), which torch calls graph trees.

torch warms up and records a GPU's graphs in a stream of their own. Memory allocated meanwhile by that thread comes from
a pool in which nothing may outlive a call, or the call ends in a RuntimeError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


def stream_of_trees(index: int) -> int | None:
    """The stream in which torch warms up and records graphs of GPU `index`; None if it has made none yet."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    manager = None if trees is None else trees.get_manager(index, create_if_none_exists=False)
    return None if manager is None else int(manager.stream.cuda_stream)


def outside_of_trees(index: int, make: Callable[[], _T]) -> _T:
    """What `make` returns in another thread, whose allocations on GPU `index` are not part of the pool, once its work
    there is complete."""
    import torch

    def run() -> _T:
        with torch.cuda.device(index):
            made = make()
            torch.cuda.current_stream().synchronize()
            return made

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()
