"""A GPU's recorded results (`tests/golden/conformance.npz`), and their comparison with the emulator's.

The file has two members: `bits`, all result buffers one after the other (equal ones once), and `index`, JSON:
    {"meta": {gpu, driver, ptxas, date, seed, …}, "cases": {name: {"digest": …, "results": {argument: [start, bytes]}}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from .case import Array, Case, Map, Tolerance, results

FILE = Path(__file__).parents[1] / "golden" / "conformance.npz"
Results = Mapping[str, np.ndarray]
_SHOWN = 3
_NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


@dataclass(frozen=True)
class Recording:
    """A loaded file. `results` and `digests` by case name."""

    meta: dict[str, object]
    digests: dict[str, str]
    places: dict[str, dict[str, tuple[int, int]]]
    bits: np.ndarray

    def raw(self) -> dict[str, tuple[str, Results]]:
        """Everything, as `save` takes it."""
        return {
            name: (digest, {number: self.bits[at : at + size] for number, (at, size) in self.places[name].items()})
            for name, digest in self.digests.items()
        }

    def of(self, case: Case) -> Results | None:
        """The GPU's result for the current form of this case; None if it was not recorded or has changed since."""
        if self.digests.get(case.name) != case.digest():
            return None
        found = {}
        for number, shaped in results(case.arguments()).items():
            start, size = self.places[case.name][number]
            found[number] = self.bits[start : start + size].view(shaped.dtype).reshape(shaped.shape)
        return found


def save(path: Path, meta: Mapping[str, object], recorded: Mapping[str, tuple[str, Results]]) -> None:
    """Write a file. recorded: case name -> (digest, results)."""
    parts: list[bytes] = []
    known: dict[bytes, tuple[int, int]] = {}
    end, index = 0, {}
    for name, (digest, found) in recorded.items():
        places = {}
        for number, array in found.items():
            raw = np.ascontiguousarray(array).tobytes()
            if raw not in known:
                known[raw] = (end, len(raw))
                # 16-byte steps, so that each part can be viewed as words
                parts.append(raw + b"\0" * (-len(raw) % 16))
                end += len(parts[-1])
            places[number] = known[raw]
        index[name] = {"digest": digest, "results": places}
    text = json.dumps({"meta": dict(meta), "cases": index})
    bits = np.frombuffer(b"".join(parts), np.uint8)
    np.savez_compressed(path, bits=bits, index=np.frombuffer(text.encode(), np.uint8))


def load(path: Path = FILE) -> Recording | None:
    """The recording, or None if there is no file yet."""
    if not path.is_file():
        return None
    with np.load(path) as stored:
        bits, index = stored["bits"], json.loads(stored["index"].tobytes())
    cases = index["cases"]
    return Recording(
        index["meta"],
        {name: entry["digest"] for name, entry in cases.items()},
        {name: {number: tuple(place) for number, place in entry["results"].items()} for name, entry in cases.items()},
        bits,
    )


@dataclass(frozen=True)
class Mismatch:
    """One row of results that differs.

    Attributes:
        case, label: which instruction.
        differing, compared: words.
        examples: "inputs -> emulated, recorded" of the first few.
    """

    case: str
    label: str
    differing: int
    compared: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.case}: {self.label}: {self.differing} of {self.compared} differ; " + "; ".join(self.examples)


def compare(case: Case, emulated: Results, recorded: Results) -> list[Mismatch]:
    """The rows in which the two differ by more than the case allows."""
    found = []
    arguments = case.arguments()
    for number, mine in emulated.items():
        rows = len(case.labels) if case.labels and mine.shape[0] == len(case.labels) else 1
        ours, theirs = mine.reshape(rows, -1), recorded[number].reshape(rows, -1)
        for at, label in enumerate(case.labels if rows > 1 or len(case.labels) == 1 else (f"argument {number}",)):
            wrong = beyond(ours[at], theirs[at], case.tolerances.get(label))
            if wrong.any():
                places = np.flatnonzero(wrong)
                shown = tuple(_example(arguments, ours[at], theirs[at], int(place)) for place in places[:_SHOWN])
                found.append(Mismatch(case.name, label, int(wrong.sum()), wrong.size, shown))
    return found


def beyond(ours: np.ndarray, theirs: np.ndarray, tolerance: Tolerance | None) -> np.ndarray:
    """Which words of two flat arrays differ by more than a tolerance (None: at all)."""
    differs = ours != theirs
    if tolerance is None or not differs.any():
        return differs
    dtype = np.dtype(_NUMPY[tolerance.dtype])
    ours, theirs = np.ascontiguousarray(ours), np.ascontiguousarray(theirs)
    with np.errstate(all="ignore"):
        x, y = ours.view(dtype).astype(np.float64), theirs.view(dtype).astype(np.float64)
        close = np.abs(x - y) <= tolerance.relative * np.abs(y) + tolerance.absolute
    same = (ours.view(f"u{dtype.itemsize}") == theirs.view(f"u{dtype.itemsize}")) | close
    return ~same.reshape(ours.size, -1).all(axis=1)


def _example(arguments: tuple[object, ...], ours: np.ndarray, theirs: np.ndarray, place: int) -> str:
    inputs = [
        f"{int(argument.data.reshape(-1)[place]):#x}"
        for argument in arguments
        if isinstance(argument, Array) and not argument.output and argument.data.size == ours.size
    ]
    values = f"emulated {int(ours[place]):#x}, recorded {int(theirs[place]):#x}"
    return f"[{place}] {', '.join(inputs)} -> {values}" if inputs else f"[{place}] {values}"


def untouched(case: Case, found: Results) -> list[str]:
    """The result buffers that a run left as they were, or full of the poison of unfinished copies."""
    before = {
        str(number): np.ascontiguousarray(argument.data).view(np.uint8)
        for number, argument in enumerate(case.arguments())
        if isinstance(argument, (Array, Map)) and argument.output
    }
    return [
        number
        for number, array in found.items()
        if (array.view(np.uint8).reshape(-1) == before[number].reshape(-1)).all()
        or (array.size > 1 and (array.view(np.uint8) == 0xFF).all())
    ]
