"""How the tests of this layer write kernels: a body, wrapped so that it has one output and stores to it."""

from __future__ import annotations

import re
from collections.abc import Callable

from warploom.lang import Kernel, Tile, kernel, ptx
from warploom.types import u32


def make(body: Callable[[], None], **options: object) -> Kernel:
    """A kernel that runs `body` and then stores 0 to its output, for tests of what `body` becomes."""

    @kernel(**{"out_specs": (Tile("N", u32),), "grid": (1,), "block": 32, **options})
    def subject(C):
        body()
        (pointer,) = ptx.global_ptrs(C)
        ptx.store(ptx.addr(pointer), 0, dtype=u32)

    return subject


def statements(kernel: Kernel) -> list[str]:
    """The instructions and labels of a kernel's text, without locations and declarations."""
    body = kernel.ptx().partition("{\n")[2].rpartition("}")[0]
    lines = [line.strip() for line in body.splitlines()]
    return [line for line in lines if line and not re.match(r"\.(loc|reg)\b", line)]


def emitted(body: Callable[[], None], **options: object) -> list[str]:
    """What a body becomes, without what `make` puts around it."""
    around = ("ld.param.u64", "cvta.to.global")
    return [line for line in statements(make(body, **options)) if not line.startswith(around)][:-3]


def line_of(marker: str, file: str) -> int:
    """The line of a file that ends with a marker comment."""
    with open(file) as text:
        for number, line in enumerate(text, 1):
            if line.rstrip().endswith(f"# {marker}"):
                return number
    raise AssertionError(f"no line marked {marker}")
