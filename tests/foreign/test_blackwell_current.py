"""Kernels of today's Triton and Gluon for sm_100a (`blackwell/kernels.py`): right numbers, no error. None ran on hardware.

A run of CI each week compiles them anew by the newest Triton.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.foreign.blackwell_arguments import atoms, descriptor
from warploom import asm
from warploom.emulator import api
from warploom.emulator.machine.model import Model
from warploom.isa import dtypes
from warploom.sanitizer import Sanitizer
from warploom.testing import check_text

FOLDER = Path(__file__).parent / "blackwell" / "current"
LAUNCHES: dict[str, dict[str, int]] = json.loads((FOLDER / "launches.json").read_text())
SCHEDULES = [("lazy", 0), ("eager", 0), ("random", 1), ("starve", 101), ("pct", 3)]
KNOWN = {"generic-access-before-async-write", "same-value-race", "uninitialised-register", "remote-arrival-scope"}
"""Warnings that are true of them, see `test_blackwell`. Packed values have a half that nobody writes or reads; of a pair
one CTA arrives at the other's barrier with the scope of a CTA."""
NVFP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


@dataclass
class Case:
    """A launch: its arguments, the CTAs of its grid, what it writes, and what that must be."""

    arguments: list[Any]
    grid: tuple[int, int]
    out: np.ndarray
    expected: np.ndarray


Make = Callable[[np.random.Generator], Case]


