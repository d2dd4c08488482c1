"""Measure or predict kernels outside the ladder: 2:4 sparse A, f64, and three ways to divide the last partial wave.

    python -m benchmarks.beside --out benchmarks/results/nvidia-h200/beside.json [--only WORDS] [--seconds 0.5]
    python -m benchmarks.beside --predict [--out benchmarks/results/emulator/beside.json]
    python -m benchmarks.beside --adopt MEASURED --kinds sparse,f64 --out benchmarks/results/nvidia-h200/beside.json

The first form measures on a GPU next to cuBLAS and checks each result against f64; `--candidates` adds other
configurations of the same kernels. The second predicts with the timing model (`warploom.timing`), without a GPU. The
third replaces rows of some kinds in a file by those of another run. FLOP of a sparse product include the zeros.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from examples.hopper import f64, f64_roles, sparse, stream_k
from examples.hopper.sparse_operand import compress, prune
from warploom.isa import dtypes
from warploom.kernels.ladder import find
from warploom.lang import Kernel

PREDICTED = Path(__file__).resolve().parent / "results" / "emulator" / "beside.json"
DENSE = 21
"""The rung to which a bf16 sparse product is compared: same rows per tile, clusters and stores."""
REST_MHZ = 1320.0
"""Fixed clock of the predictions for the partial wave, the same for all ways. The model derives a CTA's stores, and
from them its power, from the size of C; here, parts of tiles go to a workspace instead."""
NARROWER = {128: 6, 192: 4}
"""Columns of other tiles for the partial wave, with the stages that fit. Whole tiles are the alternative way to fill a
wave, and always included."""
F64_CANDIDATES = {
    "f64 128 x 64": lambda: f64.build(f64.Config(tile_n=64, warps=(4, 1))),
    "f64 roles, 3 stages": lambda: f64_roles.build(f64.Config(stages=3)),
}  # fmt: skip
"""Two CTAs per multiprocessor with independent barriers, and a shorter ring."""
BOUNDS = {"bf16": 2.5e-3, "e4m3": 2.5e-3, "f64": 1e-14}
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A product of one kind: "sparse", "f64" or "rest"."""

    kind: str
    m: int
    n: int
    k: int
    dtype: str = "bf16"

    scales = ""

    @property
    def shape(self) -> str:
        return f"{self.kind} {self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        size = dtypes.ALL[self.dtype].bytes
        return (self.m + self.n) * self.k * size + self.m * self.n * min(size * 2, max(size, 2))

    def as_dict(self) -> Row:
        return asdict(self)

    def rates(self, seconds: float) -> Row:
        """None."""
        return {}


SUITE = (
    Case("sparse", 8192, 8192, 8192), Case("sparse", 4096, 4096, 4096), Case("sparse", 8192, 8192, 8192, "e4m3"),
    Case("f64", 4096, 4096, 4096, "f64"),
    Case("rest", 4096, 4096, 4096), Case("rest", 2304, 4096, 8192), Case("rest", 1024, 2048, 8192),
)  # fmt: skip


def kernels(case: Case, candidates: bool = False) -> dict[str, Kernel]:
    """Our kernels, by the names in the file."""
    if case.kind == "sparse":
        made = {"sparse": sparse.build(sparse.Config(a=dtypes.ALL[case.dtype]))}
        return made | ({"dense": find(DENSE).build()} if case.dtype == "bf16" else {})
    if case.kind == "f64":
        more = {name: build() for name, build in F64_CANDIDATES.items()} if candidates else {}
        return {"f64": f64.build(), "f64 roles": f64_roles.build(), **more}
    made = {way: stream_k.build(stream_k.Config(way)) for way in stream_k.WAYS}
    for way in stream_k.WAYS if candidates else ("data_parallel",):
        for tile_n, stages in NARROWER.items():
            made[f"{way} {tile_n}"] = stream_k.build(stream_k.Config(way, tile_n=tile_n, stages=stages))
    return made


# -- predicted -------------------------------------------------------------------------------------------------------


def zeros(case: Case, name: str) -> tuple[np.ndarray, ...]:
    """The arguments of a kernel; the timing model does not read their values."""
    dtype = dtypes.ALL[case.dtype]
    a, b = (np.zeros((rows, case.k), dtype.numpy) for rows in (case.m, case.n))
    return compress(a, dtype).arguments(b) if name == "sparse" else (a, b)


def predicted(case: Case, candidates: bool = False) -> Iterator[Row]:
    """Predict a row for each kernel."""
    for name, kernel in kernels(case, candidates).items():
        found = kernel.predict(*zeros(case, name), clock_mhz=REST_MHZ if case.kind == "rest" else None)
        yield {
            **case.as_dict(), "kernel": name, "predicted_us": round(found.us, 1),
            "predicted_tflops": round(case.flops / found.us / 1e6, 1), "bound": found.bound,
            "clock_mhz": round(found.clock_mhz), **({"watts": round(found.watts)} if case.kind != "rest" else {}),
            "roofs": {roof: round(share, 2) for roof, share in found.roofs.items() if share > 0.25},
        }  # fmt: skip


