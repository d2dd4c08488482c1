"""One launch that `pretended_runtime.cpp` has written to a folder, run by the emulator with all checks.

    python -m tests.outside.captured_launch FOLDER

The folder gets `after.bin`, all device memory after the first schedule, and `rows.jsonl` of the folder around it a line
for each schedule. What to do stands in the environment, as `captured.py` sets it.
"""

from __future__ import annotations

import bisect
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from warploom.emulator import api
from warploom.emulator.arguments import Binder
from warploom.emulator.diagnosis.report import Report
from warploom.emulator.engines.tma import BoundMap, encode
from warploom.emulator.machine.finding import Finding
from warploom.emulator.machine.machine import POISON
from warploom.emulator.machine.memory import Allocation, Region
from warploom.emulator.machine.model import Model
from warploom.errors import EmulationError, WarploomError
from warploom.isa.im2col import PixelBox
from warploom.isa.swizzle import Swizzle
from warploom.isa.tensor_elements import ELEMENTS, element_of
from warploom.isa.tensor_map import INTERLEAVES, L2_PROMOTIONS, MAP_BYTES, OOB_FILLS, TensorMapSpec
from warploom.runtime.loading import loaded
from warploom.runtime.loose_reads import unused_reads
from warploom.runtime.unwritten import settled
from warploom.sanitizer import SPOILS, PerturbedLoads, Sanitizer
from warploom.sanitizer.report.rendering import as_text, render

MARKS = (b"FAKEMAP1", b"FAKEMAP2")
"""What the mock runtime writes into both halves of a tensor map; its number follows the second."""
ELEMENT = {code: name for name, (_, code, _) in reversed(ELEMENTS.items())}
SWIZZLE = {swizzle.driver_code: swizzle.value for swizzle in Swizzle}
STEPS = 200_000_000
KNOWN = "variables"
"""The file next to the folders: for each launch a line with the variables whose values stand in the memory after it."""
FIVE = "lazy:0 eager:0 random:1 starve:2 pct:3"


@dataclass
class Launch:
    """What the folder says. buffers: address and bytes of each allocation; maps: the tensor maps by number.

    variables: of modules, by address, with whether the memory has the value, not the text; used: by this kernel.
    written: names of the buffers that the previous launch may still be writing.
    """

    entry: str
    shape: dict[str, Any]
    parameters: list[bytes]
    buffers: list[tuple[int, np.ndarray]]
    maps: dict[int, BoundMap]
    variables: dict[int, tuple[str, bool]]
    used: set[str] = field(default_factory=set)
    written: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Launch:
        shape: dict[str, Any] = {}
        entry, parameters, places, maps, variables = "", [], [], {}, {}
        known = folder.with_name(KNOWN)
        lines = [line.split() for line in known.read_text().splitlines()] if known.is_file() else []
        before = {name for launch, *names in lines if int(launch[1:]) < int(folder.name[1:]) for name in names}
        for line in (folder / "launch.txt").read_text().splitlines():
            word, *rest = line.split()
            if word == "entry":
                entry = rest[0]
            elif word in ("grid", "block", "cluster"):
                shape[word] = tuple(map(int, rest))
                if word == "cluster" and shape[word] == (1, 1, 1):
                    shape[word] = None  # not asked for by the launch: as the text requires
            elif word == "shared":
                shape["dynamic_smem"] = int(rest[0])
            elif word == "dependent":
                shape["dependent"] = rest[0] == "1"
            elif word == "parameter":
                parameters.append(bytes.fromhex("".join(rest)))
            elif word == "buffer":
                places.append((int(rest[0]), int(rest[1])))
            elif word == "variable":
                variables[int(rest[0])] = rest[2], rest[1] == "1" or rest[2] in before
            else:
                number, bound = _map(word == "im2col", [int(value) for value in rest])
                maps[number] = bound
        memory, at, buffers = np.fromfile(folder / "memory.bin", np.uint8), 0, []
        for address, size in places:
            buffers.append((address, memory[at : at + size]))
            at += size
        return cls(entry, shape, parameters, buffers, maps, variables)

    def with_maps(self, raw: bytes, used: list[object]) -> bytes:
        """The bytes with the emulator's tensor maps instead of marked ones; `used` gets those."""
        at = raw.find(MARKS[0])
        while at >= 0:
            half = at + MAP_BYTES // 2
            if raw[half : half + 8] == MARKS[1]:
                bound = self.maps[int.from_bytes(raw[half + 8 : half + 12], "little")]
                used.append(bound)
                raw = raw[:at] + encode(bound) + raw[at + MAP_BYTES :]
            at = raw.find(MARKS[0], at + 8)
        return raw


