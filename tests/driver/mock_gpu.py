"""A mock GPU for all tests: a mock libcuda, and processes that run scripts with it.

`tests/conftest.py` registers this file as a plugin, so that a test process has each fixture once: the mock driver is
compiled once, and the servers are shared by all files. It loads nothing of the package before a test asks for it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
IMPORTED = "torch", "warploom.operators.calls"
"""What most scripts with tensors import; the same for all, so that one server has them."""

ADD = """
.version 8.0
.target sm_90a
.address_size 64
.file 1 "kernels/add.py"
.visible .entry add(.param .u64 a, .param .u64 c, .param .u32 n)
{
    .reg .b64 %rd<8>;
    .reg .f32 %f<4>;
    .reg .b32 %r<8>;
    .shared .align 4 .b8 buffer[1024];
    .loc 1 10 0
    mov.u32 %r1, %tid.x;
    bar.sync 0;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd3, [c];
    .loc 1 11 4
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    add.s64 %rd3, %rd3, %rd2;
    .loc 1 12 4
    ld.global.f32 %f1, [%rd1];
    add.f32 %f1, %f1, 0f3F800000;
    st.global.f32 [%rd3], %f1;
    ret;
}
"""


@pytest.fixture(scope="session")
def needs_ptxas() -> None:
    from warploom.driver import toolchain

    if toolchain.ptxas() is None:
        pytest.skip("no ptxas on this machine")


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a mock libcuda.so.1 (fake_cuda.c)."""
    pytest.importorskip("cuda.bindings.driver")
    from warploom.driver import toolchain

    compiler = shutil.which("gcc") or shutil.which("cc")
    headers = [root / "cu13" / "include" for root in toolchain._package_roots()] + [Path("/usr/local/cuda/include")]
    found = [folder for folder in headers if (folder / "cuda.h").is_file()]
    if compiler is None or not found or sys.platform != "linux":
        pytest.skip("building the pretended driver needs a C compiler and cuda.h")
    folder = tmp_path_factory.mktemp("fake_cuda")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", f"-I{found[0]}", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1",
         HERE / "fake_cuda.c", "-ldl"], check=True,
    )  # fmt: skip
    return folder


PRELUDE = f"""
import sys, threading, numpy as np, pytest, warnings
from warploom import errors, settings
from warploom.runtime import *
from warploom.driver import library
from tests.errors import refused
ADD = {ADD!r}

class Cuda:
    "Host memory that says it is a GPU's."
    def __init__(self, array, stream=None):
        self.array = array
        self.__cuda_array_interface__ = dict(data=(array.ctypes.data, False), shape=array.shape, strides=array.strides,
                                             typestr=array.dtype.str, version=3, stream=stream)

x, y = Cuda(np.zeros(32, np.float32)), Cuda(np.zeros(32, np.float32))
"""


@pytest.fixture(scope="session")
def fork_servers(fake_driver: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Processes that have imported some modules and fork for each script: starting from nothing takes seconds."""
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(fake_driver), "PYTHONPATH": f"{SOURCE}{os.pathsep}{SOURCE.parent}",
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),  # none survives a fork
    }  # fmt: skip

    @functools.cache
    def server(*modules: str) -> subprocess.Popen[str]:
        command = [sys.executable, HERE / "fork_server.py", *modules]
        started = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        servers.append(started)
        return started

    servers: list[subprocess.Popen[str]] = []
    yield server
    for each in servers:
        each.communicate()  # it ends with its input


@pytest.fixture
def pretend(
    fork_servers: Callable[..., subprocess.Popen[str]], fake_driver: Path, tmp_path: Path
) -> Callable[..., list[str]]:
    """Run a script in a process with a mock driver; gives back what the driver was asked to do.

    imported: modules that the script imports and that take long.
    """

    def run(script: str, *, imported: tuple[str, ...] = (), **variables: object) -> list[str]:
        log, said = tmp_path / "log", tmp_path / "said"
        log.write_text("")
        environment = pretended(fake_driver, tmp_path, **variables)
        server = fork_servers(
            "pytest", "tests.errors", "warploom.runtime", "warploom.driver.library", "tests.driver.compiled", *imported
        )
        job = {"script": PRELUDE + script, "environment": environment, "said": str(said)}
        print(json.dumps(job), file=server.stdin, flush=True)
        status = server.stdout.readline().strip()
        assert status == "0", said.read_text()
        return log.read_text().splitlines()

    return run


def pretended(driver: Path, folder: Path, *, path: tuple[Path, ...] = (), **variables: object) -> dict[str, str]:
    """The environment of a process with a mock driver. folder: for its log and its cache."""
    return {
        **os.environ, "LD_LIBRARY_PATH": str(driver), "FAKE_CUDA_LOG": str(folder / "log"),
        "PYTHONPATH": os.pathsep.join(map(str, (*path, SOURCE, SOURCE.parent))),
        "WARPLOOM_CACHE_DIR": str(folder / "cache"), **{name: str(value) for name, value in variables.items()},
    }  # fmt: skip
