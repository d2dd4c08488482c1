"""PTX to cubin: errors name the PTX line and the Python line; slow builds are refused."""

from __future__ import annotations

import pytest

from tests.errors import refused
from warploom.driver import compile as compiler
from warploom.driver import library, toolchain
from warploom.errors import CompilationError, NoGpuError, SourceLocation
from warploom.settings import config

pytestmark = pytest.mark.usefixtures("needs_ptxas", "cache_dir")

SPILLS = (
    ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry many(.param .u64 a)\n.maxnreg 24\n{\n"
    ".reg .b64 %rd<2>;\n.reg .f32 %f<80>;\nld.param.u64 %rd1, [a];\n"
    + "".join(f"ld.volatile.global.f32 %f{i}, [%rd1+{4 * i}];\n" for i in range(80))
    + "".join(f"st.volatile.global.f32 [%rd1+{4 * i}], %f{79 - i};\n" for i in range(80))
    + "ret;\n}\n"
)


def test_a_build_is_an_elf_file_and_knows_its_resources(add_text):
    build = compiler.build(add_text, name="add")
    assert build.cubin[:4] == b"\x7fELF"
    used = build.resources["add"]
    assert used.registers >= 8 and used.static_shared == 1024 and used.barriers == 1 and used.spills == 0
    assert build.compiler == f"ptxas {toolchain.ptxas().version}"


def test_an_error_names_the_ptx_line_and_the_python_line(add_text):
    broken = add_text.replace("ld.global.f32 %f1", "ld.global.f32 %f77")
    line = next(number for number, text in enumerate(broken.splitlines(), 1) if "%f77" in text)
    with pytest.raises(CompilationError) as caught:
        compiler.build(broken, name="add")
    error = caught.value
    assert error.where == SourceLocation("kernels/add.py", 12, 4)
    assert error.got == f"PTX line {line}: ld.global.f32 %f77, [%rd1];"
    assert error.code == "compilation" and "%f77" in str(error)


def test_an_error_in_front_of_every_loc_names_the_ptx_line(add_text):
    broken = add_text.replace(".reg .f32 %f<4>", ".reg .f99 %f<4>")
    with pytest.raises(CompilationError) as caught:
        compiler.build(broken)
    assert caught.value.where.file == "the PTX text"


def test_a_text_that_is_cut_in_half_is_refused(add_text):
    with pytest.raises(CompilationError):
        compiler.build(add_text[: len(add_text) // 2])


@pytest.mark.parametrize("text", ["", "this is not PTX"])
def test_a_text_without_a_target_is_refused(text):
    with refused("compilation", expected="a line `.target sm_90a`"):
        compiler.build(text)


def test_an_unknown_target_is_refused_with_the_known_ones(add_text):
    with refused("argument", got="sm_42") as caught:
        compiler.build(add_text, arch="sm_42")
    assert "sm_90a" in str(caught.value)


def test_an_instruction_that_the_target_lacks_is_refused(add_text):
    text = add_text.replace("bar.sync 0;", "wgmma.fence.sync.aligned;").replace("sm_90a", "sm_90")
    with refused("compilation", got="PTX line 14: wgmma.fence.sync.aligned;"):
        compiler.build(text)


def test_spills_are_refused_unless_the_kernel_allows_them():
    with refused("spills") as caught:
        compiler.build(SPILLS, name="many")
    assert "allow_spills" in caught.value.hint
    assert compiler.build(SPILLS, name="many", allow_spills=True).resources["many"].spills > 0


def test_serialised_wgmmas_are_refused_unless_the_kernel_allows_them(monkeypatch, add_text):
    note = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async is serialized in function 'add'"
    real = compiler._by_ptxas

    def noted(*arguments):
        cubin, log = real(*arguments)
        return cubin, log + "\n" + note

    monkeypatch.setattr(compiler, "_by_ptxas", noted)
    with refused("serialised-mma") as caught:
        compiler.build(add_text, name="add")
    assert "C7510" in str(caught.value)
    assert compiler.build(add_text, allow_spills=True).resources["add"].serialisation_notes


def test_a_failing_ptxas_shows_its_message(tmp_path, add_text):
    failing = tmp_path / "ptxas"
    failing.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo "release 1.0, V1.0.0"; else echo no-licence >&2; exit 3; fi\n'
    )
    failing.chmod(0o755)
    with config.override(ptxas=failing), refused("compilation", got="no-licence"):
        compiler.build(add_text, name="add")


def test_without_ptxas_and_without_a_driver_one_error_says_what_to_install(monkeypatch, add_text):
    def nothing():
        raise NoGpuError("no libcuda here")

    monkeypatch.setattr(toolchain, "_places", lambda name: iter(()))
    monkeypatch.setattr(library, "load", nothing)
    with refused("toolchain", got="no libcuda here") as caught:
        compiler.build(add_text)
    assert "nvidia-cuda-nvcc" in str(caught.value)


def test_texts_and_cubins_are_kept_where_the_settings_say(tmp_path, add_text):
    with config.override(dump_dir=tmp_path / "dump", keep=("ptx", "cubin")):
        build = compiler.build(add_text, name="add")
    kept = {path.suffix: path for path in (tmp_path / "dump").iterdir()}
    assert kept[".ptx"].read_text() == add_text
    assert kept[".cubin"].read_bytes() == build.cubin


def test_a_cubin_carries_the_python_lines_for_profilers(add_text):
    with config.override(line_info=True):
        cubin = compiler.build(add_text).cubin
    assert b"debug_line" in cubin and b"add.py" in cubin


def test_sass_shows_the_instructions(add_text):
    from warploom.driver import disassemble, toolchain

    if toolchain.find("nvdisasm") is None:
        pytest.skip("no nvdisasm on this machine")
    assert "FADD" in disassemble.sass(compiler.build(add_text).cubin, "add")