def _map(im2col: bool, values: list[int]) -> tuple[int, BoundMap]:
    number, kind, rank, address, interleave, swizzle, promotion, fill, *rest = values
    extents, strides, steps = rest[:rank], rest[rank : 2 * rank - 1], rest[2 * rank - 1 : 3 * rank - 1]
    box = rest[3 * rank - 1 :]
    pixels = None
    if im2col:
        box, corners = box[:2], box[2:]
        pixels = PixelBox(tuple(corners[: rank - 2]), tuple(corners[rank - 2 :]))
    spec = TensorMapSpec(
        element_of(ELEMENT[kind]), tuple(extents), tuple(strides), tuple(box), tuple(steps), SWIZZLE[swizzle],
        INTERLEAVES[interleave], OOB_FILLS[fill], L2_PROMOTIONS[promotion], pixels=pixels,
    )  # fmt: skip
    spec.validate()
    return number, BoundMap(spec, address)


def bind(self: Binder, arguments: list[Any], device: int) -> Region:
    """In place of `Binder.bind`: the program's own parameter bytes, and its memory where the program has it."""
    launch, copies = arguments[0]
    own = {allocation.region.name: allocation for allocation in self.memory.allocations}
    for (address, _), bytes_ in zip(launch.buffers, copies, strict=True):
        name, written = launch.variables.get(address, ("", False))
        if name in own:
            placed = own[name]
            self.memory.give_back(placed)
            if not written:
                bytes_[...] = placed.region.data
            placed.base, placed.region = address, Region(bytes_, name)
            launch.used.add(name)
        else:
            placed = Allocation(address, Region(bytes_, name or f"buffer {address:#x}"))
        bytes_[...] = np.frombuffer(launch.with_maps(bytes_.tobytes(), self.maps), np.uint8)
        at = bisect.bisect(self.memory._bases, address)
        self.memory._bases.insert(at, address)
        self.memory.allocations.insert(at, placed)
        self.arrays.append(bytes_)
    bound = Region(np.zeros(max(self.code.parameter_bytes, 1), np.uint8), "the parameters")
    for parameter, raw in zip(self.code.parameters, launch.parameters, strict=True):
        bound.data[parameter.offset : parameter.offset + parameter.size] = np.frombuffer(
            launch.with_maps(raw, self.maps), np.uint8
        )
    return bound


def only(text: str, entry: str) -> str:
    """A text without its other kernels: large programs have dozens."""
    kept = []
    for part in re.split(r"(?m)^(?=\.(?:visible |weak )?\.?(?:entry|func)|\s*// \.globl)", text):
        named = re.search(r"\.entry\s+([\w$]+)", part)
        kept.append(part if named is None or named[1] == entry else part[part.rfind("\n}\n") + 3 :])
    return "".join(kept)


def text_of(entry: str, paths: list[Path]) -> str:
    """The kernel's text from the files that hold it. Raises SystemExit where none does."""
    for path in paths:
        text = path.read_text()
        if re.search(rf"\.entry\s+{re.escape(entry)}\s*\(", text):
            return only(text, entry)
    raise SystemExit(f"no PTX text has the kernel {entry}")


