"""Plant bugs by hand in the sources of the Blackwell kernels, and record what `check` with its defaults reports.

    python -m benchmarks.planted_blackwell [--json FILE] [--only PATTERN]

Each is an edit that an author might make by mistake (`planted/blackwell_edits.toml`) in `kernels.blackwell` or its
building blocks. A copy of the package gets the edit. A separate process builds the kernel from it and checks it with
schedule lazy, against the bits that the unchanged kernel leaves. If there is no error, other schedules are explored.
The unchanged kernels must be clean under five schedules. Assembled and emulated, not run on hardware.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

ROOT = Path(__file__).parents[1]
EDITS = Path(__file__).parent / "planted" / "blackwell_edits.toml"
SCHEDULES = (("lazy", 0), ("eager", 0), ("random", 1), ("starve", 2), ("pct", 3))
STEPS = 400_000


@dataclass(frozen=True)
class Edit:
    """What is run, where the edit is, old and new text, a description; for harmless edits, the reason."""

    kernel: str
    file: str
    what: str
    old: str
    new: str
    harmless: str = ""


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(ml_dtypes.bfloat16)


def _scaled(k: int, blocks: int, low: int, high: int, dtype: Any) -> tuple[np.ndarray, ...]:
    """Operands of 200 x k and 304 x k bytes, and atoms of their scale factors, all different."""
    rng = np.random.default_rng(0)
    if dtype == np.uint8:
        a, b = (rng.integers(0, 256, (rows, k), np.uint8) for rows in (200, 304))
    else:
        a, b = (rng.standard_normal((rows, k)).astype(dtype) for rows in (200, 304))
    atoms = [rng.integers(low, high, (tiles, blocks, 512), np.uint8) for tiles in (2, 3)]
    return a, b, *atoms


def _heads(queries: int, keys: int, wide: int) -> tuple[Any, ...]:
    """Two heads whose scores grow from tile to tile, so that O is rescaled; scale and section."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, n, 2, wide)).astype(ml_dtypes.bfloat16) for n in (queries, keys, keys))
    q[..., 0], k[..., 0] = 8, (np.arange(keys)[::-1] // 64 * 8)[None, :, None]
    return q, k, v, np.float32(0.18), np.uint32(1)


def subjects() -> dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]], int]]:
    """By name: the builder, its arguments, multiprocessors. Rings wrap around; CTAs have several tiles."""
    from warploom.kernels.blackwell import attention, block_scaled, gemm, grouped, minimal, small_m, specialised
    from warploom.kernels.blackwell.attention_config import Config as AttentionConfig
    from warploom.kernels.blackwell.description import Config, SmallMConfig
    from warploom.kernels.hopper.attention_config import Attention

    nvfp4 = block_scaled.Config(block_scaled.NVFP4, stages=2)
    ends = np.array([200, 200, 260], np.int32)
    return {
        "minimal": (
            lambda: minimal.build(minimal.Config(tile_n=64)), lambda: (_normal(200, 264), _normal(104, 264)), 2,
        ),
        "specialised": (
            lambda: specialised.build(specialised.Config(tile_n=64, stages=3)),
            lambda: (_normal(600, 320), _normal(136, 320)), 2,
        ),
        "one": (
            lambda: gemm.build(gemm.Config(tile_m=128, tile_n=64, stages=3)),
            lambda: (_normal(600, 320), _normal(136, 320)), 2,
        ),
        "pair": (
            lambda: gemm.build(gemm.Config(tile_n=64, stages=3)), lambda: (_normal(1200, 320), _normal(136, 320)), 4,
        ),
        "mxfp8": (
            lambda: block_scaled.build(block_scaled.Config(stages=2)),
            lambda: _scaled(384, 3, 120, 130, ml_dtypes.float8_e4m3fn), 2,
        ),
        "nvfp4": (lambda: block_scaled.build(nvfp4), lambda: _scaled(384, 12, 0x20, 0x40, np.uint8), 2),
        "attention": (
            lambda: attention.build(Attention(head_dim=64, value_dim=64), AttentionConfig(tile_n=64, stages=3)),
            lambda: _heads(200, 170, 64), 1,
        ),
        "wide": (
            lambda: attention.build(Attention(head_dim=128, value_dim=128), AttentionConfig()),
            lambda: _heads(200, 300, 128), 1,
        ),
        "grouped": (
            lambda: grouped.build(config=Config(128, 64, 3), limits="offsets"),
            lambda: (_normal(260, 320), _normal(3 * 72, 320), ends, np.zeros((260, 72), ml_dtypes.bfloat16)), 2,
        ),
        "few rows": (
            lambda: small_m.build(SmallMConfig(16, 2, 2)), lambda: (_normal(20, 640), _normal(130, 640)), 8,
        ),
    }  # fmt: skip


