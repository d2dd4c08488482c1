"""Vector registers, sums of a register and a constant, and variables that hold addresses run as ptxas compiles them."""

from __future__ import annotations

import numpy as np
import pytest

from warploom import emulate

TEXT = """.version 8.1
.target sm_90
.address_size 64
{variables}
.visible .entry k(.param .u64 p)
{{
    .reg .b64 %rd<4>;
    .reg .b32 %r<8>;
    .reg .pred %q;
    .reg .v4 .u32 %v;
    .reg .v2 .u32 %w;
    ld.param.u64 %rd1, [p];
    {body}
    ret;
}}
"""


def ran(body: str, variables: str = "") -> list[int]:
    """The eight words that one thread stores."""
    out = np.zeros(8, np.uint32)
    report = emulate(TEXT.format(body=body, variables=variables), out, grid=1, block=1)
    assert report.findings == []
    return out.tolist()


G = ".global .align 16 .u32 g[4] = {1, 2, 3, 4};"


def test_a_vector_register_is_loaded_used_by_component_and_stored() -> None:
    body = """mov.u64 %rd2, g; ld.global.v4.u32 %v, [%rd2]; add.u32 %v.x, %v.y, %v.w; mov.u32 %v.b, 7;
    st.global.v4.u32 [%rd1], %v; mov.u32 %w.x, %v.r; mov.u32 %w.y, 9; st.global.v2.u32 [%rd1+16], %w;"""
    assert ran(body, G) == [6, 2, 7, 4, 6, 9, 0, 0]


def test_a_register_and_a_constant_are_added_before_the_instruction() -> None:
    body = """mov.u32 %r1, 40; setp.eq.u32 %q, %r1, 40; st.global.u32 [%rd1], %r1 + 2;
    @!%q st.global.u32 [%rd1+4], %r1 + 3; @%q st.global.u32 [%rd1+8], %r1 + -4;"""
    assert ran(body) == [42, 0, 36, 0, 0, 0, 0, 0]


def test_a_sum_that_mapa_takes_is_extended_from_the_width_of_its_register() -> None:
    body = """mov.u32 %r1, 64; mapa.shared::cluster.u64 %rd2, %r1 + 4, 0; st.global.u64 [%rd1], %rd2;
    mov.u64 %rd3, 0x100000010; mapa.shared::cluster.u32 %r2, %rd3 + -8, 0; st.global.u32 [%rd1+8], %r2;"""
    assert ran(body)[:3] == [68, 0, 8]


@pytest.mark.parametrize("value, word", [("g", 1), ("g + 8", 3), ("generic(g) + 4", 2)])
def test_a_constant_holds_the_address_of_a_variable(value: str, word: int) -> None:
    body = "ld.const.u64 %rd2, [c]; ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1;"
    assert ran(body, f"{G}\n.const .u64 c = {value};")[0] == word


def test_a_table_of_addresses_reaches_variables_that_only_it_names() -> None:
    variables = ".global .u32 a = 5;\n.global .u32 b = 6;\n.global .u64 table[2] = {a, b};"
    body = """mov.u64 %rd2, table; ld.global.u64 %rd3, [%rd2+8]; ld.global.u32 %r1, [%rd3];
    st.global.u32 [%rd1], %r1;"""
    assert ran(body, variables)[0] == 6


def test_the_fourth_component_of_a_special_register_is_zero() -> None:
    body = "mov.u32 %r1, %ntid.w; mov.u32 %r2, %tid.w; st.global.u32 [%rd1], %r1; st.global.u32 [%rd1+4], %r2 + 1;"
    assert ran(body)[:2] == [0, 1]


def test_vectors_of_registers_swap_and_go_through_functions() -> None:
    function = """.func (.reg .v2 .u32 r) swapped(.reg .v2 .u32 x, .reg .u32 y) {
        add.u32 r.x, x.y, y; mov.u32 r.y, x.x; ret; }"""
    body = """mov.u32 %w.x, 10; mov.u32 %w.y, 20; mov.u32 %r1, 5; call (%w), swapped, (%w, %r1);
        st.global.v2.u32 [%rd1], %w; mov.v2.u32 {%r1, %r2}, {%w.y, %w.x}; mov.v2.u32 {%r2, %r1}, {%r1, %r2};
        st.global.v2.u32 [%rd1+8], {%r1, %r2};"""
    assert ran(body, function)[:4] == [25, 10, 25, 10]


def test_a_float_fills_the_low_bits_of_a_wider_register() -> None:
    body = "mov.u32 %r1, 0x3F000000; st.global.u32 [%rd1], %r1; ld.global.f32 %rd2, [%rd1];"
    # LDG, and zero in the upper half: the SASS of ptxas 13.0
    assert ran(body + "st.global.u64 [%rd1+8], %rd2;")[2:4] == [0x3F000000, 0]


def test_a_packed_pair_fills_the_low_bits_of_a_wider_register() -> None:
    body = "mov.u64 %rd2, -1; cvt.rn.relu.satfinite.f16x2.f32 %rd2, 0f3F800000, 0fC0000000; st.global.u64 [%rd1], %rd2;"
    assert ran(body)[:2] == [0x3C000000, 0]
    body = "mov.u64 %rd2, -1; cvt.pack.sat.s16.s32 %rd2, 5, -7; st.global.u64 [%rd1], %rd2;"
    assert ran(body)[:2] == [0x5FFF9, 0]


def test_a_vector_register_and_a_scalar_of_one_name_live_in_different_blocks() -> None:
    body = """mov.u32 %r1, 3;
        { .reg .u32 m; add.u32 m, %r1, 1; st.global.u32 [%rd1], m; }
        { .reg .v2 .u32 m; mov.u32 m.x, 7; add.u32 m.y, m.x, %r1;
          { .reg .u32 m; mov.u32 m, 9; st.global.u32 [%rd1+4], m + 1; }
          st.global.v2.u32 [%rd1+8], m; }"""
    assert ran(body)[:4] == [4, 10, 7, 10]
