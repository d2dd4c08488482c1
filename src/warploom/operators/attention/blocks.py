"""FlexAttention block masks as lists of the kernels' own tiles.

A block mask marks each of its blocks as empty, partial or full. A kernel tile covers one block, several blocks, or part
of a block. The tile is empty if all blocks it covers are empty, full if all are full and it ends before the keys do,
otherwise partial. If it covers several blocks, `mask_mod` is evaluated in empty ones, too. The lists are computed on
the mask's device, without a host synchronisation.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from ...errors import ArgumentError, ArgumentTypeError
from ...runtime.arrays import ArrayView, view
from .limits import check_countable

PARTS = ("kv_num_blocks", "kv_indices", "BLOCK_SIZE")
"""Attributes that identify a block mask, torch.nn.attention.flex_attention.BlockMask."""
MASK_TENSORS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
"""The tensors of a block mask that say what it masks; the last two may be None."""
PARTIAL, FULL = 1, 2


def is_block_mask(mask: Any) -> bool:
    """True for a block mask of torch."""
    return all([hasattr(mask, part) for part in PARTS]) and "torch" in sys.modules


def check_block_mask(mask: Any, queries: tuple[int, ...], keys: int, place: str) -> None:
    """Raise unless it is a block mask that fits queries (B, S, H, D) and `keys` keys, on the same device."""
    if not is_block_mask(mask):
        raise ArgumentTypeError(
            "`block_mask` is not a block mask", expected="a BlockMask of torch's create_block_mask", got=mask,
            hint="a function of places is mask_mod=",
        )  # fmt: skip
    if not well_formed(mask):
        raise ArgumentError(
            "`block_mask` is not well-formed",
            expected="block numbers of 4 dimensions, counts of the first 3, the same of full blocks, two block sizes",
            got=f"BLOCK_SIZE {mask.BLOCK_SIZE}, kv_indices {_shape(mask.kv_indices)}, kv_num_blocks "
            f"{_shape(mask.kv_num_blocks)}",
            hint="make it with create_block_mask or BlockMask.from_kv_blocks", code="wrong-shape",
        )  # fmt: skip
    _check_lists(mask)
    batch, length, heads, _ = queries
    indices, (height, width) = mask.kv_indices, mask.BLOCK_SIZE
    blocks = -(-length // height), -(-keys // width)
    fits = indices.shape[0] in (1, batch) and indices.shape[1] in (1, heads)
    if not fits or indices.shape[2] != blocks[0] or indices.shape[3] != blocks[1]:
        raise ArgumentError(
            "`block_mask` has the wrong shape",
            expected=f"({_one_or(batch)}, {_one_or(heads)}, {blocks[0]}, {blocks[1]}) blocks of {height} x {width}",
            got=tuple(indices.shape), hint="make it for these lengths with create_block_mask", code="wrong-shape"
        )  # fmt: skip
    made_for = getattr(mask, "seq_lengths", None) or (length, keys)
    if made_for[0] < length or made_for[1] < keys:
        raise ArgumentError(
            "`block_mask` was made for shorter sequences", expected=f"{length} queries, {keys} keys",
            got=f"{made_for[0]} and {made_for[1]}", hint="make it for these lengths with create_block_mask",
            code="wrong-shape",
        )  # fmt: skip
    found = view(indices, "block_mask").place
    if found != place:
        raise ArgumentError("`block_mask` is on another device", expected=place, got=found, hint="use .to(device)")


def _one_or(size: int) -> str:
    return "1" if size == 1 else f"1 or {size}"


def _check_lists(mask: Any) -> None:
    """Raise unless the lists hold numbers of blocks that there are. On a GPU their values are not waited for: numbers
    of blocks that there are not count as none."""
    for counts, indices in _lists(mask):
        count = indices.shape[-1]
        if any(each.is_floating_point() or each.is_complex() for each in (counts, indices)):
            raise ArgumentTypeError(
                "the lists of `block_mask` are not whole numbers", expected="int32",
                got=f"{counts.dtype} counts of {indices.dtype} block numbers", code="wrong-type",
            )  # fmt: skip
        if indices.device.type != "cpu" or not count:
            continue
        listed = indices[_listed(counts, indices)]
        if bool((counts < 0).any() or (counts > count).any() or (listed < 0).any() or (listed >= count).any()):
            raise ArgumentError(
                "`block_mask` lists blocks of keys that there are not", expected=f"up to {count} of 0 to {count - 1}",
                got=f"up to {int(counts.max())} of {int(indices.min())} to {int(indices.max())}",
                hint="make it with create_block_mask or BlockMask.from_kv_blocks",
            )  # fmt: skip


def _lists(mask: Any) -> list[tuple[Any, Any]]:
    """The counts and block numbers of partial blocks, and of full ones if there are lists of them."""
    full = getattr(mask, "full_kv_num_blocks", None), getattr(mask, "full_kv_indices", None)
    return [(mask.kv_num_blocks, mask.kv_indices), *([] if full[0] is None else [full])]


def _listed(counts: Any, indices: Any) -> Any:
    """True where a block number counts."""
    return sys.modules["torch"].arange(indices.shape[-1], device=indices.device) < counts[..., None]


def well_formed(mask: Any) -> bool:
    """True if block sizes are two positive numbers, and lists of blocks have the dimensions of their counts."""
    sizes = mask.BLOCK_SIZE
    if not isinstance(sizes, (tuple, list)) or len(sizes) != 2 or not all(type(x) is int and x > 0 for x in sizes):
        return False
    indices, full = _shape(mask.kv_indices), _shape(getattr(mask, "full_kv_indices", None))
    pairs = [(indices, _shape(mask.kv_num_blocks))]
    if full is not None or getattr(mask, "full_kv_num_blocks", None) is not None:
        pairs.append((full, _shape(mask.full_kv_num_blocks)))
    return all(lists is not None and lists == indices and len(lists) == 4 and lists[:3] == counts
               for lists, counts in pairs)  # fmt: skip


def _shape(array: Any) -> tuple[int, ...] | None:
    return None if array is None else tuple(array.shape)


def function_of(mask: Any) -> Any:
    """Return the function to apply in partial blocks, or None if all of a block is visible."""
    found = getattr(mask, "mask_mod", None)
    nothing = getattr(sys.modules.get("torch.nn.attention.flex_attention"), "noop_mask", None)
    return None if found is nothing else found


def tile_lists(mask: Any, rows: int, size: int, queries: int, keys: int) -> dict[str, ArrayView]:
    """Return `tiles` and `counts` for `kernels.hopper.attention.build`, with blocks of `rows` and tiles of `size`."""
    torch = sys.modules["torch"]
    height, width = mask.BLOCK_SIZE
    if function_of(mask) is None and (height % rows or width % size):
        raise ArgumentError(
            "the kernel's tiles do not divide the blocks of a mask without a function",
            expected=f"blocks of multiples of {rows} x {size}", got=f"{height} x {width}",
            hint="blocks of multiples of 64 x 64 fit; or give the mask its mask_mod",
        )  # fmt: skip
    with torch.no_grad():
        seen, full = _tiles(torch, mask, (rows, size), (queries, keys))
        count = seen.shape[3]
        place = torch.arange(count - 1, -1, -1, device=seen.device)  # the last first, as everywhere
        order = torch.where(full, count, torch.where(seen, 0, 2 * count)) + place
        tiles = torch.argsort(order, dim=-1).to(torch.int32).contiguous()
        counts = torch.stack([(seen & ~full).sum(-1), full.sum(-1)], -1).to(torch.int32)
    return {"tiles": view(tiles, "tiles"), "counts": view(counts, "counts")}


def visit_lists(mask: Any, tile: int, rows: int, queries: int, keys: int) -> dict[str, ArrayView]:
    """Return the lists of `kernels.hopper.attention_visits`, with tiles of `tile` queries and blocks of `rows` keys.

    If tiles do not divide the mask's blocks, its function must be exact, as that of `exact_mask` is.
    """
    torch = sys.modules["torch"]
    with torch.no_grad():
        seen, full = _tiles(torch, mask, (tile, rows), (queries, keys))
        if queries % tile:
            full[:, :, -1] = False
        seen, full = seen.mT, full.mT  # blocks of keys, tiles of queries
        count = seen.shape[3]
        place = torch.arange(count, device=seen.device)
        order = torch.argsort(torch.where(seen, 0, count) - place, dim=-1)  # the last first
        ranks = seen.cumsum(2) - seen.long()
        parts = [each.gather(-1, order) for each in (2 * place + (~full).long(), ranks)]
        found = {"visits": torch.stack(parts, -1), "visited": seen.sum(3), "visitors": seen.sum(2)}
        return {name: view(each.to(torch.int32).contiguous(), name) for name, each in found.items()}


def exact_mask(mask: Any, kinds: Any) -> Any:
    """Return the same mask with a function that is right in all blocks. kinds: as in `dense_kinds`."""
    tensors = {part: getattr(mask, part, None) for part in MASK_TENSORS}
    lengths = getattr(mask, "seq_lengths", None)
    return SimpleNamespace(
        **tensors, BLOCK_SIZE=mask.BLOCK_SIZE, seq_lengths=lengths, mask_mod=dense_function(mask, kinds)
    )


def dense_kinds(mask: Any) -> Any:
    """Return 0, `PARTIAL` or `FULL` for each block, as a new tensor."""
    torch = sys.modules["torch"]
    with torch.no_grad():
        return _kinds(torch, mask).contiguous()


def dense_function(mask: Any, kinds: Any) -> Any:
    """Return the same mask as a function of indices. kinds: as in `dense_kinds`."""
    function = function_of(mask)
    height, width = mask.BLOCK_SIZE
    many_batches, many_heads = (int(count > 1) for count in kinds.shape[:2])

    def of_all(b: Any, h: Any, i: Any, j: Any) -> Any:
        return kinds[b * many_batches, h * many_heads, i // height, j // width] != 0

    def of_some(b: Any, h: Any, i: Any, j: Any) -> Any:
        kind = kinds[b * many_batches, h * many_heads, i // height, j // width]
        return (kind == FULL) | ((kind == PARTIAL) & function(b, h, i, j))

    return of_all if function is None else of_some


def _tiles(torch: Any, mask: Any, tile: tuple[int, int], lengths: tuple[int, int]) -> tuple[Any, Any]:
    """Return which tiles of queries and keys are seen, and which fully, but for those that end after the last key."""
    batch, heads = mask.kv_indices.shape[:2]
    check_countable(
        "tiles in the lists of this block mask", batch * heads * -(-lengths[0] // tile[0]) * -(-lengths[1] // tile[1]),
        "larger blocks, or one mask for all batches and heads, make fewer",
    )  # fmt: skip
    kinds = _kinds(torch, mask)
    seen, full = kinds > 0, kinds == FULL
    if function_of(mask) is None:
        full = seen
    for axis, *sizes in zip((2, 3), mask.BLOCK_SIZE, tile, lengths, strict=True):
        seen = _covered(torch, seen, axis, *sizes).any(axis + 1)
        full = _covered(torch, full, axis, *sizes).all(axis + 1)
    if lengths[1] % tile[1]:
        full[..., -1] = False
    return seen, full & seen


def _kinds(torch: Any, mask: Any) -> Any:
    """Return 0, `PARTIAL` or `FULL` for each block: (…, blocks of queries, blocks of keys)."""
    kinds, *full = (_dense(torch, *each) for each in _lists(mask))
    return torch.maximum(kinds * PARTIAL, full[0] * FULL) if full else kinds * PARTIAL


def _dense(torch: Any, numbers: Any, indices: Any) -> Any:
    """Return 1 for each listed block, else 0: (…, blocks of queries, blocks of keys)."""
    count = indices.shape[-1]
    listed = _listed(numbers, indices) & (indices >= 0) & (indices < count)
    into = torch.zeros(*indices.shape[:-1], count + 1, dtype=torch.int32, device=indices.device)
    return into.scatter_(-1, torch.where(listed, indices, count).long(), 1)[..., :count]


def _covered(torch: Any, kinds: Any, axis: int, block: int, tile: int, length: int) -> Any:
    """Gather the blocks that each tile covers along an axis, in a new axis after it.

    If a tile covers fewer blocks than others, its last block is repeated.
    """
    begins = torch.arange(0, length, tile)
    first, last = begins // block, (torch.clamp(begins + tile, max=length) - 1) // block
    width = int((last - first).max()) + 1
    which = torch.minimum(first[:, None] + torch.arange(width), last[:, None]).to(kinds.device, non_blocking=True)
    return kinds.index_select(axis, which.flatten()).unflatten(axis, which.shape)
