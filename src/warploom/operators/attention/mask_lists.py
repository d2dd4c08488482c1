"""What is computed from block masks, kept as long as their tensors live and are not written.

    masks  ->  the mask's tensors: version, place, form  ->  a name and a stream  ->  tensors

A stream gets its own, because nothing orders one stream after another. A write that torch counts (`_version`) is seen;
one through `.data`, by a kernel or by the replay of a graph is not. Nothing is kept of tensors without a version, which
were made in inference mode, and while a graph is captured: the graph computes it anew in each replay.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar

from ...runtime.arrays import ArrayView
from ...runtime.launch_template import is_capturing
from ...runtime.torch_graph_trees import stream_of_trees
from .blocks import MASK_TENSORS, check_block_mask, dense_kinds, function_of, tile_lists, visit_lists

MOST_KEPT = 16
"""What is kept of one mask: lists for kernels with other tiles, other lengths, and other streams."""
KINDS = ("tiles", "visits")
"""Lists for the forward pass, `tile_lists`, and for its gradients, `visit_lists`."""
Found = TypeVar("Found")


@dataclass
class _Kept:
    """What was computed from the tensors of one mask, in the state that they were in."""

    refs: tuple[Any, ...]
    state: tuple[Any, ...]
    found: dict[Any, Any] = field(default_factory=dict)


class MaskCache:
    """What is kept of all masks that are alive."""

    def __init__(self) -> None:
        self._masks: dict[tuple[int, ...], _Kept] = {}

    def __len__(self) -> int:
        return len(self._masks)

    def get(self, mask: Any, name: Hashable, stream: int | None, make: Callable[[], Found]) -> Found:
        """What `make` computes from the mask's tensors; kept under this name for the stream, unless that is None."""
        tensors = tuple([getattr(mask, part, None) for part in MASK_TENSORS])
        state = None if stream is None else _state(tensors)
        if state is None:
            return make()
        key = tuple(map(id, tensors))
        kept = self._masks.get(key)
        if kept is None or kept.state != state or not _alive(kept.refs, tensors):
            refs = [None if tensor is None else weakref.ref(tensor, partial(self._drop, key)) for tensor in tensors]
            kept = self._masks[key] = _Kept(tuple(refs), state)
        found: Found | None = kept.found.get((name, stream))
        if found is None:
            found = make()
            if len(kept.found) >= MOST_KEPT:
                kept.found = {}
            kept.found[name, stream] = found
        return found

    def _drop(self, key: tuple[int, ...], dead: Any) -> None:
        kept = self._masks.get(key)
        if kept is not None and any(ref is dead for ref in kept.refs):
            self._masks.pop(key, None)


def _state(tensors: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Everything that says whether tensors were written or moved; None if they do not say it."""
    try:
        return tuple([
            None if tensor is None else (tensor._version, tensor.data_ptr(), tensor.shape, tensor.stride())
            for tensor in tensors
        ])  # fmt: skip
    except (AttributeError, RuntimeError):
        return None


def _alive(refs: tuple[Any, ...], tensors: tuple[Any, ...]) -> bool:
    return all([tensor is (ref and ref()) for ref, tensor in zip(refs, tensors, strict=True)])


@lru_cache(maxsize=1)
def masks() -> MaskCache:
    """The process's."""
    return MaskCache()


def stream_for(device: str, index: int) -> int | None:
    """The stream for which to keep what is computed on a device; None while a graph is captured from it, or warmed up
    for torch.compile."""
    if device == "cpu":
        return 0
    stream: int = sys.modules["torch"]._C._cuda_getCurrentRawStream(index)
    return None if stream == stream_of_trees(index) or is_capturing(stream) else stream


def form_of(mask: Any) -> tuple[Any, ...]:
    """What the lists of a mask depend on beside its tensors."""
    size = mask.BLOCK_SIZE  # `check_block_mask` refuses what is no pair
    return tuple(size) if isinstance(size, list) else size, function_of(mask) is None


def lists_for(
    mask: Any, tiles: tuple[int, int], sizes: tuple[int, int, int, int], place: Callable[[], str], stream: int | None,
    kind: str = KINDS[0],
) -> dict[str, ArrayView]:  # fmt: skip
    """Return the lists of a mask for a kernel with tiles of so many queries and keys.

    sizes: batches, queries, heads, keys. place: of the queries. stream: as in `MaskCache.get`. kind: of `KINDS`.
    Raises as `check_block_mask` and `tile_lists` do.
    """
    batch, queries, heads, keys = sizes

    def make() -> dict[str, ArrayView]:
        check_block_mask(mask, (batch, queries, heads, 0), keys, place())
        return (tile_lists if kind == KINDS[0] else visit_lists)(mask, *tiles, queries, keys)

    return masks().get(mask, (kind, tiles, sizes, form_of(mask)), stream, make)


def lists_of(
    mask: Any, tiles: tuple[int, int], q: ArrayView, keys: int, kind: str = KINDS[0]
) -> dict[str, ArrayView]:  # fmt: skip
    """Return the same for queries (B, S, H, D) and so many keys."""
    batch, queries, heads, _ = q.shape
    sizes = batch, queries, heads, keys
    return lists_for(mask, tiles, sizes, lambda: q.place, stream_for(q.device, q.index), kind)


def kinds_for(mask: Any, stream: int | None) -> Any:
    """Return the kind of each block, a tensor."""
    return masks().get(mask, "kinds", stream, lambda: dense_kinds(mask))
