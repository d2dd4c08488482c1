"""No line of a report is too wide to read, and no word is lost."""

from __future__ import annotations

from warploom.emulator.machine.finding import Finding, Side
from warploom.errors import SourceLocation
from warploom.sanitizer.report.rendering import WIDTH, Sources, as_text, render


def test_words_go_on_in_the_next_line_and_code_is_cut() -> None:
    code = "wgmma " + ", ".join(f"%f{i}" for i in range(128))
    side = Side("warp 4", "reads _ZN3lib4smemE+16", code, SourceLocation("k.ptx", 1))
    words = " ".join(f"word{i}" for i in range(90))
    finding = Finding("data-race", "m", summary="s", sides=(side,), missing=words, fix="f" * 450)
    text = as_text(render(finding, Sources(texts={"k.ptx": code})))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert all(f"word{i}" in text for i in range(90)) and text.count("f" * 40) >= 3
    assert "reads lib::smem+16" in text and "_ZN" not in text


def test_a_name_too_long_for_a_file_is_no_file():
    """The kernels of a text go by their names, and mangled ones are longer than a file's may be."""
    from warploom.errors import SourceLocation
    from warploom.sanitizer.report.rendering import Sources

    assert Sources().line(SourceLocation("_Z4gemm" + "I" * 300, 3)) == ""
