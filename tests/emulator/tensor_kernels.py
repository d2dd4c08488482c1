"""Small PTX texts around one tensor-core instruction, and matrices to and from registers for them.

Registers travel through global memory as (registers, threads) arrays, so that a test decides what each thread holds.
"""

from __future__ import annotations

import numpy as np

from warploom import asm
from warploom.emulator import api
from warploom.isa.fragments import Fragment
from warploom.isa.shared_layout import SharedLayout

TILE_START = 1024
"""Where the first shared variable lies on sm_90."""
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def to_registers(matrix: np.ndarray, fragment: Fragment) -> np.ndarray:
    """Raw bits (rows, columns) as the registers of each thread, (registers, threads), element by element."""
    width = max(fragment.bits, 32)
    registers = np.zeros((fragment.registers, fragment.threads), UNSIGNED[width])
    for element in range(fragment.elements):
        register, place = divmod(element, fragment.per_register)
        bits = matrix[fragment.rows[:, element], fragment.columns[:, element]].astype(registers.dtype)
        registers[register] |= bits << registers.dtype.type(place * fragment.bits)
    return registers


def from_registers(registers: np.ndarray, fragment: Fragment) -> np.ndarray:
    """The matrix of raw bits that registers hold."""
    matrix = np.zeros(fragment.shape, UNSIGNED[max(fragment.bits, 8)])
    mask = (1 << fragment.bits) - 1
    for element in range(fragment.elements):
        register, place = divmod(element, fragment.per_register)
        bits = registers[register] >> registers.dtype.type(place * fragment.bits)
        matrix[fragment.rows[:, element], fragment.columns[:, element]] = bits & registers.dtype.type(mask)
    return matrix


def _copy(op: str, name: str, count: int, threads: int, pointer: str, bits: int = 32) -> str:
    """Load or store `count` registers of each thread: register r of thread t lies at element r * threads + t."""
    size = bits // 8
    lines = [f"mad.wide.u32 %address, %tid_x, {size}, {pointer};"]
    for register in range(count):
        place = f"[%address+{register * threads * size}]"
        operands = f"%{name}{register}, {place}" if op == "ld" else f"{place}, %{name}{register}"
        lines.append(f"{op}.global.b{bits} {operands};")
    return "\n".join(lines)


def _braces(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{index}" for index in range(count)) + "}"


def _text(arch: str, parameters: list[str], body: str, shared: int = 0) -> str:
    declared = ", ".join(f".param .u64 {name}" for name in parameters)
    loads = "\n".join(f"ld.param.u64 %{name}, [{name}];" for name in parameters)
    pointers = ", ".join(f"%{name}" for name in parameters)
    memory = f".shared .align 1024 .b8 tile[{shared}];" if shared else ""
    return f""".version 8.7
.target {arch}
.address_size 64
.visible .entry kernel({declared}) {{
.reg .b64 {pointers}, %address;
.reg .b32 %tid_x, %at;
.reg .pred %adds;
.reg .b32 %a<16>, %b<16>, %c<16>, %d<128>;
.reg .b64 %da<16>, %db<16>, %dc<16>, %dd<16>;
.reg .b32 %v<4>;
{memory}
{loads}
mov.u32 %tid_x, %tid.x;
{body}
ret;
}}
"""


