"""Measure how fast the package starts, traces, assembles and emulates on a CPU: figures of docs/measured-facts.md.

    python benchmarks/emulator_speed.py [--quick] [--only PATTERN]

Each row runs in its own process (for its own peak memory), several times; the median counts. Emulations run with
`check=False`, except in rows marked "checked": those alternate runs with and without the sanitizer, and `ratio` is the
shortest time with it over the shortest without. Writes benchmarks/results/<machine>/emulator-speed.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

NAIVE = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry naive(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<12>;
    .reg .f32 %f<4>;
    ld.param.u64 %rd1, [pa];
    ld.param.u64 %rd2, [pb];
    ld.param.u64 %rd3, [pc];
    ld.param.u32 %r1, [pn];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r2, 256, %r3;
    div.u32 %r5, %r4, %r1;
    rem.u32 %r6, %r4, %r1;
    mul.lo.u32 %r7, %r5, %r1;
    mul.wide.u32 %rd4, %r7, 4;
    add.u64 %rd5, %rd1, %rd4;
    mul.wide.u32 %rd6, %r6, 4;
    add.u64 %rd7, %rd2, %rd6;
    mul.wide.u32 %rd8, %r1, 4;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r8, 0;
loop:
    ld.global.f32 %f2, [%rd5];
    ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f1, %f2, %f3, %f1;
    add.u64 %rd5, %rd5, 4;
    add.u64 %rd7, %rd7, %rd8;
    add.u32 %r8, %r8, 1;
    setp.lt.u32 %p1, %r8, %r1;
    @%p1 bra loop;
    mul.wide.u32 %rd9, %r4, 4;
    add.u64 %rd10, %rd3, %rd9;
    st.global.f32 [%rd10], %f1;
    ret;
}
"""


def matrices(m: int, n: int, k: int, transposed: bool = False) -> tuple[Any, Any]:
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(0)
    a = random.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    return a, random.standard_normal((n, k) if transposed else (k, n)).astype(ml_dtypes.bfloat16)


def error(c: Any, reference: Any) -> float:
    import numpy as np

    return float(np.linalg.norm(c - reference) / np.linalg.norm(reference))


def import_time() -> dict[str, float]:
    code = "import time; t = time.perf_counter(); import warploom; print(time.perf_counter() - t)"
    return {"seconds": float(subprocess.check_output([sys.executable, "-c", code], text=True))}


def import_all() -> dict[str, float]:
    code = (
        "import time; t = time.perf_counter(); import warploom;"
        "[getattr(warploom, n) for n in warploom.__all__]; print(time.perf_counter() - t)"
    )
    return {"seconds": float(subprocess.check_output([sys.executable, "-c", code], text=True))}


def trace_and_print() -> dict[str, float]:
    from warploom.kernels.walkthrough import build_gemm_m64n64

    build_gemm_m64n64(64, 64, 64).ptx()
    started = time.perf_counter()
    build_gemm_m64n64(2048, 2048, 2048).ptx()
    return {"seconds": time.perf_counter() - started}


def walkthrough() -> Any:
    from warploom.kernels.walkthrough import build_gemm_m64n64

    return build_gemm_m64n64(2048, 2048, 2048)


def swiglu() -> Any:
    """The kernel of SwiGLU in the suite `fused`: silu and a gate after each product, more text than any rung."""
    from warploom.kernels.hopper.description import Config, Fusion, Product
    from warploom.kernels.hopper.gemm import build

    config = Config("ping_pong", 128, 176, stages=5, epi_stages=1)
    return build.__wrapped__(Product(), config, Fusion(activation="silu", gate=True))


def longest() -> Any:
    """The kernel of the suite `fp8` for 8192 x 8192 x 8192 with row scales: no measured kernel has more text."""
    from warploom.isa.dtypes import e4m3
    from warploom.kernels.hopper.description import Config, Fusion, Product
    from warploom.kernels.hopper.gemm import build

    config = Config("staggered", 256, 192, stages=3, epi_stages=3, split_tail=True)
    return build.__wrapped__(Product(e4m3, e4m3), config, Fusion(scales="row"))


def trace(make: Callable[[], Any], again: bool = True) -> dict[str, float]:
    """`again`: the kernel has been traced once before in the same process; else it is the first."""
    if again:
        make().ptx()
    kernel = make().bind()  # not traced yet, though a rung is built once
    started = time.perf_counter()
    text = kernel.ptx()
    seconds = time.perf_counter() - started
    lines = (line.strip() for line in text.splitlines())
    return {"seconds": seconds, "instructions": sum(line.endswith(";") and line[0] != "." for line in lines if line)}


