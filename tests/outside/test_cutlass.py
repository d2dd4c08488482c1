"""The harness for CUTLASS's kernels without CUTLASS and compiler: a launch written down by hand becomes a description
that gives the kernel its arrays, and what is missing is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.outside.cutlass import __main__ as harness
from tests.outside.cutlass.configurations import CONFIGURATIONS, Expected, Tutorial
from tests.outside.cutlass.launch_description import FIRST_ADDRESS, MAP_BYTES, MAP_FILLER, described
from warploom.runtime import launch_file
from warploom.runtime.struct import Struct

SIZE = MAP_BYTES + 32
TEXT = f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry take(.param .align 64 .b8 p[{SIZE}]) {{ ret; }}
"""


def address(buffer: int, offset: int = 0) -> bytes:
    return (FIRST_ADDRESS + (buffer << 32) + offset).to_bytes(8, "little")


def buffer(name: str, dtype: str, shape: list[int], fill: str = "zeros", held: bytes = b"") -> dict[str, object]:
    return {"name": name, "dtype": dtype, "shape": shape, "fill": fill, "bytes": held.hex()}


def launch() -> dict[str, object]:
    """A map of A, 7 as a number, a pointer into the workspace before one to it, and one to pointers to C and A."""
    pretended = bytes(4) + bytes([MAP_FILLER]) * (MAP_BYTES - 4)
    data = pretended + (7).to_bytes(8, "little") + address(1, 16) + address(1) + address(2)
    return {
        "grid": [2, 1, 1], "block": [128, 1, 1], "cluster": [2, 1, 1], "dynamic_smem": 1024, "parameters": [data.hex()],
        "maps": [{"dtype": 9, "address": FIRST_ADDRESS, "sizes": [64, 8], "strides": [128], "box": [64, 8],
                  "element_strides": [1, 1], "swizzle": 3}],
        "buffers": [
            buffer("A", "bf16", [8, 64], "ones"), buffer("workspace", "u8", [64]),
            buffer("pointers", "u8", [16], "", address(3) + address(0)), buffer("C", "f32", [4], "nan"),
        ],
    }  # fmt: skip


def test_a_launch_that_was_written_down_gives_the_kernel_its_arrays(tmp_path: Path) -> None:
    text = tmp_path / "take.ptx"
    text.write_text(TEXT)
    launch_file.beside(text).write_text(described(launch(), [Expected("C", "C + 1", 0.5)]))
    read = launch_file.read(launch_file.beside(text))
    assert (read.grid, read.block, read.cluster, read.dynamic_smem) == ((2, 1, 1), (128, 1, 1), (2, 1, 1), 1024)
    assert read.expect == ({"name": "C", "value": "C + 1", "rtol": 0.5, "atol": 0.5},)
    (made,), arrays = read.made(read.program(TEXT))
    assert isinstance(made, Struct) and made.size == SIZE
    assert sorted(made.at) == [0, MAP_BYTES + 8, MAP_BYTES + 16, MAP_BYTES + 24]
    assert arrays["A"].shape == (8, 64) and (arrays["A"] == 1).all() and np.isnan(arrays["C"]).all()
    whole, part = made.at[MAP_BYTES + 16], made.at[MAP_BYTES + 8]
    part[0] = 5
    assert whole.shape == (64,) and part.shape == (48,) and whole[16] == 5


def test_a_map_that_begins_nowhere_is_refused() -> None:
    wrong = launch()
    wrong["maps"] = [{**wrong["maps"][0], "address": 4096}]  # type: ignore[index]
    with pytest.raises(ValueError, match="0x1000, which is in no buffer"):
        described(wrong)


def test_every_configuration_has_a_name_of_its_own_and_says_its_tile() -> None:
    assert len({one.name for one in CONFIGURATIONS}) == len(CONFIGURATIONS)
    for one in CONFIGURATIONS:
        if not isinstance(one, Tutorial):
            assert f"using TileShape = Shape<_{one.tile[0]}, _{one.tile[1]}, _{one.tile[2]}>;" in one.header()
        assert one.expected and (harness.HERE / one.source).is_file()


def test_a_missing_checkout_or_compiler_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harness.main([str(tmp_path)])
    assert "no checkout of github.com/NVIDIA/cutlass" in capsys.readouterr().out
    (tmp_path / "cutlass" / "include" / "cutlass").mkdir(parents=True)
    harness.main([str(tmp_path), "--nvcc", str(tmp_path / "nvcc")])
    assert "there is no compiler" in capsys.readouterr().out
