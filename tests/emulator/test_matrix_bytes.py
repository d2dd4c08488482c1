"""ldmatrix and stmatrix of 8-bit elements, against measurements on sm_120 and CUTLASS's copy traits.

Measured by others: register h of ldmatrix.m16n16.trans holds, in lane t, rows 4 (t % 4) to 4 (t % 4) + 3 of column
t / 4 + 8 h. CUTLASS's SM100_U8x4_STSM_T: byte v of lane t goes to row 2 (t % 4) + v % 2, byte t / 4 + 8 (v / 2).
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.async_kernels import dump, emulate, fill
from warploom.errors import MisalignedError
from warploom.sanitizer import Sanitizer

LANES = np.arange(32)
BITS = {"": 8, ".b6x16_p32": 6, ".b4x16_p64": 4}


def rows_of(count: int, bits: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Elements (rows, 16), and the rows' 16 bytes with 0xEE behind what packed elements fill."""
    elements = np.random.default_rng(seed).integers(0, 1 << bits, (count, 16)).astype(np.uint8)
    image = np.full((count, 16), 0xEE, np.uint8)
    for row, line in zip(elements, image, strict=True):
        number = sum(int(value) << bits * at for at, value in enumerate(row))
        line[: 2 * bits] = np.frombuffer(number.to_bytes(2 * bits, "little"), np.uint8)
    return elements, image


def loaded(opcode: str, registers: int, image: np.ndarray, shuffle: np.ndarray, **options: object) -> np.ndarray:
    """Bytes of the registers, (registers, 32, 4). Row r lies at row shuffle[r] of the tile."""
    out, places = np.zeros((registers, 32), np.uint32), np.full(32, 0xDEADBEE3, np.uint32)
    places[: len(shuffle)] = 16 * shuffle
    tile = np.zeros((32, 16), np.uint8)
    tile[shuffle] = image
    names = ", ".join(f"%r{number}" for number in range(registers))
    stores = "\n".join(f"st.global.b32 [%rd2+{128 * number}], %r{number};" for number in range(registers))
    body = fill("%a1", tile.nbytes) + f"""
    mul.wide.u32 %rd1, %idx, 4;
    add.u64 %rd2, %a0, %rd1;
    add.u64 %rd1, %a2, %rd1;
    ld.global.b32 %r40, [%rd1];
    add.u32 %r40, %r40, %tile;
    {opcode} {{{names}}}, [%r40];
    {stores}
    """  # fmt: skip
    emulate(body, out, tile, places, target="sm_100a", **options)
    return out.view(np.uint8).reshape(registers, 32, 4)


@pytest.mark.parametrize("source", BITS)
@pytest.mark.parametrize("count", [1, 2])
def test_a_transposed_load_gives_each_lane_four_rows_of_two_columns(count, source):
    elements, image = rows_of(16 * count, BITS[source])
    kind = f"b8x16{source}" if source else "b8"
    shuffle = np.random.default_rng(count).permutation(32)[: 16 * count]
    found = loaded(f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{kind}", 2 * count, image, shuffle)
    for register, lane, byte in np.ndindex(found.shape):
        matrix, half = divmod(register, 2)
        row, column = 16 * matrix + 4 * (lane % 4) + byte, lane // 4 + 8 * half
        assert found[register, lane, byte] == elements[row, column]


@pytest.mark.parametrize("source", [".b6x16_p32", ".b4x16_p64"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_plain_load_gives_each_lane_four_columns_of_a_row(count, source):
    elements, image = rows_of(8 * count, BITS[source])
    shuffle = np.random.default_rng(count).permutation(32)[: 8 * count]
    found = loaded(f"ldmatrix.sync.aligned.m8n16.x{count}.shared.b8x16{source}", count, image, shuffle)
    np.testing.assert_array_equal(found, elements.reshape(count, 32, 4))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_store_writes_columns_as_rows(count):
    registers = np.random.default_rng(count).integers(0, 256, (count, 32, 4)).astype(np.uint8)
    out = np.zeros((32, 16), np.uint8)
    names = ", ".join(f"%r{number}" for number in range(count))
    loads = "\n".join(f"ld.global.b32 %r{number}, [%rd1+{128 * number}];" for number in range(count))
    body = f"""
    mul.wide.u32 %rd1, %idx, 4;
    add.u64 %rd1, %a1, %rd1;
    {loads}
    mad.lo.u32 %r40, %idx, 16, %tile;
    stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r40], {{{names}}};
    bar.sync 0;
    """ + dump("%a0", out.nbytes)  # fmt: skip
    emulate(body, out, registers.view(np.uint32), target="sm_100a")
    for matrix, lane, byte in np.ndindex(registers.shape):
        row, column = 8 * matrix + 2 * (lane % 4) + byte % 2, lane // 4 + 8 * (byte // 2)
        assert out[row, column] == registers[matrix, lane, byte]


@pytest.mark.parametrize("opcode", ["m8n16.x1.shared.b8x16.b4x16_p64", "m16n16.x1.trans.shared.b8"])
def test_a_row_begins_at_16_bytes(opcode):
    body = f"""
    mad.lo.u32 %r40, %idx, 8, %tile;
    ldmatrix.sync.aligned.{opcode} {{{"%r0, %r1" if "m16" in opcode else "%r0"}}}, [%r40];
    """  # fmt: skip
    with pytest.raises(MisalignedError):
        emulate(body, target="sm_100a")


def test_gaps_behind_packed_elements_need_not_have_been_written():
    """TMA leaves them: what is read of a row of 4-bit elements are its first 8 bytes."""
    body = """
    mad.lo.u32 %r40, %idx, 16, %tile;
    st.shared.v2.b32 [%r40], {%idx, %idx};
    bar.sync 0;
    WORD
    ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64 {%r0, %r1, %r2, %r3}, [%r40];
    shl.b32 %r41, %idx, 2;
    cvt.u64.u32 %rd1, %r41;
    add.u64 %rd1, %rd1, %a0;
    st.global.b32 [%rd1], %r0;
    """
    for word, expected in (("", set()), ("add.u32 %r40, %r40, 16;", {"uninitialised-shared-read"})):
        report = emulate(
            body.replace("WORD", word), np.zeros(32, np.uint32), target="sm_100a", detailed=True, watch=[Sanitizer]
        )
        assert {finding.rule for finding in report.findings} == expected