def assemble(make: Callable[[], Any]) -> dict[str, float]:
    from warploom import config
    from warploom.runtime import build

    kernel = make()
    kernel.ptx()
    with config.override(cache_dir=None):
        started = time.perf_counter()
        build(kernel)
        return {"seconds": time.perf_counter() - started}


def last_rung() -> Any:
    from warploom.kernels.ladder import RUNGS

    return RUNGS[-1].load().build()


def cubin_from_cache() -> dict[str, float]:
    """From disk to bytes and resources in a running process; the GPU benchmark measures loading into the driver."""
    from warploom import config
    from warploom.driver import cache
    from warploom.kernels.walkthrough import build_gemm_m64n64
    from warploom.runtime import build

    kernel = build_gemm_m64n64(2048, 2048, 2048)
    kernel.ptx()
    with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=Path(folder, "cache")):
        build(kernel)
        cache.builds().clear()
        started = time.perf_counter()
        found = build(kernel)
        seconds = time.perf_counter() - started
    if found.source != "disk":
        raise SystemExit(f"the cubin came from {found.source or 'ptxas'}, not from disk")
    return {"seconds": seconds}


def walkthrough_256() -> dict[str, float]:
    from warploom.kernels.walkthrough import build_gemm_m64n64

    a, b = matrices(256, 256, 256)
    kernel = build_gemm_m64n64(256, 256, 256)
    kernel.ptx()
    started = time.perf_counter()
    report = kernel.emulate(a, b, check=False)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "relative_error": error(report.outputs[0], a.astype(float) @ b.astype(float))}


def naive_256() -> dict[str, float]:
    import numpy as np

    import warploom

    n = 256
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, n, n), dtype=np.float32)
    c = np.zeros((n, n), np.float32)
    started = time.perf_counter()
    warploom.emulate(NAIVE, a, b, c, np.uint32(n), grid=(n * n // 256,), block=(256,), check=False)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "relative_error": error(c, a.astype(float) @ b.astype(float))}


def warp_specialised_512() -> dict[str, float]:
    from benchmarks.warp_specialised import build

    a, b = matrices(512, 512, 512, transposed=True)
    kernel = build()
    kernel.ptx()
    started = time.perf_counter()
    report = kernel.emulate(a, b, check=False)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "relative_error": error(report.outputs[0], a.astype(float) @ b.astype(float).T)}


def with_and_without_checks(kernel: Any, a: Any, b: Any, runs: int = 3) -> dict[str, float]:
    """The shortest checked emulation of several, and its ratio to the shortest unchecked one."""
    shortest: dict[bool, float] = {}
    kernel.ptx()
    for _ in range(runs):
        for check in (False, True):
            started = time.perf_counter()
            report = kernel.emulate(a, b, check=check)
            shortest[check] = min(shortest.get(check, float("inf")), time.perf_counter() - started)
            if not report.ok:
                raise SystemExit(f"{kernel.name}: {report.findings[0]}")
    return {"seconds": shortest[True], "ratio": round(shortest[True] / shortest[False], 2)}


def checked_warp_specialised_512() -> dict[str, float]:
    from benchmarks.warp_specialised import build

    return with_and_without_checks(build(), *matrices(512, 512, 512, transposed=True))


def checked_walkthrough_256() -> dict[str, float]:
    from warploom.kernels.walkthrough import build_gemm_m64n64

    return with_and_without_checks(build_gemm_m64n64(256, 256, 256), *matrices(256, 256, 256))


def checked_rung(number: int) -> dict[str, float]:
    from warploom.kernels import ladder

    return with_and_without_checks(ladder.find(number).build(), *matrices(512, 768, 512, transposed=True))


def checked_pair() -> dict[str, float]:
    """One tile of 256 x 256 by a pair of CTAs of a B200."""
    from warploom.kernels.blackwell import gemm

    return with_and_without_checks(gemm.build(), *matrices(256, 256, 256, transposed=True))


def explored_large_tiles() -> dict[str, float]:
    """Eight schedules of the kernel with the largest tile, 2 x 2 of them."""
    from warploom.kernels import ladder

    rung = ladder.find("large_tiles")
    config = rung.load().Config()
    kernel = rung.build()
    a, b = matrices(2 * config.tile_m, 2 * config.tile_n, 1024, transposed=True)
    kernel.ptx()
    started = time.perf_counter()
    report = kernel.emulate(a, b, schedule="explore")
    seconds = time.perf_counter() - started
    if not report.ok or len(report.explored) != 8:
        raise SystemExit(f"explored {report.explored}: {report.findings}")
    return {"seconds": seconds}


ROWS: dict[str, tuple[Callable[[], dict[str, float]], float, str]] = {
    "import warploom": (import_time, 0.3, "no torch"),
    "import warploom, every public name": (import_all, 0.0, "no torch"),
    "trace and print, walkthrough, K = 2048": (trace_and_print, 0.3, "128 unrolled steps"),
    "ptxas, walkthrough, K = 2048": (lambda: assemble(walkthrough), 2.0, "no cache"),
    "trace and print, silu and a gate": (lambda: trace(swiglu), 0.15, "ping-pong 128 x 176"),
    "trace and print, silu and a gate, the first": (lambda: trace(swiglu, False), 0.15, "first of its process"),
    "trace and print, rung 23": (lambda: trace(last_rung), 0.15, "not the first of its process"),
    "trace and print, the longest kernel": (lambda: trace(longest), 0.15, "staggered 256 x 192, e4m3, row scales"),
    "ptxas, silu and a gate": (lambda: assemble(swiglu), 2.0, "no cache"),
    "ptxas, rung 23": (lambda: assemble(last_rung), 2.0, "no cache"),
    "ptxas, the longest kernel": (lambda: assemble(longest), 2.0, "no cache"),
    "cubin from the disk cache": (cubin_from_cache, 0.05, "process up; without loading it into a driver"),
    "emulated walkthrough 256 x 256 x 256 bf16": (walkthrough_256, 2.0, "tile_k 16"),
    "emulated naive fp32 256 x 256 x 256": (naive_256, 10.0, "one thread per element"),
    "emulated warp-specialised 512 x 512 x 512 bf16": (warp_specialised_512, 5.0, "128 x 128 x 64 tiles; also < 1 GiB"),
    "checked warp-specialised 512 x 512 x 512 bf16": (checked_warp_specialised_512, 10.0, "also < 2 GiB, ratio <= 5"),
    "checked walkthrough 256 x 256 x 256 bf16": (checked_walkthrough_256, 0.0, "ratio <= 5"),
    "checked rung 6 (mma.sync, cp.async) 512 x 768 x 512 bf16": (lambda: checked_rung(6), 0.0, "ratio <= 5"),
    "checked rung 21 (256 x 192 tiles, clusters) 512 x 768 x 512 bf16": (lambda: checked_rung(21), 0.0, "ratio <= 5"),
    "checked Blackwell pair 256 x 256 x 256 bf16": (checked_pair, 5.0, "cta_group::2, one 256 x 256 tile"),
    "explored (8 schedules) rung 21, 2 x 2 tiles, K = 1024": (explored_large_tiles, 60.0, "512 x 384 x 1024 bf16"),
}


def spread(seconds: list[float]) -> dict[str, float]:
    values = {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds)}
    return {name: round(value, 4) for name, value in values.items()}


