"""The sanitizer's findings in texts that warploom did not write: none for compilers, some for the prototypes.

docs/measured-facts.md explains the findings in the prototypes. nvcc's texts run with the sanitizer on in their own
tests (`cuda_texts.run`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.foreign.reference_kernels import FOLDER
from warploom.emulator.machine.finding import Finding
from warploom.runtime import emulate, launch_file

TRITON = Path(__file__).parent / "triton"
SCHEDULES = ("lazy", "eager", "random")
PEER, WARP, GRID = "remote-arrival-scope", "warp-synchronous", "before-grid-wait"
REFERENCE: dict[str, set[tuple[str, int]]] = {
    "bf16_cooperative_128x256": {(PEER, line) for line in (215, 223, 391, 399)}
    | {(GRID, line) for line in (160, 172, 348)},
    "bf16_decode_m16": {(GRID, line) for line in (47, 49)},
    "bf16_decode_m8_splitk2": {(GRID, line) for line in (42, 44)},
    "bf16_pingpong_128x192": {(PEER, line) for line in (240, 249, 509, 518)},
    "bf16_staggered_256x128": {(PEER, line) for line in (239, 277, 358, 462, 470, 829, 867, 948, 1052, 1060)},
    "bf16_staggered_256x192": {(PEER, line) for line in (237, 275, 378, 504, 512, 959, 997, 1100, 1226, 1234)},
    "fp8_block128_192x128": {(WARP, line) for line in (133, 240, 468, 695)},
    "fp8_pingpong_128x192": {(PEER, line) for line in (245, 254, 514, 523)}
    | {(GRID, line) for line in (163, 170, 437)},
    "fp8_staggered_256x128": {(PEER, line) for line in (244, 282, 363, 467, 475, 834, 872, 953, 1057, 1065)}
    | {(GRID, line) for line in (161, 168, 174, 764)},
}
"""Rules and the lines they name, all of them warnings."""


def findings(text: Path, schedule: str) -> list[Finding]:
    """All that is wrong or fragile; what is slow is left out."""
    description = launch_file.read(launch_file.beside(text))
    program = description.program(text.read_text(), text.name)
    report = emulate(program, *description.arguments(program), check=True, schedule=schedule)
    return [finding for finding in report.findings if finding.severity != "performance"]


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", REFERENCE)
def test_the_findings_in_a_reference_text_are_the_known_ones(name: str, schedule: str) -> None:
    """A buffer touched before the wait for the previous grid is reported once, by the instruction that comes first."""
    found = findings(FOLDER / f"{name}.ptx", schedule)
    places = {(finding.rule, place.line) for finding in found for place in finding.locations}
    grid = {known for known in REFERENCE[name] if known[0] == GRID}
    assert places - grid == REFERENCE[name] - grid and bool(places & grid) == bool(grid)
    assert {finding.severity for finding in found} <= {"warning"}


def test_no_reference_text_is_left_out() -> None:
    assert {path.stem for path in FOLDER.glob("*.ptx")} == set(REFERENCE)


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("path", sorted(TRITON.glob("*.ptx")), ids=lambda path: path.stem)
def test_nothing_is_wrong_with_what_triton_writes(path: Path, schedule: str) -> None:
    """But that its histogram lets several warps store the same numbers."""
    allowed = {"same-value-race"} if path.stem.startswith("scans") else set()
    assert {finding.rule for finding in findings(path, schedule)} <= allowed
