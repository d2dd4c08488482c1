"""Compare the emulator's processor time with that of an earlier checkout, run by run.

    python benchmarks/emulator_compared.py --before FOLDER --commit NAME [--pairs 15]

The kernel in `warp_specialised.py` is traced here. One process per checkout emulates its text, 512 cubed in bf16, with
and without the sanitizer, in alternation, so that other load on the machine slows both equally. Ratios are of processor
time, pair by pair. Writes the table `compared` of benchmarks/results/<machine>/emulator-speed.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SIZE, TILE, THREADS, SHARED = 512, 128, 384, 131136
"""The launch: M = N = K, the tile's sides, threads, and bytes of dynamic shared memory."""


def serve(text: str, check: bool) -> None:
    """Emulate once for each line of standard input, and print the processor time."""
    import ml_dtypes
    import numpy as np

    import warploom
    from warploom.runtime.tensor_map import TensorMap

    random = np.random.default_rng(0)
    a, b = (random.standard_normal((SIZE, SIZE)).astype(ml_dtypes.bfloat16) for _ in range(2))
    c, size = np.zeros((SIZE, SIZE), np.float32), np.uint32(SIZE)
    maps = [TensorMap.tiled(array, box=(64, TILE), swizzle="128B") for array in (a, b)]
    for _ in sys.stdin:
        started = time.process_time()
        report = warploom.emulate(
            text, *maps, c, size, size, size, grid=(SIZE // TILE, SIZE // TILE), block=(THREADS,), dynamic_smem=SHARED,
            check=check,
        )  # fmt: skip
        seconds = time.process_time() - started
        if not report.ok or not np.allclose(c, a.astype(np.float32) @ b.astype(np.float32).T, atol=1e-2):
            raise SystemExit(f"wrong: {report.findings}")
        print(seconds, flush=True)


def measured(folders: list[Path], text: Path, check: bool, pairs: int) -> list[list[float]]:
    """Seconds of each checkout, run by run, without the first run, which parses the text."""
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--text", text, "--check" if check else "--no-check"],
            env={**os.environ, "PYTHONPATH": str(folder / "src")},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for folder in folders
    ]  # fmt: skip
    seconds: list[list[float]] = [[] for _ in folders]
    for turn in range(pairs + 1):
        order = list(zip(workers, seconds, strict=True))
        for worker, mine in order if turn % 2 else order[::-1]:
            assert worker.stdin is not None and worker.stdout is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
            mine.append(float(worker.stdout.readline()))
    for worker in workers:
        worker.communicate()
    return [mine[1:] for mine in seconds]


def spread(values: list[float]) -> dict[str, float]:
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 4) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--before", type=Path, help="the earlier checkout")
    parser.add_argument("--commit", help="what it is")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--text", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--check", action=argparse.BooleanOptionalAction, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.text:
        return serve(options.text.read_text(), options.check)
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from benchmarks.warp_specialised import build

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "warp_specialised.ptx")
        text.write_text(build().ptx())
        for check in (True, False):
            before, after = measured([options.before, ROOT], text, check, options.pairs)
            rows.append({
                "what": f"{'checked' if check else 'emulated'} warp-specialised 512 x 512 x 512 bf16",
                "before": options.commit, "pairs": options.pairs,
                "ratio": spread([a / b for a, b in zip(before, after, strict=True)]),
                "seconds_before": spread(before), "seconds": spread(after),
                "date": time.strftime("%Y-%m-%d"), "load": round(os.getloadavg()[0], 1),
            })  # fmt: skip
            print(rows[-1], flush=True)
    path = ROOT / "benchmarks" / "results" / f"cpu-{platform.machine()}-{os.cpu_count()}-cores" / "emulator-speed.json"
    kept = json.loads(path.read_text())
    others = [row for row in kept.get("compared", []) if row["before"] != options.commit]
    path.write_text(json.dumps({**kept, "compared": [*others, *rows]}, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
