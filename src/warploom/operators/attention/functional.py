"""Calls with functions of scores and masks: what they add to the key of a launch, and to its tensors.

The functions are read in each call (`captured.read`). Their captured arrays are tensors of the launch like q, k and v:
other memory of the same kind needs no checks. So are the lists of a block mask, which are kept for it (`mask_lists`);
the size of the kernel's tiles is known after the first call of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ...runtime.arrays import view
from ...runtime.launch_cache import bounded
from ...runtime.launch_template import Launched
from .blocks import MASK_TENSORS, exact_mask, function_of, is_block_mask, well_formed
from .captured import Contents, read
from .machine import configured, machine_for
from .mask_lists import form_of, kinds_for, lists_for, stream_for
from .request import CheckedCall, Request, exchanged

LISTS = ("tiles", "counts")
"""The kernel's names of a mask's lists."""
VISITS = ("visits", "visited", "visitors")
"""Those of the gradients' kernels."""
_TILES: dict[Any, tuple[int, int]] = {}
"""Queries and keys of the kernel's tiles, by the key of the launch and what else they depend on."""


class Functional:
    """The functions of one call. Raises ArgumentError and ArgumentTypeError for functions that no kernel can have.

    Attributes:
        contents: what they are and capture, by "score_mod" and "mask_mod".
        mask: the block mask. layout: of q and k.
        static: what the launch depends on beside the tensors.
        captured: the captured arrays, by the kernel's names of them.
    """

    def __init__(
        self, score_mod: Any = None, mask_mod: Any = None, block_mask: Any = None, layout: str = "bhsd"
    ) -> None:  # fmt: skip
        self.layout = layout
        given = {"score_mod": score_mod, "mask_mod": function_of(block_mask) if mask_mod is None else mask_mod}
        self.contents = {name: read(function, name) for name, function in given.items() if function is not None}
        self.mask = block_mask if is_block_mask(block_mask) else None  # what is none is refused when it is read
        form = None if self.mask is None else form_of(self.mask)
        self.static = (*[each.token for each in self.contents.values()], form)
        self.captured: dict[str, Any] = {}
        for each in self.contents.values():
            self.captured |= each.arrays

    def tensors(self, static: Any, given: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """What follows the tensors of a call in a launch that came before; None if there was none."""
        more = tuple(self.captured.values())
        if self.mask is None:
            return more
        lists = self.lists(static, given, LISTS)
        return None if lists is None else (*more, *lists.values())

    def lists(self, static: Any, given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any] | None:
        """The tensors of the mask's lists by name in a launch that came before; None if there was none."""
        q = given["q"]
        tiles = _TILES.get(_tiles_key(static, given)) if hasattr(q, "get_device") else None  # else no torch tensor
        stream = None if tiles is None else stream_for("cuda", q.get_device())
        if tiles is None or stream is None:
            return None
        batch, queries, heads, _ = exchanged(q.shape, self.layout)
        sizes = batch, queries, heads, exchanged(given["k"].shape, self.layout)[1]
        lists = lists_for(self.mask, tiles, sizes, lambda: view(q, "q").place, stream, names[0])
        return {name: lists[name].owner for name in names}

    def remember(self, static: Any, given: Mapping[str, Any], tiles: tuple[int, int]) -> None:
        """Remember the queries and keys of the tiles of a launch that may be repeated."""
        if hasattr(given["q"], "get_device"):
            bounded(_TILES)[_tiles_key(static, given)] = tiles

    def launched(
        self, static: Any, given: Mapping[str, Any], request: CheckedCall, config: Any, launched: Launched
    ) -> dict[str, Any]:  # fmt: skip
        """The tensors of a new launch and what follows them, by the kernel's names."""
        everything = {**given, **self.captured}
        if self.mask is not None:
            assert isinstance(request, Request)
            used = configured(request, config, machine_for(request.views["q"], config))
            self.remember(static, given, (used.tile_m, used.tile_n))
            views = dict(zip(launched.arrays, launched.views, strict=True))
            everything |= {name: views[name].owner for name in LISTS}
        return everything


def frozen(score_mod: Any, mask_mod: Any, block_mask: Any) -> tuple[dict[str, Any], list[Any]]:
    """The functions as they are now, for a later call, and the arrays that they read: neither a changed number, nor a
    changed attribute of the mask, changes what is returned.

    Raises ArgumentError, ArgumentTypeError.
    """
    given = {"score_mod": score_mod, "mask_mod": mask_mod}
    found = {name: None if each is None else read(each, name) for name, each in given.items()}
    arrays = [array for each in found.values() if each is not None for array in each.arrays.values()]
    if block_mask is None or not is_block_mask(block_mask):
        return found | {"block_mask": block_mask}, arrays
    inside = function_of(block_mask)
    contents = None if inside is None else read(inside, "mask_mod")
    tensors = {part: getattr(block_mask, part, None) for part in MASK_TENSORS}
    arrays += [] if contents is None else contents.arrays.values()
    arrays += [tensor for tensor in tensors.values() if tensor is not None]
    size, made_for = block_mask.BLOCK_SIZE, getattr(block_mask, "seq_lengths", None)
    size = tuple(size) if isinstance(size, list) else size
    kept = SimpleNamespace(**tensors, BLOCK_SIZE=size, seq_lengths=made_for, mask_mod=contents)
    return found | {"block_mask": kept}, arrays


def with_arrays(functions: Mapping[str, Any], others: Mapping[int, Any]) -> dict[str, Any]:
    """The `frozen` functions with other arrays, by the ids of those that they take the place of."""

    def changed(value: Any) -> Any:
        if isinstance(value, Contents):
            return replace(value, arrays={name: changed(array) for name, array in value.arrays.items()})
        if isinstance(value, SimpleNamespace):
            return SimpleNamespace(**{name: changed(each) for name, each in vars(value).items()})
        return others.get(id(value), value)

    return {name: changed(each) for name, each in functions.items()}


def _tiles_key(static: Any, given: Mapping[str, Any]) -> tuple[Any, ...]:
    q, v = given["q"], given["v"]
    return static, q.dtype, q.shape[-1], v.shape[-1], q.get_device()


def lengths_of(block_mask: Any) -> Any:
    """The lengths that a block mask was made for; None if it does not say them, and for what is none."""
    found = getattr(block_mask, "seq_lengths", None)
    return tuple(found) if isinstance(found, list) else found


def in_tiles(q: Any, block_mask: Any, tile: tuple[int, int]) -> Any:
    """The block mask, or if tiles of so many queries and keys do not divide its blocks, one whose function is right in
    all blocks. One that will be refused is returned as it is."""
    if block_mask is None or not is_block_mask(block_mask) or not well_formed(block_mask):
        return block_mask
    if not any(size % whole for size, whole in zip(block_mask.BLOCK_SIZE, tile, strict=True)):
        return block_mask
    seen = view(q, "q")
    return exact_mask(block_mask, kinds_for(block_mask, stream_for(seen.device, seen.index)))
