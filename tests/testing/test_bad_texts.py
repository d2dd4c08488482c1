"""Bad input to `check` and `emulate` for PTX texts: each gives a message with values, no traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import command_line
from tests.command_line import Result
from tests.errors import refused
from tests.testing.texts import COPY, LAUNCH, good, write
from warploom import emulate

FENCE = "wgmma.fence.sync.aligned;\n    ret;"
BLACKWELL = COPY.replace("sm_90a", "sm_100a")
TWO = COPY + COPY[COPY.index(".visible") :].replace("copy", "other")


def floats(count: int = 60) -> np.ndarray:
    return np.zeros(count, np.float32)


def shifted() -> np.ndarray:
    """Floats that begin one byte past a multiple of four."""
    raw = np.zeros(260, np.uint8)
    start = 1 + -raw.ctypes.data % 4
    return raw[start : start + 240].view(np.float32)


def run(text: str, *arguments: Any, **launch: Any) -> Any:
    given = arguments or (floats(), floats(), np.uint32(60))
    return emulate(text, *given, **{"grid": (1, 1, 1), "block": (64, 1, 1), **launch})


def test_the_text_runs_where_nothing_is_wrong() -> None:
    assert run(COPY).ok


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COPY.replace("sm_90a", "sm_999"), ("argument", "sm_999")),
        (BLACKWELL.replace("8.7", "8.0"), ("target-lacks-it", ".version 8.0")),
        (COPY.replace("sm_90a", "sm_80").replace("ret;", FENCE), ("target-lacks-it", "wgmma.fence.sync.aligned")),
        (BLACKWELL.replace("ret;", FENCE), ("target-lacks-it", "wgmma.fence.sync.aligned")),
        (COPY[: COPY.index(".visible")], ("not-this-text",)),
        (TWO, ("not-this-text", None, "entry= one of copy, other")),
        ("", ("not-this-text",)),
    ],
)  # fmt: skip
def test_a_text_for_another_target_or_without_one_kernel(text: str, said: tuple[str, ...]) -> None:
    with refused(*said):
        run(text)


def test_an_entry_that_is_not_there_names_those_that_are() -> None:
    with refused("not-this-text"):
        run(TWO, entry="third")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((floats(), floats()), ("wrong-arguments", "2 arguments")),
        ((floats(), floats(), np.uint32(1), np.uint32(1)), ("wrong-arguments", "4 arguments")),
        ((floats(), np.uint32(3), np.uint32(60)), ("wrong-type", "uint32")),
        ((floats(), floats(), floats()), ("wrong-type", "numpy array of f32, shape (60,), on the CPU")),
        ((floats(), floats(), np.uint64(1 << 40)), ("wrong-type", "1099511627776")),
        ((floats(), [1.0] * 60, np.uint32(60)), ("wrong-type", "list")),
        ((shifted(), floats(), np.uint32(60)), ("wrong-layout", "1 byte past one")),
        ((floats(0), floats(), np.uint32(60)), ("wrong-shape", "shape (0,)")),
        ((floats(10), floats(), np.uint32(60)), ("out-of-bounds",)),
    ],
)
def test_arguments_that_do_not_fit_the_parameters(arguments: tuple[Any, ...], said: tuple[str, ...]) -> None:
    with refused(*said):
        run(COPY, *arguments)


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ({"grid": (0, 1, 1)}, "grid is not one to three sizes of at least 1"),
        ({"grid": (1, 65536, 1)}, "the grid is too large"),
        ({"grid": (1 << 31, 1, 1)}, "the grid is too large"),
        ({"block": (1025, 1, 1)}, "a block of 1025 threads is too large"),
        ({"block": (1, 1, 65)}, "a block of 65 threads is too large"),
        ({"block": (-64, 1, 1)}, "block is not one to three sizes"),
        ({"cluster": (2, 1, 1), "grid": (3, 1, 1)}, "not a whole number of clusters"),
        ({"cluster": (17, 1, 1), "grid": (17, 1, 1)}, "a cluster of 17 CTAs is too large"),
        ({"dynamic_smem": 300_000}, "300000 bytes of dynamic shared memory"),
    ],
)
def test_a_launch_that_no_gpu_takes(launch: dict[str, Any], said: str) -> None:
    with refused("launch-shape"):
        run(COPY, **launch)


# -- files -------------------------------------------------------------------------------------------------------


def check(path: Path, *options: str) -> Result:
    return command_line.run("check", path, *options)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(64), "it is an ELF object (a cubin)"),
        (bytes(range(256)), "it is not UTF-8"),
        (good().encode().replace(b"tile", b"ti\0le"), "it has zero bytes"),
        (good().encode() + b"\n" * (50 << 20), "the file is too large to be parsed"),
    ],
    ids=["a cubin", "any bytes", "zero bytes", "50 MB"],
)
def test_a_file_that_is_no_text(tmp_path: Path, raw: bytes, said: str) -> None:
    path = write(tmp_path, "odd", "")
    path.write_bytes(raw)
    result = check(path)
    assert result.exit_code == 2 and said in result.stderr
    assert said in check(tmp_path).stdout  # in a folder it is a finding, and the others go on


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("grid = [1]", "grid = [1, 70000]", "the grid is too large"),
        ("block = [128]", "block = [2048]", "too large"),
        ("block = [128]", "block = [128]\ncluster = [32]", "cluster"),
        ("block = [128]", 'block = [128]\nentry = "nothing"', "no kernel `nothing`"),
        ('[[parameter]]\nname = "data"\ndtype = "u32"\nshape = [2048]', "", "the number of parameters in the launch"),
        ("shape = [2048]", "shape = [0]", "is empty"),
    ],
)
def test_a_launch_description_that_does_not_fit(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in LAUNCH
    result = check(write(tmp_path, "text", good(), LAUNCH.replace(old, new)))
    assert result.exit_code == 2 and said in result.stderr


def test_a_buffer_that_is_too_small_names_itself_and_the_access(tmp_path: Path) -> None:
    result = check(write(tmp_path, "text", good(), LAUNCH.replace("2048", "64")))
    assert result.exit_code == 1
    assert "byte 0 of data, which has 256" in result.stdout and "error[OutOfBoundsError]" in result.stdout
