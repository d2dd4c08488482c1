"""Reading `ptxas -v`, and what fits on one multiprocessor."""

# ruff: noqa: E501  (ptxas's own lines)

from __future__ import annotations

import pytest

from warploom.driver import compile as compiler
from warploom.driver import resources, toolchain
from warploom.driver.disassemble import between_waits

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to X in function 'second'
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 16 bytes cumulative stack size, 1024 bytes smem, 380 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 250.000 ms
ptxas info    : Compiling entry function 'second' for 'sm_80'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers
"""


IGNORED = "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.\n"


def test_every_entry_of_a_log_is_read():
    found = resources.parse(LOG)
    assert set(found) == {"second", "first"}
    first = found["first"]
    assert (first.registers, first.barriers, first.static_shared, first.stack) == (168, 3, 1024, 16)
    assert (first.spill_stores, first.spill_loads, first.spills) == (8, 12, 20)
    assert first.constant == ((0, 380), (2, 8))
    assert found["second"].arch == "sm_80" and found["second"].registers == 8 and found["second"].static_shared == 0


def test_a_note_belongs_to_the_function_it_names():
    found = resources.parse(LOG)
    assert found["second"].serialisation_notes and not found["first"].serialisation_notes


def test_a_note_before_the_only_entry_belongs_to_it():
    before, _, first = LOG.partition("ptxas info    : (C7510)")
    only = first.partition("\n")[2].partition("ptxas info    : Compiling entry function 'second'")[0]
    (found,) = resources.parse(IGNORED + before + only).values()
    assert found.entry == "first" and found.notes[0].startswith("C7508: ") and not found.serialisation_notes


def test_a_note_before_several_entries_may_be_about_any():
    found = resources.parse(IGNORED + LOG)
    assert [[note[:5] for note in found[name].notes] for name in ("first", "second")] == [["C7508"], ["C7508", "C7510"]]


def test_a_note_names_a_function_that_is_compiled_later():
    log = LOG.splitlines()
    later = [*log[:1], *log[2:5], log[1], *log[5:]]
    found = resources.parse("\n".join(later))
    assert found["second"].serialisation_notes and not found["first"].serialisation_notes


@pytest.mark.skipif(toolchain.ptxas() is None, reason="needs ptxas")
def test_ptxas_says_that_it_ignores_setmaxnreg():
    """The text says nowhere how many registers a thread has at the start."""
    body = "setmaxnreg.dec.sync.aligned.u32 40;\n ret;"
    text = f".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k() .reqntid 384 {{ {body} }}"
    (note,) = compiler.build(text).resources["k"].notes
    assert note.startswith("C7508: ") and "setmaxnreg" in note


@pytest.mark.parametrize("number, serialises", [("C7509", False), ("C7510", True), ("C7519", True), ("C7520", False)])
def test_only_the_notes_c7510_to_c7519_are_about_serialised_wgmmas(number, serialises):
    log = f"ptxas info    : Compiling entry function 'k' for 'sm_90a'\nptxas info    : ({number}) something"
    assert bool(resources.parse(log)["k"].serialisation_notes) is serialises


@pytest.mark.parametrize(
    "threads, registers, shared, ctas",
    [
        (384, 168, 0, 1),  # 12 warps × 168 × 32 = 64512 of 65536 registers
        (128, 32, 0, 16),  # 4 warps × 1024 registers: 16 by registers and by warps
        (128, 32, 227 * 1024, 1),
        (128, 32, 100 * 1024, 2),
        (128, 33, 0, 12),  # 33 × 32 = 1056 rounds up to 1280 registers per warp: 51 warps, 12 CTAs
        (32, 16, 0, 32),
        (288, 168, 0, 1),  # 9 warps: three in one of four partitions, as with 12
        (288, 169, 0, 0),
        (160, 168, 0, 2),  # 5 warps twice: three in two of the partitions
        (160, 169, 0, 1),
        (1024, 65, 0, 0),  # 32 warps × 2304 > 65536
        (1025, 16, 0, 0),
        (128, 32, 228 * 1024, 0),
    ],
)
def test_occupancy_of_hopper(threads, registers, shared, ctas):
    assert resources.occupancy("sm_90a", threads, registers, shared) == ctas


def test_resources_are_plain_values_for_json():
    import json

    assert json.loads(json.dumps(resources.parse(LOG)["first"].as_dict()))["constant"] == {"0": 380, "2": 8}


def test_the_instructions_between_waits_are_counted():
    text = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   MUFU.EX2 R4, R5 ;
        /*0020*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0030*/              @P0  MUFU.EX2 R6, R7 ;
        /*0040*/              @!UP1  MUFU.RCP R6, R7 ;
        /*0050*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24 ;
    """
    assert between_waits(text) == ({"LDC": 1, "MUFU": 1}, {"MUFU": 2, "HGMMA": 1})
