"""The driver's call without ctypes (enqueue.c)."""

from __future__ import annotations

import ctypes
import gc
import shutil
import sysconfig
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from warploom.driver import cache, enqueue
from warploom.settings import config

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)


@pytest.fixture(scope="module")
def made() -> Any:
    """The compiled type; only a machine without a C compiler or without Python's headers may lack it."""
    found = enqueue.compiled()
    if isinstance(found, enqueue.NotCompiledError):
        assert shutil.which("cc") is None or not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file(), found
        pytest.skip(str(found))
    return found


@pytest.fixture
def seen() -> Iterator[tuple[list[Any], Any]]:
    """The arguments of each call of a function in C, and that function; it returns 7."""
    calls: list[Any] = []
    yield calls, FUNCTION(lambda *arguments: calls.append(arguments) or 7)


def address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def test_it_passes_its_addresses_and_returns_the_status(made, seen):
    calls, function = seen
    enqueue = made(address(function), 0x10, 0xFFFF_FFFF_0000_0020, 0x30, None)
    assert enqueue() == 7 and enqueue() == 7
    assert calls == [(0x10, 0xFFFF_FFFF_0000_0020, 0x30, None)] * 2


def test_it_keeps_the_memory_of_its_addresses_alive_and_no_longer(made, seen):
    class Memory:
        pass

    memory = Memory()
    alive = weakref.ref(memory)
    enqueue = made(address(seen[1]), 0, 0, 0, memory)
    del memory
    gc.collect()
    assert alive() is not None
    del enqueue
    assert alive() is None


@pytest.mark.parametrize("arguments", [(), (1, 2, 3, 4), (0, 1, 1, 1, None), ("1", 1, 1, 1, None)])
def test_wrong_arguments_are_refused(made, arguments):
    with pytest.raises((TypeError, ValueError)):
        made(*arguments)


@pytest.mark.usefixtures("needs_ptxas", "made")
@pytest.mark.parametrize("how", ["compiled", "ctypes"])
def test_both_ways_give_the_driver_the_same_launch(pretend, how):
    log = pretend(f"""
from warploom.driver import enqueue, launch as of_driver
if {how!r} == "ctypes":
    of_driver.compiled = lambda: enqueue.NotCompiledError("not wanted")
for number in range(3):
    launch(ADD, x, y, np.uint32(number), grid=(2, 3), block=32, stream=0x30)
with open(__import__("os").environ["FAKE_CUDA_LOG"], "a") as log: log.write(f"address {{x.array.ctypes.data:x}}\\n")
""")
    at = log[-1].removeprefix("address ")
    launches = [line for line in log if line.startswith("launch")]
    assert launches == [f"launch grid 2 3 1 block 32 1 1 smem 0 stream 30 first {at}"] * 3


def test_without_a_compiler_it_says_so_and_the_next_process_reads_it_from_the_cache(tmp_path, monkeypatch):
    cache.builds().clear()
    with config.override(cache_dir=tmp_path / "cache"):
        monkeypatch.setattr(enqueue.shutil, "which", lambda name: None)
        missing = enqueue.compiled._make()
        monkeypatch.undo()
        first = enqueue.compiled._make()
        cache.builds().clear()
        monkeypatch.setattr(enqueue, "_build", lambda: pytest.fail("it is in the cache"))
        second = enqueue.compiled._make()
    assert "no C compiler" in str(missing)
    assert callable(first) and callable(second) and first is not second
