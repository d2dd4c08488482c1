"""Regenerate `nvcc/*.ptx`: every `.cu` file for its targets, without paths of this machine.

    python tests/foreign/compile_cuda.py [NAME …]

Needs nvcc with its headers, from PATH or from pip: nvidia-cuda-nvcc, nvidia-nvvm, nvidia-cuda-crt, nvidia-cuda-runtime
and nvidia-cuda-cccl of one version.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "nvcc"
TARGETS: dict[str, tuple[str, ...]] = {
    "simt_gemm": ("sm_80",),
    "ampere_gemm": ("sm_80",),
    "barriers": ("sm_80", "sm_90a"),
    "hopper_gemm": ("sm_90a",),
    "cluster": ("sm_90a",),
    "rows": ("sm_80", "sm_90a"),
    "grid": ("sm_80", "sm_90a"),
    "language": ("sm_80", "sm_90a"),
    "wmma": ("sm_80",),
    "library": ("sm_80", "sm_90a"),
    "unsupported": ("sm_90a",),
    "elect_loop": ("sm_90a",),
    "shuffle_loop": ("sm_90a",),
    "reused_barrier": ("sm_90a",),
    "same_store": ("sm_90a",),
    "system": ("sm_90a",),
}
"""Which targets a file is compiled for. `mixed.cu` has its own commands in its head."""


def find_nvcc() -> tuple[Path, list[Path]] | None:
    """The compiler and the folders of its headers: the packages' first, else the one on PATH."""
    root = Path(sysconfig.get_path("purelib"), "nvidia", "cu13")
    if (root / "bin" / "nvcc").is_file() and (root / "include" / "cccl").is_dir():
        return root / "bin" / "nvcc", [root / "include", root / "include" / "cccl"]
    found = shutil.which("nvcc")
    return (Path(found), []) if found else None


def compiled(name: str, target: str, nvcc: Path, include: list[Path]) -> str:
    """The PTX of one file. Raises subprocess.CalledProcessError with nvcc's messages."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.ptx")
        headers = [word for path in include for word in ("-I", str(path))]
        command = [str(nvcc), "-ptx", f"-arch={target}", "-std=c++17", *headers, f"{name}.cu", "-o", str(out)]
        subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, text=True)
        return re.sub(r'"/[^"]*/', '"', out.read_text())


def main(names: list[str]) -> None:
    found = find_nvcc()
    if found is None:
        sys.exit("nvcc is not here")
    for name in names or TARGETS:
        for target in TARGETS[name]:
            try:
                text = compiled(name, target, *found)
            except subprocess.CalledProcessError as error:
                sys.exit(f"{name} for {target}:\n{error.stderr}")
            (FOLDER / f"{name}_{target.replace('_', '')}.ptx").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
