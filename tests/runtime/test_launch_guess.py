"""What `check --init` infers from a text, from Triton's metadata and from the name of a CUTLASS kernel."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from warploom.asm.mangled import parsed
from warploom.runtime import launch_file
from warploom.runtime.launch_compilers import cutlass
from warploom.runtime.program import program_of

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
STRUCT = """
.visible .entry NAME(.param .align 64 .b8 NAME_param_0[320])
DIRECTIVES
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<12>;
    .shared .align 1024 .b8 tile[1024];
    .shared .align 8 .b64 bar;
    mov.b64 %rd0, NAME_param_0;
    cvta.param.u64 %rd1, %rd0;
    add.s64 %rd2, %rd1, 64;
    ld.param.v2.u64 {%rd3, %rd4}, [NAME_param_0+256];
    ld.param.u32 %r0, [NAME_param_0+192];
    cvta.to.global.u64 %rd5, %rd3;
    mul.wide.u32 %rd6, %r0, 4;
    add.s64 %rd7, %rd5, %rd6;
    ld.global.f32 %f0, [%rd7+8];
    st.global.u16 [%rd4], %r0;
    cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%rd2, {%r0, 0, 0}],
        [bar];
    ret;
}
"""
PLAIN = """
.visible .entry plain(.param .u64 from, .param .u64 to, .param .u64 count, .param .u32 n)
.maxntid 96, 2, 1
{
    .reg .f32 %f<2>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd0, [from];
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [count];
    shl.b64 %rd3, %rd2, 2;
    add.s64 %rd4, %rd0, %rd3;
    ld.global.f32 %f0, [%rd4];
    st.global.f32 [%rd1], %f0;
    ret;
}
"""
CUTLASS = (
    "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10collective13CollectiveMmaINS1_"
    "34MainloopSm90TmaGmmaWarpSpecializedILi6ENS5_IJNS4_1CILi2EEENSA_ILi1EEESC_EEENS1_35KernelTmaWarpSpecializedCooperat"
    "iveEEENS5_IJNSA_ILi128EEESG_NSA_ILi64EEEEEENS_10bfloat16_tENS5_IJlSC_lEEENS_12float_e4m3_tESK_EEvEEEEvNT_6ParamsE"
)
METADATA = {
    "name": "plain", "num_warps": 8, "num_ctas": 2, "shared": 4096, "launch_pdl": True, "warp_size": 32,
    "triton_version": "3.9.0", "num_stages": 3, "global_scratch_size": 0, "profile_scratch_size": 0,
    "tensordesc_meta": [],
}  # fmt: skip


def written(folder: Path, text: str, name: str = "k") -> tuple[str, dict]:
    """The description that is written for a text, and what it says."""
    path = folder / f"{name}.ptx"
    path.write_text(HEAD + text)
    made = launch_file.template(program_of(path), path)
    described = folder / f"{name}.launch.toml"
    described.write_text(made)
    launch_file.read(described)  # it can be read
    return made, tomllib.loads(made)


def line_of(made: str, word: str) -> str:
    return next(line for line in made.splitlines() if line.startswith(word))


def test_pointers_and_maps_inside_a_structure(tmp_path):
    made, said = written(tmp_path, STRUCT.replace("NAME", "k").replace("DIRECTIVES", ""))
    (parameter,) = said["parameter"]
    assert (parameter["kind"], parameter["size"]) == ("bytes", 320)
    kinds = {offset: part["kind"] for offset, part in parameter["at"].items()}
    assert kinds == {"64": "tensor_map", "192": "scalar", "256": "buffer", "264": "buffer"}
    assert parameter["at"]["256"]["dtype"] == "f32" and parameter["at"]["264"]["dtype"] == "u16"
    assert len(parameter["at"]["64"]["shape"]) == 3 and parameter["at"]["264"]["fill"] == "zeros"
    assert "a guess" in line_of(made, "grid") and "a guess" in line_of(made, "box") and said["guessed"]


def test_arrays_in_two_structures_have_names_of_their_own(tmp_path):
    body = STRUCT.replace("NAME", "k").replace("DIRECTIVES", "").replace(
        "k_param_0[320])", "k_param_0[320], .param .align 64 .b8 other[320])"
    ).replace("    ret;", "    ld.param.u64 %rd8, [other+256];\n    cvta.to.global.u64 %rd9, %rd8;\n"
              "    ld.global.f32 %f1, [%rd9];\n    ret;")  # fmt: skip
    made, said = written(tmp_path, body)
    names = [part["name"] for parameter in said["parameter"] for part in parameter["at"].values()]
    assert {"at_256", "p1_at_256"} <= set(names) and len(set(names)) == len(names)
    path = tmp_path / "k.launch.toml"
    description = launch_file.read(path)
    assert len(description.arguments(description.program(HEAD + body))) == 2, made


def test_directives(tmp_path):
    body = STRUCT.replace("NAME", "k")
    made, said = written(tmp_path, body.replace("DIRECTIVES", ".reqntid 64, 2, 1\n.reqnctapercluster 2, 1, 1"))
    assert said["block"] == [64, 2, 1] and "from .reqntid" in line_of(made, "block")
    assert said["cluster"] == [2, 1, 1] and "from .reqnctapercluster" in line_of(made, "cluster")
    made, said = written(tmp_path, PLAIN)
    assert said["block"] == [96, 2, 1] and "a guess" in line_of(made, "block")
    made, said = written(tmp_path, body.replace("DIRECTIVES", ".explicitcluster\n.maxclusterrank 4"))
    assert "a guess" in line_of(made, "cluster") and "a guess" in line_of(made, "block")


def test_an_array_of_pointers_has_a_part_for_each(tmp_path):
    body = PLAIN.replace("ld.global.f32 %f0, [%rd4];", "ld.global.u64 %rd5, [%rd4];\n ld.global.f32 %f0, [%rd5];")
    _, said = written(tmp_path, body)
    table = said["parameter"][0]
    assert (table["kind"], [part["kind"] for part in table["at"].values()]) == ("bytes", ["buffer"] * 2)
    assert {part["dtype"] for part in table["at"].values()} == {"f32"}


def test_shared_memory_that_another_kernel_uses_is_not_asked_for(tmp_path):
    other = ".extern .shared .b8 pool[];\n.visible .entry other() {\nst.shared.u32 [pool], 1;\nret;\n}\n"
    path = tmp_path / "k.ptx"
    path.write_text(HEAD + other + PLAIN)
    made = {name: launch_file.template(program_of(path, entry=name), path) for name in ("plain", "other")}
    assert tomllib.loads(made["plain"])["dynamic_smem"] == 0 < tomllib.loads(made["other"])["dynamic_smem"]


def test_a_number_is_not_taken_for_a_pointer(tmp_path):
    _, said = written(tmp_path, PLAIN)
    kinds = {one["name"]: one["kind"] for one in said["parameter"]}
    assert kinds == {"from": "buffer", "to": "buffer", "count": "scalar", "n": "scalar"}
    fills = [one.get("fill") for one in said["parameter"][:2]]
    assert fills == ["normal", "zeros"]


def test_metadata_of_triton(tmp_path):
    text = PLAIN.replace(".maxntid", ".maxntid").replace("{\n", "{\n    .reg .b32 %r<2>;\n", 1)
    text = ".extern .shared .align 16 .b8 global_smem[];\n" + text.replace("ret;", "mov.u32 %r0, global_smem;\nret;")
    (tmp_path / "k.json").write_text(json.dumps(METADATA))
    made, said = written(tmp_path, text)
    assert (said["block"], said["cluster"], said["dynamic_smem"]) == ([256, 1, 1], [2, 1, 1], 4096)
    assert said["dependent"] is True and "a guess" not in line_of(made, "dynamic_smem")
    (tmp_path / "k.json").write_text(json.dumps({**METADATA, "name": "another"}))
    most = 227 * 1024  # what the metadata do not say is guessed: the most that a CTA of sm_90a can have
    made, said = written(tmp_path, text)
    assert said["dynamic_smem"] == most and "a guess" in line_of(made, "dynamic_smem")
    (tmp_path / "k.json").write_text("no JSON")
    assert written(tmp_path, text)[1]["dynamic_smem"] == most


def test_the_name_of_a_cutlass_kernel(tmp_path):
    found = cutlass(CUTLASS)
    assert found is not None and found.cluster == (2, 1, 1)
    assert [one.dtype for one in found.loads[:2]] == ["bf16", "e4m3"]
    assert "6 stages" in found.facts[0] and "128 x 128 x 64" in found.facts[0]
    made, said = written(tmp_path, STRUCT.replace("NAME", CUTLASS).replace("DIRECTIVES", ".maxntid 384, 1, 1"))
    assert said["cluster"] == said["grid"] == [2, 1, 1] and "the kernel's name" in line_of(made, "cluster")
    assert said["parameter"][0]["at"]["64"]["dtype"] == "bf16" and "a guess" in line_of(made, "swizzle")


def test_names_that_are_not_understood():
    assert parsed("gemm") is None and parsed("_Z") is None and parsed("_ZN7cutlass13device") is None
    assert cutlass("_Z4copyPKfPfi") is None
    assert parsed("_ZN1aIXadL_Z1bvEEE3fooEv") is None  # an expression


USED = """
.visible .entry k(.param .u64 a, .param .u64 count, .param .u64 flag, .param .u64 sum)
{
    .reg .b32 %r<12>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<4>;
    .shared .align 16 .b8 tile[1024];
    ld.param.u64 %rd0, [a];
    ld.param.u64 %rd1, [count];
    ld.param.u64 %rd2, [flag];
    ld.param.u64 %rd3, [sum];
    cp.async.cg.shared.global [tile], [%rd0], 16;
    atom.global.add.u32 %r0, [%rd1], 1;
    ld.acquire.gpu.global.u32 %r1, [%rd2];
    red.global.add.f32 [%rd3], %f0;
    mov.u32 %r11, 250;
    bar.sync 1, %r11;
    mma.sync.aligned.m16n8k16.row.col.f32.TYPE.TYPE.f32 {%f0, %f1, %f2, %f3}, {%r2, %r3, %r4, %r5}, {%r6, %r7},
        {%f0, %f1, %f2, %f3};
    ret;
}
"""


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_what_products_barriers_and_atomics_show_is_guessed_and_said_to_be(tmp_path: Path, dtype: str) -> None:
    made, said = written(tmp_path, USED.replace("TYPE", dtype))
    a, *counters = said["parameter"]
    assert (a["dtype"], a["fill"], said["block"]) == (dtype, "normal", [256, 1, 1])
    assert [one["fill"] for one in counters] == ["zeros"] * 3
    assert [one["dtype"] for one in counters] == ["u32", "u32", "f32"]
    guesses = " ".join(launch_file.guesses(made))
    assert f'a.dtype = "{dtype}"' in guesses and 'count.fill = "zeros"' in guesses and "block = [256" in guesses


def test_fragments_show_what_is_loaded_and_stored(tmp_path: Path) -> None:
    body = PLAIN.replace("{\n", "{\n    .reg .b32 %r<8>;\n    .reg .f32 %c<8>;\n", 1)
    half, full = (", ".join(f"%{kind}{at}" for at in range(8)) for kind in "rc")
    body = body.replace(
        "ld.global.f32 %f0, [%rd4];",
        f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{{half}}}, [%rd4], 16;",
    ).replace(
        "st.global.f32 [%rd1], %f0;",
        f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {{{full}}}, 16;",
    )
    _, said = written(tmp_path, body)
    loaded, stored = said["parameter"][:2]
    assert (loaded["dtype"], loaded["fill"]) == ("f16", "normal")
    assert (stored["dtype"], stored["fill"]) == ("f32", "zeros")


@pytest.mark.parametrize("lines, block", [
    ("mbarrier.init.shared.b64 [bar], 160;", 160),
    ("mbarrier.init.shared.b64 [bar], 1;", 128),
    ("elect.sync %r1|%p1, -1; mbarrier.init.shared.b64 [bar], 8; @%p1 mbarrier.arrive.shared.b64 _, [bar];", 256),
    ("mbarrier.init.shared.b64 [bar], 8; mbarrier.arrive.shared.b64 _, [bar];", 128),
    ("shr.u32 %r1, %r0, 5; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; setp.eq.s32 %p1, %r2, 6;", 224),
    ("setp.lt.u32 %p1, %r0, 256;", 128), ("setp.lt.u32 %p1, %r0, 128; setp.gt.u32 %p1, %r0, 63;", 256),
    ("mbarrier.init.shared.b64 [bar], 1; setp.gt.u32 %p1, %r0, 127;", 256),
    ("mbarrier.init.shared.b64 [bar], 1; setp.lt.u32 %p1, %r0, 256;", 384),
    ("setp.eq.u32 %p1, %r0, 1024;", 128), ("setp.lt.u32 %p1, %r3, 512;", 128),  # too many; not the thread
])  # fmt: skip
def test_the_block_has_the_threads_that_the_text_needs(tmp_path: Path, lines: str, block: int) -> None:
    head = ".reg .pred %p<2>; .reg .b32 %r<4>; .shared .align 8 .b64 bar; mov.u32 %r0, %tid.x;"
    made, said = written(tmp_path, f".visible .entry k() {{ {head} {lines} ret; }}\n")
    assert said["block"] == [block, 1, 1] and "a guess" in line_of(made, "block")


@pytest.mark.parametrize("lines, dtype", [
    ("ld.global.b32 %r0, [%rd0]; mad.wide.s32 %rd1, %r0, 4, %rd0;", "s32"),
    ("ld.global.u32 %r0, [%rd0]; mul.wide.s32 %rd1, %r0, 4;", "u32"),  # the load says it
    ("ld.global.u32 %r0, [%rd0]; add.rn.f16x2 %r1, %r0, %r0;", "f16"),
    ("ld.global.b32 %r0, [%rd0]; mov.b32 %f0, %r0; add.f32 %f1, %f0, %f0;", "f32"),
    ("ld.global.b32 %r0, [%rd0]; mov.b32 {%h0, %h1}, %r0; cvt.f32.bf16 %f0, %h1;", "bf16"),
    ("ld.global.b64 %rd1, [%rd0]; add.f64 %d0, %d0, %rd1;", "f64"),
    ("ld.global.u32 %r4, [%rd0]; mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, "
     "{%r4, %r5, %r6, %r7}, {%r4, %r5}, {%f0, %f1, %f2, %f3};", "bf16"),
    ("cvt.rn.bf16x2.f32 %r0, %f0, %f1; st.global.b32 [%rd0], %r0;", "bf16"),
    ("cvt.rn.f32.s32 %f0, %r0; st.global.b32 [%rd0], %r0;", "s32"),
])  # fmt: skip
def test_the_type_of_unnamed_bits_is_that_of_the_arithmetic_on_them(tmp_path: Path, lines: str, dtype: str) -> None:
    head = ".reg .b32 %r<8>; .reg .b16 %h<2>; .reg .f32 %f<4>; .reg .f64 %d<2>; .reg .b64 %rd<2>;"
    body = f"{head} ld.param.u64 %rd0, [x]; {lines} ret;"
    _, said = written(tmp_path, f".visible .entry k(.param .u64 x) {{ {body} }}\n")
    assert said["parameter"][0]["dtype"] == dtype


CALLS = """
.func (.param .b32 back) inner(.param .b64 from, .param .b32 at)
{
    .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [from];
    ld.param.b32 %r0, [at];
    mul.wide.s32 %rd1, %r0, 4;
    add.s64 %rd2, %rd0, %rd1;
    ld.global.f32 %f0, [%rd2];
    st.param.f32 [back], %f0;
    ret;
}
.func outer(.reg .b64 to, .param .b64 from)
{
    .reg .f32 %f<2>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [from];
    { .param .b64 p0; .param .b32 p1; .param .b32 back;
    st.param.b64 [p0], %rd0;
    st.param.b32 [p1], 3;
    call (back), inner, (p0, p1);
    ld.param.f32 %f0, [back]; }
    st.global.f32 [to], %f0;
    ret;
}
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 n)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    { .param .b64 p0;
    st.param.b64 [p0], %rd0;
    call outer, (%rd1, p0); }
    ret;
}
"""


def test_functions_that_a_kernel_calls_show_what_its_parameters_are(tmp_path: Path) -> None:
    made, said = written(tmp_path, CALLS)
    x, y, n = said["parameter"]
    assert (x["kind"], x["dtype"], x["fill"]) == ("buffer", "f32", "normal")
    assert (y["kind"], y["dtype"], y["fill"], n["kind"]) == ("buffer", "f32", "zeros", "scalar")
    assert 'x.fill = "normal"' in launch_file.guesses(made)  # the numbers matter, and nobody said them
    assert not any(line.startswith("y.fill") for line in launch_file.guesses(made))


@pytest.mark.parametrize("name", ["a/../b", "a b", "..", "k" * 300])
def test_a_name_in_quotes_gets_a_description_beside_the_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(HEAD + f'.visible .entry "{name}"() {{ ret; }}\n.visible .entry other() {{ ret; }}\n')
    (mine, program), (theirs, _) = launch_file.programs(path).items()
    assert mine.parent == theirs.parent == tmp_path and mine != theirs
    mine.write_text(launch_file.template(program, path))
    assert launch_file.read(mine).entry == name