def runs(launch: Launch, text: str, checked: bool, max_steps: int = STEPS) -> Callable[[str, int], Report]:
    """A function that runs the launch on a copy of its memory, under a schedule."""
    codes, model = loaded(text, "text.ptx", launch.entry), Model(sms=int(os.environ["CAPTURED_SMS"]))
    sanitizers: list[Sanitizer] = []

    def sanitizer(machine: Any) -> Sanitizer:
        sanitizers[:] = [Sanitizer(machine)]
        return sanitizers[0]

    def once(schedule: str, seed: int, unwritten: bytes = POISON, watch: Any = None) -> Report:
        arguments = [(launch, [bytes_.copy() for _, bytes_ in launch.buffers])]
        with patch.object(Binder, "bind", bind), patch.object(Binder, "place_own", lambda *_: None):
            return api.run(
                codes, launch.entry, arguments, **launch.shape, detailed=checked, schedule=schedule, seed=seed,
                model=model, unwritten=unwritten,
                watch=[each for each in (sanitizer if checked else None, watch) if each],
                max_steps=max_steps, written_in_front=launch.written,
            )  # fmt: skip

    def judged(schedule: str, seed: int) -> Report:
        """With the second runs that `warploom.emulate` makes before it calls something an error."""
        report = once(schedule, seed)
        if not checked:
            return report
        reads = sanitizers[0].loose_reads()
        report = settled(report, lambda other: once(schedule, seed, other))
        again = (once(schedule, seed, watch=partial(PerturbedLoads, reads=reads, spoil=spoil)) for spoil in SPOILS)
        return unused_reads(report, reads, again)

    return judged


def done(folder: Path, entry: str) -> bool:
    """True if as many launches of the kernel as wanted have been checked."""
    rows = folder / "rows.jsonl"
    read = [json.loads(line) for line in rows.read_text().splitlines()] if rows.is_file() else []
    checked = {row["launch"] for row in read if row["entry"] == entry and row["checked"]}
    return len(checked) >= int(os.environ["CAPTURED_MOST"])


def after_front(launch: Launch, folder: Path, paths: list[Path]) -> Launch:
    """The launch, dependent on the previous one only if that lets it start early (PTX ISA 9.7.13.13); what that one
    wrote is then told from the memory that it found and left."""
    front = folder.with_name(f"L{int(folder.name[1:]) - 1:03d}")
    early = launch.shape.get("dependent") and front.is_dir()
    if not early or "griddepcontrol.launch_dependents" not in text_of(Launch.read(front).entry, paths):
        launch.shape["dependent"] = False
        return launch
    after, at = np.fromfile(front / "after.bin", np.uint8), 0
    for address, before in Launch.read(front).buffers:
        if (after[at : at + before.size] != before).any():
            launch.written.append(launch.variables.get(address, (f"buffer {address:#x}", False))[0])
        at += before.size
    return launch


def main() -> int:
    folder = Path(sys.argv[1])
    paths = [Path(path) for path in os.environ["CAPTURED_TEXTS"].split(":")]
    launch = after_front(Launch.read(folder), folder, paths)
    text = text_of(launch.entry, paths)
    checked = bool(re.search(os.environ["CAPTURED_ONLY"], launch.entry)) and not done(folder.parent, launch.entry)
    run = runs(launch, text, checked)
    first: bytes | None = None
    for pair in (os.environ["CAPTURED_SCHEDULES"] if checked else "eager:0").split():
        schedule, seed = pair.split(":")
        stopped, findings = "", []
        try:
            report = run(schedule, int(seed))
            findings = list(report.findings)
        except EmulationError as error:
            stopped, findings = str(error), [*error.findings, Finding.of_error(error)]
        except WarploomError as error:
            stopped = str(error)
        after = b"" if stopped else b"".join(array.tobytes() for array in report.outputs)
        if first is None and not stopped:
            first = after
            (folder / "after.bin").write_bytes(after)
            with folder.with_name(KNOWN).open("a") as known:
                print(folder.name, *launch.used, file=known)
        errors = {finding.rule for finding in findings if finding.severity == "error"}
        row = {
            "launch": folder.name, "entry": launch.entry, "schedule": f"{schedule} {seed}", "checked": checked,
            "stopped": stopped, "same": after == first, "errors": sorted(errors),
            "warnings": sorted({finding.rule for finding in findings} - errors),
        }  # fmt: skip
        with (folder.parent / "rows.jsonl").open("a") as out:
            print(json.dumps(row), file=out)
        with (folder / "findings.txt").open("a") as out:
            print(f"# {schedule} {seed}", *(as_text(render(one)) for one in findings), sep="\n\n", file=out)
    return first is None


if __name__ == "__main__":
    sys.exit(main())
