"""Predict kernels measured after the model was made, and keep the first prediction next to every later one.

    python benchmarks/predict_blind.py MEASURED.json … [--every N] [--only WORDS …] [--again] [--recordings FOLDER]
                                       [--out benchmarks/results/emulator/blind.json]

MEASURED: evidence of `benchmarks.attention`, `benchmarks.attention_decode` or `benchmarks.beside`, for this package's
kernels under the protocol alone. A row has `measured_us`, `predicted_us` by the current model, and `blind_us`, the
prediction made before the measurement, which never changes. A kernel that is new to --out is predicted blind now. With
--again, no kernel is added, and those in --out are predicted again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.recordings import Recordings  # noqa: E402
from warploom.lab import evidence  # noqa: E402
from warploom.lab.recipe import rebuild  # noqa: E402
from warploom.lang import Kernel  # noqa: E402
from warploom.timing import H200, Launch, Prediction, predict  # noqa: E402
from warploom.timing.recording import Recording  # noqa: E402

OUT = ROOT / "benchmarks/results/emulator/blind.json"
BESIDE = ROOT / "benchmarks/results/emulator/beside.json"
SMS = 132
LENGTHS, TABLE = 3, 4
"""The decode kernel's arrays that hold the number of keys and the page table."""
Row = dict[str, Any]
Recorded = tuple[Recording, Launch]
Record = Callable[..., Recorded]


@dataclass(frozen=True)
class Found:
    """A measured row: its set, name and data, and the function that predicts it."""

    part: str
    name: str
    row: Row

    def predicted(self, kept: Recordings) -> Prediction:
        by_part = {"attention": attention, "decode": decode, "beside the ladder": beside}
        recording, launch = by_part[self.part](self.row, kept.record)
        return predict(recording, H200, launch)


def arrays_of(kernel: Kernel, sizes: dict[str, int]) -> tuple[list[Any], tuple[Any, ...]]:
    """Inputs and outputs of a kernel, of zeros; sizes that are not given are 1."""

    def made(spec: Any) -> np.ndarray:
        shape = tuple(sizes.get(one, 1) if isinstance(one, str) else one for one in spec.shape)
        return np.zeros(shape, spec.dtype.numpy)

    given = [one for one in specs_of(kernel.in_specs) if hasattr(one, "shape") and not one.workspace]
    return [made(one) for one in given], tuple(made(one) for one in specs_of(kernel.out_specs))


def specs_of(specs: Any) -> list[Any]:
    return list(specs.values()) if isinstance(specs, dict) else list(specs)


def attention(row: Row, record: Record) -> Recorded:
    """A forward case; its sizes are those of the suite."""
    from warploom.kernels.hopper.attention_config import section
    from warploom.lab.attention_contenders import subject
    from warploom.lab.attention_problem import ForwardProblem

    case = ForwardProblem(row["head_dim"], row["length"], row["causal"], row["dtype"])
    (b, h, n, _), of = case.sizes, subject(case)
    kernel = rebuild(row["build"])
    inputs, outputs = arrays_of(kernel, {"B": b, "S": n, "T": n, "H": h, "G": h, "N": 1})
    numbers: Row = {"scale": 1.0, "section": section(of, True, n, h, h) if case.causal else 1}
    numbers |= {"last": 0} if case.causal else {}
    known = {parameter.source for parameter in kernel.program().scalars}
    more = {"v_factor": 1.0} if "v_factor" in known else {}
    return record(kernel, *inputs, out=outputs, registers=row["registers"], **numbers, **more)