def run(name: str, schedule: str, seed: int, right: Path | None) -> Any:
    """The verdict of `check` on a kernel built in this process."""
    from warploom.runtime import B200
    from warploom.testing import check_emulated

    build, arguments, sms = subjects()[name]
    kernel = build()
    kept: list[bytes] = []

    def check(*outputs: Any) -> None:
        kept.extend(np.asarray(one).tobytes() for one in outputs)
        if right is not None:
            for one, other in zip(kept, pickle.loads(right.read_bytes()), strict=True):
                assert one == other, "other bits"

    checked = check_emulated(kernel, kernel.program(), arguments(), check, schedule=schedule, seed=seed,
                             machine=B200(sms), max_steps=STEPS)  # fmt: skip
    return checked, kept


def child(name: str, right: Path) -> None:
    """The verdict as JSON, from a separate process with the edited package."""
    from warploom.errors import WarploomError
    from warploom.sanitizer.explore import EXPLORED

    try:
        checked, _ = run(name, "lazy", 0, right)
        row: dict[str, Any] = {"errors": sorted({one.rule for one in checked.errors})}
        row["others"] = sorted({one.rule for one in checked.findings if one.severity == "warning"})
        if not row["errors"]:
            for schedule, seed in EXPLORED[1:]:
                found, _ = run(name, schedule, seed, right)
                if found.errors:
                    row["explored"] = sorted({one.rule for one in found.errors})
                    break
    except WarploomError as error:  # the author is told while the kernel is built or called
        row = {"errors": [type(error).__name__], "refused": True}
    print(json.dumps(row))


def judged(edit: Edit, package: Path, folder: Path) -> dict[str, Any]:
    """Make one edit in the copy, judge it, and revert it."""
    path = package / "warploom" / edit.file
    text = path.read_text()
    if text.count(edit.old) < 1:
        sys.exit(f"{edit.what}: {edit.old!r} does not stand in {edit.file}")
    path.write_text(text.replace(edit.old, edit.new, 1))
    try:
        command = [
            sys.executable,
            "-m",
            "benchmarks.planted_blackwell",
            "--child",
            edit.kernel,
            str(folder / edit.kernel),
        ]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                             env={**os.environ, "PYTHONPATH": f"{package}:{ROOT}"})  # fmt: skip
    finally:
        path.write_text(text)
    if ran.returncode:
        sys.exit(f"{edit.what}: {ran.stderr}")
    found = json.loads(ran.stdout.splitlines()[-1])
    row: dict[str, Any] = {"kernel": edit.kernel, "file": edit.file, "what": edit.what}
    if found["errors"]:
        outcome = "refused" if found.get("refused") else "error"
        if found["errors"] == ["wrong-result"]:
            outcome = "wrong result"
        return row | {"outcome": outcome, "found": found["errors"]}
    if edit.harmless:
        return row | {"outcome": "harmless", "reason": edit.harmless}
    if "explored" in found:
        return row | {"outcome": "explored", "found": found["explored"]}
    return row | {"outcome": "warned" if found["others"] else "missed", "found": found["others"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="*")
    parser.add_argument("--child", nargs=2)
    given = parser.parse_args()
    if given.child:
        child(given.child[0], Path(given.child[1]))
        return
    every = [Edit(**one) for one in tomllib.loads(EDITS.read_text())["edit"]]
    edits = [one for one in every if fnmatch(f"{one.kernel}: {one.what}", given.only)]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copytree(ROOT / "src" / "warploom", folder / "package" / "warploom")
        for name in {one.kernel for one in edits}:
            for schedule, seed in SCHEDULES:
                checked, kept = run(name, schedule, seed, folder / name if (folder / name).exists() else None)
                if not checked.ok:
                    sys.exit(f"{name} itself, {schedule} {seed}: {checked.text()}")
                (folder / name).write_bytes(pickle.dumps(kept))
        rows = []
        for edit in edits:
            rows.append(judged(edit, folder / "package", folder))
            print(rows[-1], flush=True)
    if given.json:
        if given.json.exists() and given.only != "*":  # the others stay
            again = {(row["kernel"], row["what"]): row for row in rows}
            rows = [again.pop((row["kernel"], row["what"]), row) for row in json.loads(given.json.read_text())["bugs"]]
            rows += again.values()
    counts = Counter(row["outcome"] for row in rows)
    print(dict(counts))
    if given.json:
        command = f"python -m benchmarks.planted_blackwell --json {given.json}"
        data = {"command": command, "counts": dict(sorted(counts.items())), "bugs": rows}
        given.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
