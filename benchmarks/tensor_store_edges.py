"""Find where tensor copies end in a row: the columns beyond the innermost extent that a store writes or a load reads.

    python benchmarks/tensor_store_edges.py [--out benchmarks/results/nvidia-h200/tensor-store-edges.json] [--cpu]

A box of 8 rows of 96 elements is stored to (or added to, or loaded from) the first rows and columns of a larger matrix,
through a tensor map of 6 rows of `extent` elements, for every extent. Elements beyond the extent hold another number
before. `--cpu` uses the emulator instead, and writes nothing.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from warploom import Tile, kernel, ptx, reg, smem
from warploom.lab import evidence
from warploom.lang import Kernel
from warploom.types import DType, bf16, e4m3, f32, s32, u32, u64

ROOT = Path(__file__).resolve().parents[1]
ROWS, COLUMNS, INSIDE = 8, 96, 6
"""Rows and columns of the box; rows of the tensor, two fewer than the box."""
EXTENTS = (*range(1, 33), 57, 63, 64, 65, 77, 80)
BEFORE, STORED = 96, 5
THREADS = 128
TYPES = {f32: torch.float32, bf16: torch.bfloat16, e4m3: torch.float8_e4m3fn}


def words_of(value: float, dtype: DType) -> int:
    """32 bits full of one value."""
    return int(np.full(4 // dtype.bytes, value).astype(dtype.numpy).view(np.uint32)[0])


def writer(operation: str, dtype: DType) -> Kernel:
    """Stores (or adds) a box full of one value to D."""
    tile = Tile("M", "N", dtype, box=(COLUMNS, ROWS), order="rows", pads_to_16b=True)

    @kernel(out_specs=(tile,), grid=1, block=THREADS, arch="sm_90a", name=f"{operation}_{dtype}")
    def write(D):
        box = smem.array(dtype, (ROWS, COLUMNS), align=128)
        thread = ptx.special.tid.x()
        word = reg.scalar(u32, init=words_of(STORED, dtype))
        for first in range(0, ROWS * COLUMNS * dtype.bytes, 4 * THREADS):
            with ptx.if_(thread * 4 + first < ROWS * COLUMNS * dtype.bytes):
                ptx.store(box[0, 0] + (thread * 4 + first), word)
        ptx.fence.proxy_async_shared_cta()
        ptx.bar.sync(0)
        with ptx.if_(thread == 0):
            if operation == "store":
                ptx.cp.async_.bulk.tensor_store(D.tma_desc(), box[0, 0], (0, 0))
            else:
                ptx.cp.async_.bulk.tensor_reduce(operation, D.tma_desc(), box[0, 0], (0, 0))
            ptx.cp.async_.bulk.commit_group()
            ptx.cp.async_.bulk.wait_group(0)

    return write


def reader(dtype: DType) -> Kernel:
    """Loads a box of A and copies it to D, as 32-bit words."""
    tile = Tile("M", "N", dtype, box=(COLUMNS, ROWS), order="rows")
    count = ROWS * COLUMNS * dtype.bytes // 4

    @kernel(in_specs=(tile,), out_specs=(Tile(count, s32),), grid=1, block=THREADS, arch="sm_90a", name=f"load_{dtype}")
    def read(A, D):
        box, full = smem.array(dtype, (ROWS, COLUMNS), align=128), smem.mbarrier()[0]
        thread = ptx.special.tid.x()
        with ptx.if_(thread == 0):
            ptx.mbarrier.init(full, 1)
            ptx.fence.mbarrier_init()
            ptx.mbarrier.arrive_expect_tx(full, ROWS * COLUMNS * dtype.bytes)
            ptx.cp.async_.bulk.tensor_2d(box[0, 0], A.tma_desc(), (0, 0), full)
        ptx.bar.sync(0)
        ptx.mbarrier.wait(full, 0)
        for first in range(0, count, THREADS):
            with ptx.if_(thread + first < count):
                word = ptx.load(s32, box[0, 0] + (thread + first) * 4)
                ptx.store(ptx.addr(D.pointer() + (thread + first).to(u64) * 4), word)

    return read


def whole(dtype: DType, device: str) -> torch.Tensor:
    """A matrix larger than the box, full of one value."""
    return torch.full((ROWS + 2, COLUMNS + 32), BEFORE, device=device).to(TYPES[dtype])


def written(operation: str, dtype: DType, device: str) -> list[dict[str, Any]]:
    """For every extent, the last column and the last row that changed, and whether everything before them changed."""
    write, rows = writer(operation, dtype), []
    for extent in EXTENTS:
        base = whole(dtype, device)
        write(out=base[:INSIDE, :extent])
        changed = (base.float() != BEFORE).cpu()
        last_row, last_column = (int(each.max()) for each in changed.nonzero().T)
        rows.append({
            "operation": operation, "dtype": dtype.name, "extent": extent, "last_column": last_column,
            "last_row": last_row, "all_of_them": bool(changed[: last_row + 1, : last_column + 1].all()),
        })  # fmt: skip
    return rows


def loaded(dtype: DType, device: str) -> list[dict[str, Any]]:
    """For every extent, the last column and row of the box that hold the matrix's values, and whether all others are
    zeros."""
    read, rows = reader(dtype), []
    for extent in EXTENTS:
        base = whole(dtype, device)
        got = torch.zeros(ROWS * COLUMNS * dtype.bytes // 4, device=device, dtype=torch.int32)
        read(base[:INSIDE, :extent], out=got)
        box = got.view(torch.uint8).view(TYPES[dtype]).float().cpu().reshape(ROWS, COLUMNS)
        last_row, last_column = (int(each.max()) for each in (box == BEFORE).nonzero().T)
        inside = torch.zeros_like(box)
        inside[: last_row + 1, : last_column + 1] = BEFORE
        rows.append({
            "operation": "load", "dtype": dtype.name, "extent": extent, "last_column": last_column,
            "last_row": last_row, "all_of_them": bool((box == inside).all()),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/nvidia-h200/tensor-store-edges.json")
    parser.add_argument("--cpu", action="store_true", help="ask the emulator; write nothing")
    options = parser.parse_args()
    device = "cpu" if options.cpu else "cuda"
    rows = [row for dtype in TYPES for row in written("store", dtype, device)]
    rows += [row for dtype in (f32, bf16) for row in written("add", dtype, device)]
    rows += [row for dtype in TYPES for row in loaded(dtype, device)]
    if not options.cpu:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
        evidence.write(
            options.out, evidence.header("tensor-store-edges", gpu=torch.cuda.get_device_name(), driver=driver), rows
        )
    for row in rows:
        if row["extent"] in (4, 5, 7, 8, 9, 13, 16, 29, 57, 77):
            print(row["operation"], row["dtype"], row["extent"], "->", row["last_column"], row)


if __name__ == "__main__":
    main()