def predict(out: Path, words: str, candidates: bool) -> None:
    """Write the file; rows of cases that were not selected stay unchanged."""
    asked = [case for case in SUITE if all(word in f"{case.shape} {case.dtype}" for word in words.split(","))]
    before = json.loads(out.read_text())["rows"] if out.exists() else []
    rows: list[Row] = []
    for case in SUITE:
        if case not in asked:
            rows += [row for row in before if case.as_dict().items() <= row.items()]
            continue
        for row in predicted(case, candidates):
            rows.append(row)
            print(row, flush=True)
    found = {"suite": "beside", "command": "python -m benchmarks.beside --predict",
             "note": "predicted by warploom.timing for an H200, not measured", "rows": rows}  # fmt: skip
    out.write_text(json.dumps(found, indent=1) + "\n")


# -- measured --------------------------------------------------------------------------------------------------------


def on_gpu(array: np.ndarray) -> Any:
    """A NumPy array as a tensor of a type with the same bits."""
    import torch

    names = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn}
    raw = torch.from_numpy(array.view(f"i{array.itemsize}")).cuda()
    return raw.view(names.get(array.dtype.name) or getattr(torch, array.dtype.name))


def measure(case: Case, session: Any) -> Iterator[Row]:
    """Measure one case: our kernels, and cuBLAS on the same dense arrays."""
    import torch

    from warploom.lab import evidence

    dtype, draw = dtypes.ALL[case.dtype], np.random.default_rng(0)
    a, b = (draw.standard_normal((rows, case.k), np.float32).astype(dtype.numpy) for rows in (case.m, case.n))
    a = prune(a, dtype) if case.kind == "sparse" else a
    dense = on_gpu(a), on_gpu(b)
    out = torch.empty((case.m, case.n), device="cuda", dtype=torch.float64 if case.kind == "f64" else torch.bfloat16)
    calls: dict[str, Callable[[], Any]] = {}
    ours = kernels(case, session.asked.candidates)
    for name, kernel in ours.items():
        given = [on_gpu(x) for x in compress(a, dtype).arguments(b)] if name == "sparse" else dense
        calls[name] = lambda kernel=kernel, given=given: kernel(*given, out=out)
    if case.dtype != "e4m3":
        calls["cublas"] = lambda: torch.mm(dense[0], dense[1].T, out=out)
    exact = dense[0].double() @ dense[1].double().T
    errors = {}
    for name, call in calls.items():
        out.zero_()
        call()
        errors[name] = float((out.double() - exact).norm() / exact.norm())
        if errors[name] > BOUNDS[case.dtype]:
            raise SystemExit(f"{case.shape}: {name} is wrong, relative error {errors[name]:.2e}")
    del exact
    spreads = session.sample(case, calls)
    for name in calls:
        more = {"relative_error": errors[name], "kernel": name}
        if name in ours:
            more["ptx_sha256"] = evidence.ptx_sha256(ours[name].ptx())
        yield session.row(case, name, "alone", spreads, more)


def told(rows: Sequence[Row]) -> str:
    """A summary line of a case."""
    speeds = [f"{row['provider']} {row['us']['median']} us {row['tflops']['median']}" for row in rows]
    return f"{rows[0]['kind']} {rows[0]['m']} {rows[0]['n']} {rows[0]['k']}: " + ", ".join(speeds)


# -- adopted ---------------------------------------------------------------------------------------------------------


def adopt(measured: Path, kinds: Sequence[str], out: Path) -> None:
    """Replace the rows of some kinds in a file by a run's; `runs` keeps each kind's metadata."""
    from warploom.lab import evidence

    found = json.loads(measured.read_text())
    head = {name: value for name, value in found.items() if name != "rows"}
    before = json.loads(out.read_text()) if out.exists() else {"rows": [], "runs": {}}
    new = [row for row in found["rows"] if row["kind"] in kinds]
    missing = set(kinds) - {row["kind"] for row in new}
    if missing:
        raise SystemExit(f"{measured} has no rows of {', '.join(sorted(missing))}")
    order = list(dict.fromkeys(case.kind for case in SUITE))
    kept = [row for row in before["rows"] if row["kind"] not in kinds]
    runs = {**before["runs"], **dict.fromkeys(kinds, head)}
    whole = {name: head[name] for name in ("suite", "gpu")}
    evidence.write(
        out, {**whole, "runs": {kind: runs[kind] for kind in order if kind in runs}},
        sorted((*kept, *new), key=lambda row: order.index(row["kind"])),
    )  # fmt: skip


def main(words: Sequence[str]) -> int:
    if {"--predict", "--adopt"} & set(words):
        parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
        parser.add_argument("--predict", action="store_true")
        parser.add_argument("--adopt", type=Path, default=None, help="a file that this program wrote on a GPU")
        parser.add_argument("--kinds", default="sparse,f64,rest", help="which of its rows")
        parser.add_argument("--out", type=Path, default=PREDICTED)
        parser.add_argument("--only", default="", help="cases whose name has these words, separated by commas")
        parser.add_argument("--candidates", action="store_true", help="other configurations, too")
        asked = parser.parse_args(words)
        if asked.adopt is not None:
            adopt(asked.adopt, asked.kinds.split(","), asked.out)
        else:
            predict(asked.out, asked.only, asked.candidates)
        return 0
    from benchmarks.attention_session import Suite, fits

    suite = Suite("beside", __doc__, SUITE, fits, measure, told)
    parser = suite.parser()
    parser.add_argument("--candidates", action="store_true", help="other configurations, too")
    return suite.run(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