def one(name: str) -> None:
    """Measure one row here and print it."""
    measured = ROWS[name][0]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**measured, "peak_bytes": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one repetition instead of five, nothing written")
    parser.add_argument("--only", default="*", help="measure the rows that fit the pattern; the others stay")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        return one(options.row)
    from warploom.lab import evidence

    path = ROOT / "benchmarks" / "results" / f"cpu-{platform.machine()}-{os.cpu_count()}-cores" / "emulator-speed.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    before = {row["what"]: row for row in kept.get("rows", ())}
    rows = []
    for name, (_, target, note) in ROWS.items():
        if not fnmatch(name, options.only):
            rows += [before[name]] if name in before else []
            continue
        runs = []
        for _ in range(1 if options.quick else 5):
            done = subprocess.run([sys.executable, __file__, "--row", name], capture_output=True, text=True)
            if done.returncode:
                print(f"{name}: not measured: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ''}")
                break
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        if not runs:
            continue
        seconds = [run["seconds"] for run in runs]
        row: dict[str, Any] = {
            "what": name, "note": note, "repetitions": len(runs),
            "seconds": spread(seconds),
            "date": time.strftime("%Y-%m-%d"), "load": round(os.getloadavg()[0], 1),
            "peak_mib": round(max(run["peak_bytes"] for run in runs) / 2**20, 1),
        }  # fmt: skip
        if target:
            row["target_seconds"] = target
        if "relative_error" in runs[0]:
            row["relative_error"] = runs[0]["relative_error"]
        if "instructions" in runs[0]:
            row["instructions"] = runs[0]["instructions"]
            row["us_per_instruction"] = round(row["seconds"]["median"] * 1e6 / row["instructions"], 1)
        if "ratio" in runs[0]:
            row["ratio"] = statistics.median(run["ratio"] for run in runs)
        rows.append(row)
        print(f"{name}: {row['seconds']['median']} s (target {target or '-'} s), {row['peak_mib']} MiB", flush=True)
    if not options.quick:
        head = evidence.header("emulator-speed", command="python benchmarks/emulator_speed.py")
        evidence.write(path, {**head, **{key: kept[key] for key in ("compared",) if key in kept}}, rows)
    return None


if __name__ == "__main__":
    main()
