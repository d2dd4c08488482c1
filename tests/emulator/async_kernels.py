"""Small kernels of asynchronous instructions as PTX text, for the emulator's tests.

As a body begins, argument n is in %a{n} (a buffer's or a tensor map's 64-bit address) or %s{n} (a 32-bit scalar), and
%idx holds %tid.x. `tile` (16 KiB) and `bar` (four mbarriers) are in shared memory, their addresses in %tile and %bar.
"""

from __future__ import annotations

import numpy as np

from warploom import asm
from warploom.emulator import api
from warploom.emulator.diagnosis.report import Report
from warploom.emulator.engines.tma import TensorMapArgument

SCHEDULES = [("eager", 0), ("lazy", 0), ("random", 0), ("random", 1), ("starve", 2), ("starve", 3), ("starve", 5)]
TILE_BYTES = 16384

_REGISTERS = """
    .reg .pred %p<16>;
    .reg .pred %first;
    .reg .b16 %h<8>;
    .reg .b32 %r<48>;
    .reg .b64 %rd<32>;
    .reg .b32 %idx;
    .reg .b32 %tile;
    .reg .b32 %bar;
    .reg .b32 %i;
    .reg .b64 %where;
    .shared .align 1024 .b8 tile[16384];
    .shared .align 8 .b64 bar[4];
"""


def text_of(body: str, arguments: tuple[object, ...], target: str = "sm_90a", directives: str = "") -> str:
    """The whole text of a kernel `k` for these arguments."""
    heads, loads = [], []
    for number, argument in enumerate(arguments):
        name = f"argument{number}"
        if isinstance(argument, TensorMapArgument):
            heads.append(f".param .align 64 .b8 {name}[128]")
            loads += [f".reg .b64 %a{number};", f"mov.b64 %a{number}, {name};"]
            loads.append(f"cvta.param.u64 %a{number}, %a{number};")
        elif isinstance(argument, np.ndarray):
            heads.append(f".param .u64 {name}")
            loads += [f".reg .b64 %a{number};", f"ld.param.u64 %a{number}, [{name}];"]
        else:
            heads.append(f".param .u32 {name}")
            loads += [f".reg .b32 %s{number};", f"ld.param.u32 %s{number}, [{name}];"]
    start = ["mov.u32 %idx, %tid.x;", "setp.eq.u32 %first, %idx, 0;", "mov.u32 %tile, tile;", "mov.u32 %bar, bar;"]
    lines = "\n    ".join([*loads, *start])
    return (
        f".version 8.7\n.target {target}\n.address_size 64\n.visible .entry k({', '.join(heads)}) {directives}\n"
        f"{{\n{_REGISTERS}    {lines}\n{body}\n    ret;\n}}\n"
    )


def emulate(
    body: str, *arguments: object, threads: int = 32, grid: int = 1, cluster: int = 1, target: str = "sm_90a",
    directives: str = "", **options: object,
) -> Report:  # fmt: skip
    """Run a body."""
    text = text_of(body, arguments, target, directives)
    return api.run(
        asm.parse(text), "k", arguments, grid=(grid, 1, 1), block=(threads, 1, 1), cluster=(cluster, 1, 1), **options
    )  # type: ignore[arg-type]


def init(*counts: int) -> str:
    """Thread 0 initialises the first barriers with these counts; then all threads of the CTA go on together."""
    lines = [
        f"@%first mbarrier.init.shared::cta.b64 [bar+{8 * number}], {count};" for number, count in enumerate(counts)
    ]
    return "\n".join([*lines, "bar.sync 0;"])


def cluster_sync() -> str:
    return "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;"


def wait(parity: int = 0, barrier: int = 0, tag: str = "0") -> str:
    """All threads wait for a phase of a barrier."""
    return (
        f"wait_{tag}:\n"
        f"mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar+{8 * barrier}], {parity};\n"
        f"@!%p0 bra wait_{tag};"
    )


def dump(pointer: str, size: int, threads: int = 32, start: int = 0, tag: str = "0") -> str:
    """All threads copy `size` bytes of the tile, from `start` on, to global memory at `pointer`."""
    return f"""
    shl.b32 %i, %idx, 2;
dump_{tag}:
    setp.ge.u32 %p15, %i, {size};
    @%p15 bra dumped_{tag};
    add.u32 %r47, %i, %tile;
    ld.shared.u32 %r46, [%r47+{start}];
    cvt.u64.u32 %where, %i;
    add.u64 %where, %where, {pointer};
    st.global.u32 [%where], %r46;
    add.u32 %i, %i, {4 * threads};
    bra dump_{tag};
dumped_{tag}:
"""


def fill(pointer: str, size: int, threads: int = 32, tag: str = "0") -> str:
    """All threads copy `size` bytes of global memory into the tile, and wait for each other."""
    return f"""
    shl.b32 %i, %idx, 2;
fill_{tag}:
    setp.ge.u32 %p15, %i, {size};
    @%p15 bra filled_{tag};
    cvt.u64.u32 %where, %i;
    add.u64 %where, %where, {pointer};
    ld.global.u32 %r46, [%where];
    add.u32 %r47, %i, %tile;
    st.shared.u32 [%r47], %r46;
    add.u32 %i, %i, {4 * threads};
    bra fill_{tag};
filled_{tag}:
    fence.proxy.async;
    bar.sync 0;
"""


def words(count: int, seed: int = 0) -> np.ndarray:
    """Random 32-bit words."""
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)
