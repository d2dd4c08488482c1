"""The table of verdicts over a folder of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.outside import texts
from tests.outside.table import written

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<3>;
  .shared .align 4 .b8 tile[4];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  STORE
  st.global.u32 [%rd1], 7;
  ret;
}
"""
LAUNCH = """
grid = [1]
block = [64]
[[parameter]]
kind = "buffer"
as = "out"
dtype = "u32"
shape = [1]
[[expect]]
name = "out"
value = "out + EXPECTED"
"""


@pytest.mark.parametrize(
    ("store", "expected", "says"),
    [
        ("", 7, "no errors"),
        ("", 8, "`wrong-result` under 2"),
        ("st.shared.u32 [tile], %r1;", 7, "`data-race` under 2"),
        ("trap;", 7, "stopped"),
        ("st.shared.u32 [tile], %r9;", 7, "stopped"),
    ],
)
def test_each_text_has_a_verdict(tmp_path: Path, store: str, expected: int, says: str) -> None:
    (tmp_path / "one.ptx").write_text(TEXT.replace("STORE", store))
    description = tmp_path / "one.launch.toml"
    description.write_text(LAUNCH.replace("EXPECTED", str(expected)))
    verdict = texts.judged(description, texts.schedules_of("lazy,starve:2"))
    assert says in verdict.says or says == "stopped" and not verdict.good
    assert verdict.compared and verdict.good is (says == "no errors")


def test_the_table_goes_behind_its_marker(tmp_path: Path) -> None:
    verdicts = [texts.Verdict("one", True, (("lazy", 0),), "no errors"), texts.Verdict("two", False, (), "`a|b`")]
    page = written("# Page\n\n<!-- outside texts -->\n\nold\n", "texts", texts.table(verdicts))
    assert "2 texts: 1 without an error." in page and "old" not in page and r"`a\|b`" in page
