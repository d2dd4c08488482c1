"""When attention's consumers multiply and compute, read from the SM's clock while the kernel runs on a GPU.

    python -m benchmarks.attention_timeline --out benchmarks/results/nvidia-h200/attention-timeline.json

For each step of the book's chapter that changes the order: the launch's time with and without marks, and the first
marks of a CTA (`benchmarks.marks`): warpgroup, clock before and after an instruction, and the instruction.
`both_compute` is the share of the CTA's clocks in which the threads of both consumers compute.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.attention_steps import HEADS, LENGTH, built, drawn, operands
from benchmarks.marks import Mark, Marks
from warploom.kernels.hopper.attention_config import Attention
from warploom.lab import evidence

OPCODES = ("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "bar.sync", "bar.arrive")
SHOWN = ("one kernel", "two consumers", "turns", "next block early")
KEPT_CLOCKS = 14_000
"""From the first product: about half of a block of queries, which has 32 tiles of keys."""
Row = dict[str, Any]
Span = tuple[int, int]


def computing(marks: list[Mark], warpgroup: int) -> list[Span]:
    """When a warpgroup's threads compute: from the end of a wait for products to the next mark."""
    return _between(marks, warpgroup, "wgmma.wait_group")


def issuing(marks: list[Mark], warpgroup: int) -> list[Span]:
    """When a warpgroup issues products, which takes long while the tensor core is busy: from a fence to the commit."""
    return _between(marks, warpgroup, "wgmma.fence")


def _between(marks: list[Mark], warpgroup: int, first: str) -> list[Span]:
    own = [one for one in marks if one.warpgroup == warpgroup]
    return [(one.after, then.before) for one, then in pairwise(own) if one.instruction.startswith(first)]


def marks_in(found: Row) -> list[Mark]:
    """The marks that a row of the file keeps; their lines are not kept."""
    parts = (text.split(" ", 3) for text in found["marks"])
    return [Mark(int(group), 0, instruction, int(before), int(after)) for group, before, after, instruction in parts]


def shared(one: list[Span], other: list[Span]) -> int:
    """Clocks that spans of both have in common."""
    return sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in one for b in other)


def row(name: str, seconds: float) -> Row:
    """One step: times, and marks of CTA 0."""
    import torch

    from warploom.runtime.benchmark.gpu import Gpu

    of = Attention()
    q, k, v = drawn(of)
    numbers, kernel, gpu = operands(of, HEADS, LENGTH)[1], built(of, name), Gpu(0, 20.0)
    marks = Marks(kernel.program(), OPCODES)
    outs = kernel(q, k, v, **numbers)
    again = tuple(torch.zeros_like(out) for out in outs)
    times = {}
    for what, call in (("us", kernel), ("us_with_marks", marks.call)):

        def launch(call: Any = call) -> None:
            call(q, k, v, out=again, **numbers)

        launch()
        count = max(1, int(seconds / gpu.timer.timed(launch, 20)))
        times[what] = round(gpu.timer.timed(launch, count) * 1e6, 1)
    marks.clear()
    launch()
    torch.cuda.synchronize()
    if not all(torch.equal(a, b) for a, b in zip(outs, again, strict=True)):
        raise SystemExit(f"`{name}` computes something else with marks")
    found = marks.read()
    consumers = [computing(found, me) for me in (1, 2)]  # warpgroup 0 loads
    begin, end = (pick(mark.after for mark in found if "wgmma" in mark.instruction) for pick in (min, max))
    return {
        "step": name, "heads": HEADS, "length": LENGTH, "head_dim": of.head_dim, **times, "clocks": end - begin,
        "both_compute": round(shared(*consumers) / (end - begin), 3),
        "marks": [f"{one.warpgroup} {one.before - begin} {one.after - begin} {one.instruction}" for one in found
                  if one.after < begin + KEPT_CLOCKS],
    }  # fmt: skip


def main() -> None:
    """Write the file."""
    from warploom.runtime.benchmark.gpu import Gpu
    from warploom.runtime.benchmark.power import driver_version

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each time")
    asked = parser.parse_args()
    head = evidence.header("attention-timeline", gpu=Gpu(0, 20.0).name, driver=driver_version())
    evidence.write(asked.out, head, [row(name, asked.seconds) for name in SHOWN])


if __name__ == "__main__":
    main()