def run_mma(
    opcode: str,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    d_count: int,
    arch: str = "sm_90a",
    warps: int = 1,
    metadata: np.ndarray | None = None,
    selector: int = 0,
    **options,
) -> np.ndarray:
    """Run one mma.sync on (registers, 32 * warps) arrays; gives back D's registers. metadata: of an mma.sp."""
    bits = a.dtype.itemsize * 8
    prefix = "d" if bits == 64 else ""
    threads = 32 * warps
    names = [f"{prefix}{name}" for name in "abcd"]
    body = "\n".join(
        [
            *(_copy("ld", names[i], len(x), threads, f"%p{i}", bits) for i, x in enumerate((a, b, c))),
            *([_copy("ld", "v", 1, threads, "%p4", 32)] if metadata is not None else []),
            f"{opcode} {_braces(names[3], d_count)}, {_braces(names[0], len(a))}, {_braces(names[1], len(b))}, "
            f"{_braces(names[2], len(c))}{'' if metadata is None else f', %v0, {selector}'};",
            _copy("st", names[3], d_count, threads, "%p3", bits),
        ]
    )
    d = np.zeros((d_count, threads), a.dtype)
    more = [] if metadata is None else [np.ascontiguousarray(metadata)]
    module = asm.parse(_text(arch, ["p0", "p1", "p2", "p3", "p4"][: 4 + len(more)], body))
    arguments = [np.ascontiguousarray(x) for x in (a, b, c)]
    api.run(module, "kernel", [*arguments, d, *more], grid=(1, 1, 1), block=(threads, 1, 1), **options)
    return d


def shared_image(*tiles: tuple[SharedLayout, np.ndarray]) -> tuple[np.ndarray, list[int]]:
    """The bytes of shared memory from TILE_START on that hold these tiles, and the address of each."""
    addresses, end = [], TILE_START
    for layout, _ in tiles:
        start = -(-end // layout.alignment) * layout.alignment
        addresses.append(start)
        end = start + layout.bytes
    image = np.zeros(-(-(end - TILE_START) // 4096) * 4096, np.uint8)
    for (layout, matrix), start in zip(tiles, addresses, strict=True):
        size = layout.dtype.bytes
        octets = np.ascontiguousarray(matrix).view(np.uint8).reshape(*matrix.shape, size)
        places = start - TILE_START + layout.offsets(start)
        for part in range(size):
            image[places + part] = octets[..., part]
    return image, addresses


def wgmma_text(steps: list[str], image_bytes: int, d_count: int, a_count: int, descriptors: int, threads: int) -> str:
    """A kernel that fills shared memory, loads the accumulator (and A), runs `steps`, and stores the accumulator.

    Parameters: the image, D's registers, A's registers, and descriptors p3, p4, ….
    """
    copies = ["mad.wide.u32 %address, %tid_x, 16, %p0;", "mov.b32 %at, tile;", "mad.lo.u32 %at, %tid_x, 16, %at;"]
    for offset in range(0, image_bytes, 16 * threads):
        copies.append(f"ld.global.v4.b32 {_braces('v', 4)}, [%address+{offset}];")
        copies.append(f"st.shared.v4.b32 [%at+{offset}], {_braces('v', 4)};")
    body = "\n".join(
        [
            *copies,
            "fence.proxy.async.shared::cta;",
            "bar.sync 0;",
            _copy("ld", "d", d_count, threads, "%p1"),
            _copy("ld", "a", a_count, threads, "%p2"),
            *steps,
            _copy("st", "d", d_count, threads, "%p1"),
        ]
    )
    return _text("sm_90a", [f"p{index}" for index in range(3 + descriptors)], body, image_bytes)


def run_wgmma(
    steps: list[str],
    image: np.ndarray,
    d: np.ndarray,
    descriptors: list[int],
    a: np.ndarray | None = None,
    threads: int = 128,
    grid: int = 1,
    **options,
):
    """Run `wgmma_text`; updates D's registers in place and returns the report."""
    text = wgmma_text(steps, image.size, len(d), 0 if a is None else len(a), len(descriptors), threads)
    a = np.zeros((1, 128), np.uint32) if a is None else a
    values = [np.uint64(bits) for bits in descriptors]
    return api.run(
        asm.parse(text),
        "kernel",
        [image, d, np.ascontiguousarray(a), *values],
        grid=(grid, 1, 1),
        block=(threads, 1, 1),
        **options,
    )


def issue(opcode: str, d_count: int, operands: str) -> str:
    """One wgmma.mma_async line."""
    return f"wgmma.mma_async.sync.aligned.{opcode} {_braces('d', d_count)}, {operands};"


A_REGISTERS = _braces("a", 4)
FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"


def wait(count: int) -> str:
    return f"wgmma.wait_group.sync.aligned {count};"
