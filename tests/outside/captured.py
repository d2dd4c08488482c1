"""Programs in CUDA C++ on a mock CUDA runtime: launches go to the emulator, and the program judges the results.

    python -m tests.outside.captured PROGRAM --ptx FILE.ptx … [--only KERNEL] [--sms 4] [--keep FOLDER] [-- ARGUMENT …]

Build the program with `nvcc -cudart shared -gencode arch=compute_90a,code=compute_90a --keep …` (or 100a), which leaves
its PTX texts next to it, and link cuTensorMapEncodeTiled, if it is called by name, to `--runtime`'s file with -lcuda.
The program finds a GPU of the texts' target. Launches of kernels whose mangled names match `--only` run with all checks
under five schedules and go on with the memory of the first, each kernel up to `--most` times; the others run once
without. The report is a line for each schedule and what the program printed at last. `--runtime FOLDER` only builds the
runtime there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.foreign.compile_cuda import find_nvcc
from tests.outside.captured_launch import FIVE

SOURCE = Path(__file__).with_name("pretended_runtime.cpp")
ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("libcudart.so.13", "libcudart.so", "libcuda.so.1", "libcuda.so")
TEXTS = "texts"
"""The file in a folder of launches with the paths of the PTX texts."""
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


@dataclass(frozen=True)
class Captured:
    """What became of a program: its exit status, its output, a row for each launch and schedule."""

    status: int
    output: str
    rows: tuple[dict[str, Any], ...]

    def of(self, what: str) -> set[str]:
        """All `errors`, or all `warnings`, of the launches that were checked."""
        return {rule for row in self.rows for rule in row[what]}

    @property
    def steady(self) -> bool:
        """True if every schedule ran to the end and left the same memory."""
        return all(row["same"] and not row["stopped"] for row in self.rows)


def build(folder: Path) -> Path:
    """The runtime as shared libraries in a folder. Raises subprocess.CalledProcessError."""
    found = find_nvcc()
    compiler = shutil.which("g++")
    if found is None or compiler is None:
        raise FileNotFoundError("the pretended runtime is built by g++ with nvcc's headers")
    nvcc, include = found
    headers = include or [nvcc.resolve().parents[1] / "include", Path("/usr/local/cuda/include")]
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / LIBRARIES[0]
    subprocess.run(
        [compiler, "-std=c++17", "-O1", "-fPIC", "-shared", *(f"-I{path}" for path in headers), SOURCE, "-o", library,
         f"-Wl,-soname,{LIBRARIES[0]}"], check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in LIBRARIES[1:]:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(library.name)
    return folder


def compiled(
    source: Path, target: str, runtime: Path, folder: Path, include: Sequence[Path] = (), options: Sequence[str] = ()
) -> tuple[Path, Path]:
    """A program that nvcc builds for a target, "90a" or "100a", on the runtime of `build`, and the PTX text of it.

    Raises subprocess.CalledProcessError with nvcc's messages.
    """
    found = find_nvcc()
    if found is None:
        raise FileNotFoundError("nvcc is not here")
    nvcc, headers = found
    program = folder / "program"
    subprocess.run(
        [nvcc, "-std=c++17", "-gencode", f"arch=compute_{target},code=compute_{target}", "-cudart", "shared", *options,
         "--keep", "--keep-dir", folder, *(f"-I{path}" for path in (*headers, *include)), source, "-o", program,
         f"-L{runtime}", "-lcuda"], check=True, capture_output=True, text=True,
    )  # fmt: skip
    return program, folder / f"{source.stem}.ptx"


def signatures(text: str) -> str:
    """Of each kernel of a text a line: its name and the bytes of each of its parameters."""
    lines = []
    for kernel in re.finditer(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)", text):
        sizes = []
        for parameter in re.findall(r"\.param\b[^,]*", kernel[2]):
            bits = re.search(r"\.[busf](8|16|32|64)\b", parameter)
            count = re.search(r"\[(\d+)\]\s*$", parameter.strip())
            assert bits is not None, parameter
            sizes.append(str(_BYTES[bits[1]] * (int(count[1]) if count else 1)))
        lines.append(" ".join([kernel[1], *sizes]) + "\n")
    return "".join(lines)


def capability(texts: Sequence[str]) -> str:
    """Of the GPU that the texts are for: "100" for sm_100a, of the latest target."""
    return str(max(int(target) for text in texts for target in re.findall(r"(?m)^\.target sm_(\d+)", text)))


def run(
    program: Path, texts: Sequence[Path], arguments: Sequence[str] = (), *, runtime: Path, folder: Path, only: str = "",
    sms: int = 4, schedules: str = FIVE, most: int = 1_000_000,
) -> Captured:  # fmt: skip
    """Run a program on the runtime that `build` has made; `folder` gets its launches."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "signatures").write_text("".join(signatures(text.read_text()) for text in texts))
    (folder / TEXTS).write_text("".join(f"{text.resolve()}\n" for text in texts))
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(runtime), "CAPTURED_FOLDER": str(folder), "CAPTURED_SMS": str(sms),
        "CAPTURED_SIGNATURES": str(folder / "signatures"), "CAPTURED_SCHEDULES": schedules, "CAPTURED_ONLY": only,
        "CAPTURED_MOST": str(most),
        "CAPTURED_CAPABILITY": capability([text.read_text() for text in texts]),
        "CAPTURED_TEXTS": ":".join(str(text.resolve()) for text in texts),
        "CAPTURED_RUN": f"'{sys.executable}' -m tests.outside.captured_launch",
        "PYTHONPATH": ":".join([str(ROOT / "src"), str(ROOT)]),
    }  # fmt: skip
    ended = subprocess.run(
        [program.resolve(), *arguments], env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    rows = folder / "rows.jsonl"
    read = [json.loads(line) for line in rows.read_text().splitlines()] if rows.is_file() else []
    return Captured(ended.returncode, ended.stdout, tuple(read))


def told(words: Sequence[str]) -> argparse.Namespace:
    """The command line; what follows `--` goes to the program as it is."""
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, nargs="?")
    parser.add_argument("--ptx", type=Path, nargs="+", default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--sms", type=int, default=4)
    parser.add_argument("--schedules", default=FIVE)
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--runtime", type=Path)
    given = parser.parse_args(words[:at])
    given.arguments = list(words[at + 1 :])
    return given


def main() -> None:
    given = told(sys.argv[1:])
    with tempfile.TemporaryDirectory() as temporary:
        runtime = build(given.runtime or Path(temporary, "runtime"))
        if given.program is None:
            return
        found = run(
            given.program, given.ptx, given.arguments, runtime=runtime, only=given.only, sms=given.sms,
            folder=given.keep or Path(temporary, "launches"), schedules=given.schedules, most=given.most,
        )  # fmt: skip
    for row in found.rows:
        if row["checked"] or row["stopped"]:
            print(json.dumps({name: value for name, value in row.items() if name != "entry"}))
    print(found.output.strip(), f"exit status {found.status}", sep="\n")


if __name__ == "__main__":
    main()
