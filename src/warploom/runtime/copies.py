"""Copies by copy engines next to an emulated kernel: `emulate(kernel, …, devices=2, copies=[[stream], [stream]])`.

    copies = [[[Copied(a[0], gathered[1][0]), Copied(one, flags[1][:1], flag=True)]], …]

By rank, the streams of that GPU, each a list of copies that are made one after the other, once for each launch
(`emulator.machine.copy_streams`). Arrays are the call's own, or parts of them; others keep what they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..errors import ArgumentTypeError
from .arrays import ArrayView, view

if TYPE_CHECKING:
    from ..emulator.api import CopyOf


@dataclass(frozen=True)
class MemoryCopy:
    """One copy: arrays of one size, of one dimension, or of two of which the inner one is contiguous.

    flag: of one word of 32 bits, by which other GPUs know that the copies before it have come.
    """

    source: Any
    target: Any
    flag: bool = False


Copies: TypeAlias = "Sequence[Sequence[Sequence[MemoryCopy]]]"
"""By rank, by stream."""


def of_emulator(copies: Copies, views: Sequence[ArrayView], hosts: Sequence[np.ndarray]) -> list[list[list[CopyOf]]]:
    """The copies with the arrays that an emulation works on. views: of the call's arrays; hosts: what stands for them
    there."""

    def moved(array: Any) -> np.ndarray:
        seen = view(array, "copies")
        if seen.host is None:
            raise ArgumentTypeError("a copy is of arrays in host memory", got=seen.describe())
        low, high = seen.span
        for known, host in zip(views, hosts, strict=True):
            start, end = known.span
            if start <= low and high <= end and host is not known.host:
                place = host.__array_interface__["data"][0] + low - start
                return _at(place, seen.host, host)
        return seen.host

    return [
        [[(moved(each.source), moved(each.target), each.flag) for each in stream] for stream in streams]
        for streams in copies
    ]


def _at(address: int, like: np.ndarray, held: np.ndarray) -> np.ndarray:
    """The array at an address inside the bytes of `held`, shaped as another."""
    from ..emulator.machine.memory import byte_view

    raw = byte_view(held)
    return np.ndarray(like.shape, like.dtype, raw, address - raw.__array_interface__["data"][0], like.strides)
