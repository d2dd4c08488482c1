"""Registers at launch: the emulator's assumption, and ptxas's choice for the same texts."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from warploom import asm
from warploom.driver import toolchain
from warploom.emulator.ops import HANDLERS
from warploom.emulator.program.code import Code
from warploom.emulator.program.register_budget import launch_registers
from warploom.kernels.hopper.description import Config, Product
from warploom.kernels.hopper.gemm import LAUNCH_REGS, ROLE_REGS, build
from warploom.kernels.hopper.gemm import launch_registers as stated_registers

TEXT = """\
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x) {directives}
{{
    .reg .pred %p;
    .reg .b32 %t, %a<4>;
    .reg .b64 %x, %d;
    .reg .f32 %f<128>;
    ld.param.u64 %x, [x];
    mov.u32 %t, %tid.x;
    setp.lt.u32 %p, %t, 128;
    @!%p bra more;
    setmaxnreg.dec.sync.aligned.u32 40;
{back}    bra done;
more:
    setmaxnreg.inc.sync.aligned.u32 {asked};
{work}
done:
    ret;
}}
"""


def text(directives: str, n: int = 0, asked: int = 240, a_in_registers: bool = False, back: int = 0) -> str:
    """Two roles with setmaxnreg; one multiplies with an m64nNk16 wgmma, where n is not 0.

    back: what the other role asks for after it has given registers back, 0 for nothing.
    """
    lines = []
    if n:
        held = [f"%f{at}" for at in range(n // 2)]
        a, last = ("{%a0, %a1, %a2, %a3}", "0") if a_in_registers else ("%d", "0, 0")
        lines += [f"ld.volatile.global.u32 %a{at}, [%x];" for at in range(4 * a_in_registers)]
        lines += [f"mov.f32 {one}, 0f00000000;" for one in held] + ["mov.u64 %d, 0;", "wgmma.fence.sync.aligned;"]
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{', '.join(held)}}}, {a}, %d, 1, 1, 1, {last};"
        )
        lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
        lines += [f"st.volatile.global.f32 [%x+{4 * at}], {one};" for at, one in enumerate(held)]
    again = f"    setmaxnreg.inc.sync.aligned.u32 {back};\n" if back else ""
    return TEXT.format(directives=directives, asked=asked, back=again, work="\n".join(f"    {line}" for line in lines))


CASES = [
    # what the text says, N of its wgmma, the smallest inc, A in registers
    ("", 0, 240, False),
    (".maxnreg 168", 0, 240, False),
    (".maxnreg 250", 0, 240, False),
    (".minnctapersm 1", 0, 240, False),
    *((f".maxntid {threads} .minnctapersm {ctas}", 0, 240, False)
      for threads in (32, 160, 288, 384, 448, 640) for ctas in (1, 2, 3)),
    (".reqntid 384, 1, 1 .minnctapersm 1", 0, 160, False),
    (".reqntid 384", 0, 240, False),
    (".maxntid 384", 64, 240, False),
    (".maxntid 384", 104, 240, False),
    (".maxntid 384", 112, 240, False),
    (".reqntid 384, 1, 1", 112, 240, False),
    (".reqntid 384 .explicitcluster .reqnctapercluster 2", 112, 240, False),
    (".maxntid 384", 96, 240, True),
    (".maxntid 384", 104, 240, True),
    (".maxntid 128", 256, 240, False),
    (".maxntid 256", 200, 240, False),
    (".maxntid 256", 208, 208, False),
    (".maxntid 288", 136, 240, False),
    (".maxntid 288", 144, 240, False),
    (".maxntid 512", 72, 240, False),
    (".maxntid 512", 80, 240, False),
    (".maxntid 1024", 8, 240, False),
    (".maxntid 1024", 16, 240, False),
]  # fmt: skip


@pytest.mark.parametrize(
    "directives, n, asked, a_in_registers, back",
    [*((*case, 0) for case in CASES), *((".maxnreg 168", 0, asked, False, 120) for asked in (256, 240, 160, 112, 64))],
)
def test_the_emulator_and_ptxas_give_a_thread_the_same_registers(directives, n, asked, a_in_registers, back):
    """ptxas gives the count it starts with, or says in note C7508 that it ignores setmaxnreg."""
    tool = toolchain.ptxas()
    if tool is None or not tool.version.startswith("13.0"):
        pytest.skip("no ptxas 13.0 here")
    source = text(directives, n, asked, a_in_registers, back)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "k.ptx").write_text(source)
        done = tool.run("-v", "-arch=sm_90a", "-o", "k.cubin", "k.ptx", cwd=Path(folder))
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    ignored = "C7508" in log
    (used,) = re.findall(r"Used (\d+) registers", log)
    module = asm.parse(source)
    assert launch_registers(Code(module, module.entries[0], HANDLERS, 0), 1) == (None if ignored else int(used))


def test_more_ctas_than_an_sm_has_warps_for_give_no_count():
    module = asm.parse(text(".maxntid 544 .minnctapersm 4"))
    assert launch_registers(Code(module, module.entries[0], HANDLERS, 0), 544) is None


@pytest.mark.parametrize("tile_n, says, found", [(104, True, False), (104, False, True), (128, False, False)])
def test_a_kernel_that_ptxas_gives_registers_to_is_not_reported(tile_n, says, found):
    """384 threads, two consumers of 64 rows each: below 112 columns the library's own kernels say .maxnreg."""
    gemm = build(Product(), Config(tile_m=128, tile_n=tile_n, stages=2, ctas=1))
    assert (".maxnreg 168" in gemm.ptx()) is (tile_n < 112)
    source = gemm.ptx() if says else gemm.ptx().replace(".maxnreg 168", "")
    a, b = np.zeros((128, 64), ml_dtypes.bfloat16), np.zeros((tile_n, 64), ml_dtypes.bfloat16)
    rules = {one.rule for one in gemm.emulate(a, b, ptx=source).findings}
    assert ("setmaxnreg-without-cap" in rules) is found


@pytest.mark.parametrize("consumers", [1, 2, 3])
def test_the_kernels_say_their_registers_where_ptxas_would_not_find_them(consumers):
    """The rule of the generator, and the registers it says, against those ptxas gives a plain text."""
    threads, asked = 128 * (1 + consumers), ROLE_REGS[consumers][1]
    for tile_n in range(8, 257, 8):
        plain = asm.parse(text(f".reqntid {threads}", tile_n, asked))
        found = launch_registers(Code(plain, plain.entries[0], HANDLERS, 0), threads)
        said = stated_registers(Config(tile_m=64 * consumers, tile_n=tile_n, consumers=consumers))
        assert (said is None) is (found is not None)
        assert found in (None, LAUNCH_REGS[consumers])
