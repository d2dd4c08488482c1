"""ldmatrix, stmatrix and movmatrix in the emulator, against the fragments of the PTX ISA written out."""

import numpy as np
import pytest

from tests.errors import refused
from warploom import asm
from warploom.emulator import api


def run(body: str, *arguments: np.ndarray, registers: str = "") -> None:
    """Run a body for one warp: `%pN` is argument N, `%lane` the lane, `tile` 2 KiB of shared memory."""
    count = len(arguments)
    loads = "\n".join(f"ld.param.u64 %p{i}, [p{i}];" for i in range(count))
    text = f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel({", ".join(f".param .u64 p{i}" for i in range(count))}) {{
.reg .b64 %p<{count}>, %address;
.reg .b32 %lane, %at, %r<8>, %v<4>;
.shared .align 128 .b8 tile[2048];
{loads}
mov.u32 %lane, %laneid;
{body}
ret;
}}
"""
    api.run(asm.parse(text), "kernel", list(arguments), grid=(1, 1, 1), block=(32, 1, 1))


FILL = """mad.wide.u32 %address, %lane, 16, %p0;
mov.b32 %at, tile;
mad.lo.u32 %at, %lane, 16, %at;
ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%address];
st.shared.v4.b32 [%at], {%v0, %v1, %v2, %v3};
bar.sync 0;"""
ADDRESS = """mad.wide.u32 %address, %lane, 4, %p1;
ld.global.b32 %at, [%address];"""


def braces(count: int) -> str:
    return "{" + ", ".join(f"%r{i}" for i in range(count)) + "}"


def store(count: int) -> str:
    lines = ["mad.wide.u32 %address, %lane, 4, %p2;"]
    return "\n".join(lines + [f"st.global.b32 [%address+{128 * i}], %r{i};" for i in range(count)])


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("space", [".shared", ".shared::cta"])
def test_ldmatrix_gives_each_lane_its_two_elements(count, transposed, space):
    rows = np.arange(32 * 8, dtype=np.uint16).reshape(32, 8)
    shuffle = np.random.default_rng(count).permutation(32)  # row i of the matrices is in chunk shuffle[i]
    where = (1024 + 16 * shuffle).astype(np.uint32)
    where[8 * count :] = 0xDEADBEE3  # addresses of these lanes are not looked at
    image = np.zeros((32, 8), np.uint16)
    image[shuffle] = rows
    out = np.zeros((count, 32), np.uint32)
    trans = ".trans" if transposed else ""
    body = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {braces(count)}, [%at];"
    run("\n".join([FILL, ADDRESS, body, store(count)]), image, where, out)
    for matrix in range(count):
        elements = rows[8 * matrix : 8 * matrix + 8]
        for lane in range(32):
            g, q = lane // 4, lane % 4
            pair = (
                (elements[2 * q, g], elements[2 * q + 1, g])
                if transposed
                else (elements[g, 2 * q], elements[g, 2 * q + 1])
            )
            assert out[matrix, lane] == int(pair[0]) | int(pair[1]) << 16


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix_is_the_inverse_of_ldmatrix(count, transposed):
    image = np.random.default_rng(count).integers(0, 1 << 16, (32, 8)).astype(np.uint16)
    where = (1024 + 16 * np.arange(32)).astype(np.uint32)
    out = np.zeros((count, 32), np.uint32)
    trans = ".trans" if transposed else ""
    body = f"""ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {braces(count)}, [%at];
add.u32 %at, %at, 1024;
stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%at], {braces(count)};
bar.sync 0;
ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {braces(count)}, [%at];"""
    run("\n".join([FILL, ADDRESS, body, store(count)]), image, where, out)
    for matrix in range(count):
        found = out[matrix].view(np.uint16).reshape(8, 8)
        assert np.array_equal(found, image[8 * matrix : 8 * matrix + 8])


def test_movmatrix_transposes():
    image = np.arange(32 * 8, dtype=np.uint16).reshape(32, 8)
    where = (1024 + 16 * np.arange(32)).astype(np.uint32)
    out = np.zeros((1, 32), np.uint32)
    body = """ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%at];
movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;"""
    run("\n".join([FILL, ADDRESS, body, store(1)]), image, where, out)
    assert np.array_equal(out[0].view(np.uint16).reshape(8, 8), image[:8].T)


@pytest.mark.parametrize("offset, code", [(8, "misaligned"), (2048, "out-of-bounds")])
def test_a_bad_row_address_is_named(offset, code):
    where = (1024 + 16 * np.arange(32)).astype(np.uint32)
    where[5] += offset
    body = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%at];"
    with refused(code) as caught:
        run("\n".join([FILL, ADDRESS, body]), np.zeros(256, np.uint16), where)
    assert "lane 5" in str(caught.value)
