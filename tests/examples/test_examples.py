"""Every example runs on both machines, agrees with its float64 reference, and builds without a spill."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from warploom.driver import toolchain

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if "def example(" in path.read_text())


@cache
def module(name: str) -> ModuleType:
    """An example, imported from its file."""
    spec = importlib.util.spec_from_file_location(f"examples.{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def cases(name: str) -> Iterator[tuple]:
    return module(name).example()


def test_the_examples_are_all_there():
    assert {
        "vector_add", "softmax", "transpose", "walkthrough_gemm", "fp8_tile", "tf32_tile", "ampere_tile",
        "cluster_exchange", "multicast",
    } <= set(NAMES)  # fmt: skip


@pytest.mark.parametrize("schedule", ["lazy", "eager", "random"])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_right_in_the_emulator_whatever_completes_first(name, schedule):
    for kernel, arguments, check in cases(name):
        report = kernel.emulate(*arguments, check=True, schedule=schedule, seed=1)
        check(*(np.asarray(output) for output in report.outputs))
        assert report.ok, report.findings


@pytest.mark.parametrize("name", NAMES)
def test_it_is_called_like_a_function(name):
    for kernel, arguments, check in cases(name):
        check(kernel(*arguments))


@pytest.mark.parametrize("name", NAMES)
def test_it_builds_without_a_spill(name):
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    for kernel, _, _ in cases(name):
        used = kernel.resources()
        assert (used.spills, used.stack, used.serialisation_notes) == (0, 0, ())


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_tells_how_to_run_it(name):
    assert f"python examples/{name}.py" in (module(name).__doc__ or "")


@pytest.mark.parametrize("name", NAMES)
def test_its_main_runs(name, capsys):
    module(name).main()
    assert capsys.readouterr().out


# -- the same on a GPU -----------------------------------------------------------------------------------------------

EXACT = {"vector_add", "transpose", "cluster_exchange", "multicast"}
"""Examples whose outputs are the same bits on both machines; the others round differently in places."""


def on_gpu(array: np.ndarray):
    """A CUDA tensor with the array's bytes."""
    import torch

    from warploom.isa import dtypes

    dtype = getattr(torch, dtypes.torch_name(dtypes.of(array.dtype)))
    raw = torch.from_numpy(np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.itemsize).copy())
    return raw.cuda().view(dtype).squeeze(-1)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_it_is_right_on_a_gpu_and_agrees_with_the_emulator(name):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    from warploom.errors import ArgumentError

    for kernel, arguments, check in cases(name):
        try:
            outputs = kernel(*(on_gpu(argument) for argument in arguments))
        except ArgumentError as error:
            if "this GPU is" in str(error):
                pytest.skip(error.what)
            raise
        got = outputs.cpu().numpy()
        check(got)
        emulated = np.asarray(kernel.emulate(*arguments, check=False).outputs[0])
        if name in EXACT:
            np.testing.assert_array_equal(got, emulated)
        else:
            assert np.linalg.norm(got - emulated) <= 1e-3 * np.linalg.norm(emulated)
