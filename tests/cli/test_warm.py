"""`warploom warm`: what it says about the GPU and the types."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import run
from tests.errors import refused
from warploom.errors import NoGpuError
from warploom.isa import dtypes
from warploom.operators.spec import gpu
from warploom.operators.warm import Warmed


@pytest.mark.parametrize("there", [True, False])
def test_it_says_whether_the_gpu_is_here(there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def found(index: int) -> gpu.Gpu:
        if there:
            return gpu.EMULATED
        raise NoGpuError("there is none")

    monkeypatch.setattr(gpu, "gpu_of", found)
    monkeypatch.setattr("warploom.operators.warm.warm", lambda *_, **__: Warmed(1, 1, 1, {}, str(tmp_path)))
    said = run("warm", "64x64x64").stdout
    assert gpu.EMULATED.name in said and ("no GPU" in said) is not there


@pytest.mark.parametrize("name", ["q", "d", "e", "?"])
def test_a_letter_of_numpy_is_no_type(name: str) -> None:
    assert f"'{name}'" in run("warm", "64x64x64", "--dtype", name).stderr
    with refused("argument-type", got=repr(name)):
        dtypes.of(name)