def product(element: Any, dtype: dtypes.DType, tile: tuple[int, int, int], ctas: int = 1, listed: str = "K") -> Make:
    """C = A B^T of 2 x 2 tiles, three steps of k; of a cluster each CTA has an equal part of the boxes' rows.

    listed: the numbers behind the descriptors, and whether tiles stand in a list.
    """

    def make(random: np.random.Generator) -> Case:
        m, n, k = 2 * tile[0], 2 * tile[1], 3 * tile[2]
        a, b = (random.standard_normal((rows, k)).astype(element) for rows in (m, n))
        c = np.zeros((m, n), np.float16)
        maps = [
            *descriptor(a, tile[0] // ctas, dtype), *descriptor(b, tile[1] // ctas, dtype),
            *descriptor(c, tile[0] // ctas),
        ]  # fmt: skip
        values = {"M": m, "N": n, "K": k, "across": 2}
        grid = (2 * ctas, 2) if listed == "K" else (4, 1) if "across" in listed else (3, 1)
        return Case([*maps, *(np.uint32(values[name]) for name in listed.split())], grid, c, a.astype(float) @ b.astype(float).T)

    return make


def by_pointers(random: np.random.Generator) -> Case:
    a, b = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((256, 192), (192, 128)))
    c = np.zeros((256, 128), np.float16)
    return Case([a, b, c, *(np.uint32(size) for size in (192, 192, 128, 128))], (2, 2), c, a.astype(float) @ b.astype(float))


def factors(random: np.random.Generator, rows: int, blocks: int, nvfp4: bool) -> tuple[np.ndarray, np.ndarray]:
    """Scale factors as bytes, and what they are: ue4m3 in nvfp4, ue8m0 in mxfp8."""
    if nvfp4:
        bits = random.integers(40, 72, (rows, blocks)).astype(np.uint8)
        return bits, bits.view(ml_dtypes.float8_e4m3fn).astype(float)
    bits = random.integers(124, 131, (rows, blocks)).astype(np.uint8)
    return bits, 2.0 ** (bits.astype(float) - 127)


def scaled(nvfp4: bool) -> Make:
    """mxfp8 (e4m3, a ue8m0 factor for 32) or nvfp4 (e2m1, a ue4m3 factor for 16)."""

    def make(random: np.random.Generator) -> Case:
        m, n, k, block = 256, 128, 512, 16 if nvfp4 else 32
        sides, scales = [], []
        for rows in (m, n):
            bits, real = factors(random, rows, k // block, nvfp4)
            if nvfp4:
                stored = random.integers(0, 256, (rows, k // 2)).astype(np.uint8)
                values = np.stack([NVFP4[stored & 15], NVFP4[stored >> 4]], -1).reshape(rows, k)
            else:
                stored = random.standard_normal((rows, k)).astype(ml_dtypes.float8_e4m3fn)
                values = stored.astype(float)
            sides.append((stored, values * np.repeat(real, block, 1)))
            scales.append(atoms(bits))
        c = np.zeros((m, n), np.float16)
        dtype = dtypes.u8 if nvfp4 else dtypes.e4m3
        maps = [*descriptor(sides[0][0], 128, dtype), *descriptor(sides[1][0], 128, dtype), *descriptor(c, 128)]
        exact = sides[0][1] @ sides[1][1].T
        return Case([*maps, *scales, np.uint32(k)], (2, 1), c, exact)

    return make


def attention(causal: bool) -> Make:
    """Two heads of 256 queries and keys, 64 wide."""

    def make(random: np.random.Generator) -> Case:
        heads, length, width = 2, 256, 64
        q, k, v = (random.standard_normal((heads * length, width)).astype(np.float16) for _ in range(3))
        out = np.zeros_like(q)
        maps = [*descriptor(q, 128), *descriptor(k, 64), *descriptor(v, 64), *descriptor(out, 128)]
        qs, ks, vs = (x.astype(float).reshape(heads, length, width) for x in (q, k, v))
        score = np.einsum("hik,hjk->hij", qs, ks) / 8
        if causal:
            score = np.where(np.tri(length, dtype=bool), score, -np.inf)
        part = np.exp(score - score.max(-1, keepdims=True))
        exact = np.einsum("hij,hjk->hik", part / part.sum(-1, keepdims=True), vs).reshape(out.shape)
        return Case([*maps, np.uint32(length), np.float32(1 / 8)], (2, heads), out, exact)

    return make


F16 = (np.float16, dtypes.f16)
CASES: dict[str, Make] = {
    "descriptors_f16": product(*F16, (128, 64, 64)),
    "descriptors_e4m3": product(ml_dtypes.float8_e4m3fn, dtypes.e4m3, (128, 128, 128)),
    "pointers_bf16": by_pointers,
    "specialised_f16": product(*F16, (128, 64, 64)),
    "persistent_f16": product(*F16, (128, 64, 64), listed="M N K"),
    "mxfp8": scaled(nvfp4=False),
    "nvfp4": scaled(nvfp4=True),
    "attention": attention(causal=False),
    "causal_attention_roles": attention(causal=True),
    "gluon_pair_256x128": product(*F16, (256, 128, 64), ctas=2),
    "gluon_pair_128x128": product(*F16, (128, 128, 64), ctas=2),
    "gluon_launch_control": product(*F16, (128, 64, 64), listed="K across"),
}


def check(name: str, schedule: str, seed: int, control: str = "schedule") -> None:
    """Run a text with all checks on, and compare."""
    case, launch = CASES[name](np.random.default_rng(0)), LAUNCHES[name]
    assert launch["scratch"] == 0
    report = api.run(
        asm.parse((FOLDER / f"{name}.ptx").read_text(), name=name), None,
        [*case.arguments, np.uint64(0), np.uint64(0)], grid=(*case.grid, 1), block=(launch["threads"], 1, 1),
        dynamic_smem=launch["shared"], schedule=schedule, seed=seed, watch=[Sanitizer],
        model=Model(sms=2, max_ctas_per_sm=1 if "control" in name else 32, launch_control=control),
    )  # fmt: skip
    near = 2**-9 if "attention" in name else 2**-10  # P is rounded to f16, too
    np.testing.assert_allclose(
        case.out.astype(float), case.expected, rtol=near, atol=near * np.abs(case.expected).max()
    )
    assert {finding.rule for finding in report.findings} <= KNOWN
    assert not [finding for finding in report.findings if finding.severity == "error"]


@pytest.mark.sample(4, all=4)
@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])
@pytest.mark.parametrize("name", CASES)
def test_a_text_gives_numpys_numbers_and_breaks_no_rule(name: str, schedule: str, seed: int):
    check(name, schedule, seed)


@pytest.mark.parametrize("control", ["grant", "decline", "random"])
def test_launch_control_may_say_no(control: str):
    """Half of the CTAs wait for room: of the four, two or none are started where requests are granted or not."""
    check("gluon_launch_control", "random", 2, control)


@pytest.mark.sample(2, full=4)
@pytest.mark.parametrize("name", CASES)
def test_its_launch_description_says_what_is_right(name: str):
    """As `warploom check` runs it, and as bugs are planted in it."""
    assert check_text(FOLDER / f"{name}.ptx").errors == []


def test_every_text_has_a_case():
    assert {path.stem for path in FOLDER.glob("*.ptx")} == set(CASES) == set(LAUNCHES)
    assert {path.name.removesuffix(".launch.toml") for path in FOLDER.glob("*.toml")} == set(CASES)
