"""The tour of a call in CONTRIBUTING.md is the path that a call takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("needs_ptxas")
MOST_STOPS = 22


def stops() -> list[str]:
    """The stops that the page lists."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text().partition("<!-- tour -->")[2]
    return re.findall(r"^\| \d+ \| `([^`]+)` \|", text.partition("\n## ")[0], re.MULTILINE)


def test_a_cold_call_passes_the_stops_of_the_tour_in_their_order(on_gpu, tmp_path):
    listed = stops()
    assert 15 <= len(listed) <= MOST_STOPS
    on_gpu(f"""
import json
a, b, out = bf16(512, 256), bf16(384, 256), bf16(512, 384)
visited = []
def follow(frame, event, argument):
    path = frame.f_code.co_filename.rpartition("src/warploom/")[2]
    if event == "call" and path:
        visited.append(path + ":" + frame.f_code.co_qualname)
sys.setprofile(follow)
warploom.matmul(a, b.T, out=out)
sys.setprofile(None)
json.dump(visited, open({str(tmp_path / "visited.json")!r}, "w"))
""")
    visited = json.loads((tmp_path / "visited.json").read_text())
    first = [visited.index(stop) if stop in visited else -1 for stop in listed]
    assert -1 not in first, [stop for stop, at in zip(listed, first, strict=True) if at < 0]
    assert first == sorted(first), listed
