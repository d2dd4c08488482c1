"""The author's interface."""

from __future__ import annotations

from warploom import reg
from warploom.lang.emit import issue
from warploom.types import u32


class Cells:
    """`count` cells of the CTA's pad: put a value, wait, get it."""

    def __init__(self, count: int) -> None:
        self.first = reg.scalar(u32)
        issue("pad.alloc.b32", self.first, count)

    def put(self, cell: object, value: object) -> None:
        """pad.put.async.b32 and pad.commit_group."""
        issue("pad.put.async.b32", self.first + cell, value)
        issue("pad.commit_group")

    def get(self, cell: object) -> object:
        """pad.wait_group 0 and pad.get.b32."""
        issue("pad.wait_group", 0)
        result = reg.scalar(u32)
        issue("pad.get.b32", result, self.first + cell)
        return result