def decode(row: Row, record: Record) -> Recorded:
    """One step of decoding, with sequences of equal length."""
    from warploom.lab.attention_problem import DecodeProblem

    words = row["case"].split()
    heads, kv_heads = (int(one) for one in words[3].split("/"))
    case = DecodeProblem(
        row["batch"], row["length"], 1, heads, kv_heads, int(words[6]), row["page"], fp8_kv=words[-1] == "e4m3"
    )
    if case.name != row["case"]:
        raise ValueError(f"{row['case']} is not {case.name}")
    kernel = rebuild(row["build"])
    pages = -(-case.length // case.page) if case.page else 0
    sizes = {
        "B": case.batch, "R": 1, "H": heads, "G": kv_heads, "W": pages, "T": case.page or case.length,
        "N": case.batch * max(1, pages), "blocks": 2 * SMS, "places": case.batch * kv_heads,
    }  # fmt: skip
    inputs, outputs = arrays_of(kernel, sizes)
    inputs[LENGTHS][:] = case.length
    if case.page:
        inputs[TABLE][:] = np.arange(inputs[TABLE].size).reshape(inputs[TABLE].shape)
    known = {parameter.source for parameter in kernel.program().scalars}
    numbers = {name: value for name, value in {"scale": 1.0, "causal": 1, "v_factor": 1.0}.items() if name in known}
    return record(kernel, *inputs, out=outputs, registers=row["registers"], **numbers)


def beside(row: Row, record: Record) -> Recorded:
    """A kernel outside the ladder."""
    from benchmarks.beside import Case, kernels, zeros

    case = Case(row["kind"], row["m"], row["n"], row["k"], row["dtype"])
    return record(kernels(case, candidates=True)[row["kernel"]], *zeros(case, row["kernel"]))


def found(path: Path) -> Iterator[Found]:
    """The rows of a file that one of our kernels has."""
    told = json.loads(path.read_text())
    for row in told["rows"]:
        if row.get("protocol") != "alone":
            continue
        if told["suite"] == "beside" and row["provider"] != "cublas":
            name = f"{row['kernel']} {row['m']}x{row['n']}x{row['k']} {row['dtype']}"
            yield Found("beside the ladder", name, row)
        elif row["provider"].startswith("warploom"):
            part = {"attention": "attention", "attention-decode": "decode"}[told["suite"]]
            yield Found(part, f"{row['case']}: {row['provider']}", row)


def earlier(one: Found) -> float:
    """The prediction in emulator/beside.json from before the measurement; 0 for others."""
    if one.part != "beside the ladder" or not BESIDE.exists():
        return 0.0
    same = ("kernel", "kind", "m", "n", "k", "dtype")
    rows = [row for row in json.loads(BESIDE.read_text())["rows"] if all(row[key] == one.row[key] for key in same)]
    return float(rows[0]["predicted_us"]) if rows else 0.0


def scores(rows: Sequence[Row]) -> Row:
    """By set: mean and worst of both errors."""
    made = {}
    for part in dict.fromkeys(row["set"] for row in rows):
        mine = [row for row in rows if row["set"] == part]
        made[part] = {"points": len(mine)}
        for name in ("blind_error", "error"):
            errors = [abs(row[name]) for row in mine]
            made[part] |= {f"{name}_mean": round(statistics.mean(errors), 4), f"{name}_worst": round(max(errors), 4)}
    return made


def machine(told: Row) -> Row:
    """The hardware and software of a measurement."""
    return {key: told[key] for key in ("gpu", "driver", "date", "source_sha256")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", nargs="+", type=Path)
    parser.add_argument("--every", type=int, default=1, help="of a file's rows, each Nth")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--again", action="store_true", help="only kernels that --out has")
    parser.add_argument("--recordings", type=Path, help="a folder that keeps what was recorded")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    before = json.loads(options.out.read_text()) if options.out.exists() else {"rows": [], "measured_on": {}}
    kept = Recordings(options.recordings)
    rows: dict[str, Row] = {row["kernel"]: row for row in before["rows"]}
    head = evidence.header("blind", gpu="emulator")
    head["measured_on"] = before.get("measured_on", {})
    for path in options.measured:
        told = json.loads(path.read_text())
        head["measured_on"][told["suite"]] = (
            {kind: machine(run) for kind, run in told["runs"].items()} if "runs" in told else machine(told)
        )
        wanted = [one for one in found(path) if not options.only or any(part in one.name for part in options.only)]
        if options.again:
            wanted = [one for one in wanted if one.name in rows]
        for one in wanted[:: options.every]:
            started = time.perf_counter()
            prediction = one.predicted(kept)
            us, measured = round(prediction.us, 2), one.row["us"]["median"]
            blind = rows.get(one.name, {}).get("blind_us") or earlier(one) or us
            rows[one.name] = {
                "set": one.part, "kernel": one.name, "measured_us": measured, "predicted_us": us, "blind_us": blind,
                "error": round(us / measured - 1, 4), "blind_error": round(blind / measured - 1, 4),
                "bound": prediction.bound, "predicted_mhz": round(prediction.clock_mhz, 1),
                "predicted_watts": round(prediction.watts, 1), "measured_watts": one.row.get("power_w"),
                "ptx_sha256": one.row["ptx_sha256"], "seconds": round(time.perf_counter() - started, 1),
            }  # fmt: skip
            shown = (
                "kernel",
                "measured_us",
                "predicted_us",
                "error",
                "blind_error",
                "bound",
                "predicted_watts",
                "seconds",
            )
            print({key: rows[one.name][key] for key in shown}, flush=True)
    evidence.write(options.out, head | {"scores": scores(list(rows.values()))}, list(rows.values()))
    for part, score in scores(list(rows.values())).items():
        print(part, score)


if __name__ == "__main__":
    main()
