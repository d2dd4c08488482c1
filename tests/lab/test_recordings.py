"""A kept recording is found again for the same text and arguments only."""

import ast

import numpy as np
import pytest

from benchmarks.recordings import RECORDING, Recordings
from warploom.lang import Tile, kernel, ptx
from warploom.operators.kernel_cache import ROOT
from warploom.types import f32


def adding(value):
    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=(4,), block=32, arch="sm_90a", name="adding")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        ptx.store(ptx.addr(y), ptx.load(f32, ptx.addr(x)) + value)

    return program


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize(
    "other",
    [
        lambda record: record(adding(2.0), np.zeros(128, np.float32), registers=16),
        lambda record: record(adding(1.0), np.zeros(256, np.float32), registers=16),
        lambda record: record(adding(1.0), np.ones(128, np.float32), registers=16),
        lambda record: record(adding(1.0), np.zeros(128, np.float32), registers=32),
        lambda record: record(adding(1.0), np.zeros(128, np.float32), registers=16, clusters=2),
    ],
    ids=["text", "shape", "values", "registers", "clusters"],
)
def test_a_recording_is_found_again_unless_what_it_depends_on_differs(other, tmp_path):
    kept = Recordings(tmp_path)
    first, launch = kept.record(adding(1.0), np.zeros(128, np.float32), registers=16)
    one = files(tmp_path)
    again, same = kept.record(adding(1.0), np.zeros(128, np.float32), registers=16)
    assert (files(tmp_path), same, again.steps.keys()) == (one, launch, first.steps.keys())
    assert kept.texts[0] == kept.texts[1]
    other(kept.record)
    assert len(files(tmp_path)) == len(one) + 1 == 2


def test_a_recording_depends_on_all_that_its_parts_of_the_clock_import():
    """Else a kept recording would be found after a change of what made it."""
    parts = {name for name in RECORDING if name.startswith("timing/")}
    for part in parts:
        for node in ast.walk(ast.parse((ROOT / part).read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                names = [node.module] if node.module else [one.name for one in node.names]
                assert {f"timing/{name}.py" for name in names} <= parts, part
