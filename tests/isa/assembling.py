"""Assemble many instructions with ptxas at once: one kernel per target and PTX version; which are refused and why."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.isa import examples


def find_ptxas() -> str | None:
    """The ptxas of the nvidia-cuda-nvcc package, else one on PATH."""
    for package in ("nvidia.cu13", "nvidia.cuda_nvcc"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (found.submodule_search_locations or []) if found else []:
            candidate = Path(folder) / "bin" / "ptxas"
            if candidate.exists():
                return str(candidate)
    return shutil.which("ptxas")


@cache
def newest_ptx() -> tuple[int, int]:
    """The PTX version that ptxas knows at most, as it says of a text for a later one; instructions that are newer
    have no judge but the verifier."""
    ptxas = find_ptxas()
    assert ptxas is not None
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as text:
        text.write(".version 99.0\n.target sm_90\n")
        text.flush()
        done = subprocess.run([ptxas, text.name, "-o", "/dev/null"], capture_output=True, text=True)
    found = re.search(r"current version is '(\d+)\.(\d+)'", done.stderr)
    assert found is not None, done.stderr
    return int(found[1]), int(found[2])


def refused(instructions: list[str], target: str, version: tuple[int, int]) -> dict[int, str]:
    """Index of each instruction that ptxas refuses -> its message.

    ptxas names the line of each error; what it named is taken out and the rest is tried again, since an error of
    syntax hides those of later passes.
    """
    ptxas = find_ptxas()
    assert ptxas is not None
    bad: dict[int, str] = {}
    alive = list(range(len(instructions)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.ptx"
        while alive:
            text, places = examples.kernel_text([instructions[index] for index in alive], target, version)
            path.write_text(text)
            command = [ptxas, f"-arch={target}", "-O1", str(path), "-o", str(Path(folder) / "cubin")]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                break
            named = re.findall(r"line (\d+); (?:error|fatal)\s*:\s*(.*)", done.stderr)
            if not named and "32-Bit" in done.stderr:  # said of the whole text; warnings name the lines
                named = re.findall(r"(?<=on line ')(\d+)' (which .*)", done.stderr)
            new = {alive[places[int(line)]]: message for line, message in named if int(line) in places}
            if not new:
                raise AssertionError(f"ptxas failed and named no instruction:\n{done.stderr}")
            bad.update(new)
            alive = [index for index in alive if index not in new]
    return bad
