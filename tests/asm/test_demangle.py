"""C++ names in messages: what identifies them, without parameters and most template arguments."""

from __future__ import annotations

import pytest

from warploom.asm.demangle import readable, short


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_ZN3lib4smemE", "lib::smem"),
        ("_ZZ5rolesE5state", "roles::state"),
        ("_ZZN3lib6kernelI4TileILi2ELi4EEEEvNT_6layoutEE7arrived", "kernel<…>::arrived"),
        ("_Z11fill_kernelI13__nv_bfloat16EvPT_mm", "fill_kernel<…>"),
        ("_ZN3lib5applyIfLi4ENS_4TileEEEvT_", "lib::apply<float, 4, …>"),
        ("_Z3runILb1ELin3EEvv", "run<true, -3>"),
        ("_Z3runIfLf40000000EEvv", "run<float, …>"),
        ("_Z3addPf_param_1", "add parameter 1"),
        ("add_param_1", "add_param_1"),
        ("_Z", "_Z"),
        ("_Z99short", "_Z99short"),
        ("global_smem", "global_smem"),
    ],
)
def test_a_name_is_cut_to_what_identifies_it(name: str, expected: str) -> None:
    assert short(name) == expected


def test_names_inside_of_a_sentence_are_cut() -> None:
    assert readable("`_ZN3lib4smemE+128` of warp 4, my_Zone") == "`lib::smem+128` of warp 4, my_Zone"
