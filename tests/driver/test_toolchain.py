"""Finding ptxas: an explicit choice wins, and a missing one is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.errors import refused
from warploom.driver import disassemble, toolchain
from warploom.settings import config


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_places", lambda name: iter(()))


def test_the_package_s_ptxas_is_found_with_its_version(needs_ptxas):
    tool = toolchain.ptxas()
    assert tool.path.is_file()
    assert tool.version.count(".") == 2
    assert tool.origin in str(tool)


def test_the_ptxas_of_the_settings_wins(tmp_path):
    own = script(tmp_path / "ptxas", 'echo "Cuda compilation tools, release 99.1, V99.1.7"\n')
    with config.override(ptxas=own):
        tool = toolchain.ptxas()
    assert (tool.version, tool.origin, tool.path) == ("99.1.7", "config.ptxas", own)


def test_a_ptxas_of_the_settings_that_is_not_there_is_an_error_and_not_replaced(tmp_path):
    with config.override(ptxas=tmp_path / "nowhere"), refused("toolchain", got=str(tmp_path / "nowhere")):
        toolchain.ptxas()


def test_a_ptxas_that_fails_shows_its_own_words(tmp_path):
    broken = script(tmp_path / "ptxas", "echo 'libfoo.so.3 is missing' >&2; exit 127\n")
    with config.override(ptxas=broken), refused("toolchain", got="libfoo.so.3 is missing"):
        toolchain.ptxas().run()


def test_a_replaced_ptxas_is_asked_for_its_version_again(tmp_path):
    own = tmp_path / "ptxas"
    with config.override(ptxas=own):
        script(own, 'echo "release 1.0, V1.0.1"\n')
        assert toolchain.ptxas().version == "1.0.1"
        script(own, 'echo "release 2.0, V2.0.15"\n')
        assert toolchain.ptxas().version == "2.0.15"


def test_no_tool_at_all_is_no_error(nothing_installed):
    assert toolchain.ptxas() is None


def test_sass_without_a_disassembler_says_what_to_install(nothing_installed):
    with refused("toolchain"):
        disassemble.sass(b"")


def test_only_the_section_of_the_entry_is_shown():
    other = "//--- .text.add2 ---\n\t.section\t.text.add2,\n NOP2 ;\n"
    text = other + "//--- .text.add ---\n\t.section\t.text.add,\n NOP ;\n"
    assert disassemble.section(text, "add").endswith(" NOP ;\n")
    assert "NOP2" not in disassemble.section(text, "add")


def test_a_section_goes_on_behind_its_sectioninfo():
    text = '//--- .text.add ---\n\t.section\t.text.add,\n\t.sectioninfo\t@"SHI_REGISTERS=8"\n NOP ;\n'
    assert "NOP" in disassemble.section(text, "add")
