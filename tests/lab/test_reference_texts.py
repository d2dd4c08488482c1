"""The benchmark of the reference texts without a GPU: the contenders, and every launch on a small product."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks import reference_texts as program  # noqa: E402
from benchmarks import render, status  # noqa: E402
from tests.driver.mock_gpu import IMPORTED  # noqa: E402
from tests.operators.conftest import TENSORS  # noqa: E402
from warploom import operators  # noqa: E402
from warploom.kernels.hopper.small_m_config import SmallMConfig  # noqa: E402
from warploom.lab import evidence, operands  # noqa: E402
from warploom.lab.roofline import grouped  # noqa: E402
from warploom.runtime import TensorMap  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "foreign" / "reference"
SMS = 132
NO_BEAT: Any = lambda who, seconds=0.0: None  # noqa: E731

duels = pytest.mark.parametrize("duel", program.DUELS, ids=lambda duel: duel.text)


# -- who against whom ----------------------------------------------------------------------------------------------


def test_every_text_is_timed() -> None:
    assert sorted(duel.text for duel in program.DUELS) == sorted(path.stem for path in FOLDER.glob("*.ptx"))


@duels
def test_the_kernel_of_the_same_idea_has_the_texts_tile_cluster_threads_and_shared_memory(duel: program.Duel) -> None:
    """Shared memory is that of stages and store boxes; barriers and factors of a tile take less than a box."""
    kernel, config = duel.kernel, program.same_idea(duel, duel.problem(duel.shapes[0]))
    product = duel.problem(duel.shapes[0]).posed.product
    if isinstance(config, SmallMConfig):
        assert (config.tokens, config.rows, config.split_k, config.threads) == (kernel.rows, 64, kernel.split, 160)
        bytes_ = config.shared_bytes()
    else:
        assert (config.tile_m, config.tile_n, product.tile_k) == kernel.tile
        assert (config.cluster_tile, config.threads) == (kernel.unit, kernel.threads)
        assert config.group == program.GROUP
        bytes_ = config.shared_bytes(product)
    assert abs(bytes_ - kernel.shared) < 4096


@duels
def test_ours_is_launched_dependently_where_the_readme_says_that_the_text_is(duel: program.Duel) -> None:
    (line,) = re.findall(rf"^\| {duel.text} \|.*$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    told = line.rstrip(" |").endswith("yes") or "decode" in duel.text
    problem = duel.problem(duel.shapes[0])
    assert program.Reference(duel.kernel).program(problem, SMS).pdl == told
    assert program.same_idea(duel, problem).pdl == told


@duels
def test_at_every_shape_the_text_fills_the_gpu_and_ours_fits(duel: program.Duel) -> None:
    for shape in duel.shapes:
        problem = duel.problem(shape)
        operators.choose(problem.posed, pinned=program.same_idea(duel, problem))
        grid = program.Reference(duel.kernel).program(problem, SMS).grid
        assert grid == ((problem.n // 64 * duel.kernel.split, 1, 1) if "decode" in duel.text else (SMS, 1, 1))


@duels
def test_no_cluster_is_launched_without_a_tile(duel: program.Duel) -> None:
    """Each begins with a tile of the list, whether there is one or not."""
    kernel, problem = duel.kernel, duel.small
    if "decode" not in duel.text:
        assert (problem.m, problem.n) == kernel.unit
        assert program.Reference(kernel).program(problem, SMS).grid == (kernel.cluster[0] * kernel.cluster[1], 1, 1)


def test_the_tiles_of_a_text_come_in_bands_back_and_forth() -> None:
    kernel = program.TEXTS["bf16_cooperative_128x256"]
    rows, columns = kernel.unit
    tiles = [(tile & 0xFFFF, tile >> 16) for tile in kernel.tiles(10 * rows, 2 * columns, grouped(program.GROUP))]
    assert tiles == [*((row, column) for column in (0, 1) for row in range(8)), (8, 1), (9, 1), (8, 0), (9, 0)]


# -- launches ------------------------------------------------------------------------------------------------------


@duels
def test_torch_tensors_and_numpy_arrays_give_the_same_arguments(duel: program.Duel) -> None:
    (made,) = operands.make(duel.small, device="cpu")
    host = [_as_numpy(array) for array in (made.a, made.b, made.out)]
    scales = [torch.ones(1), torch.ones(1)] if duel.small.scales else []
    of_torch = duel.kernel.arguments(made.a, made.b, made.out, *scales)
    of_numpy = duel.kernel.arguments(*host, *(scale.numpy() for scale in scales))
    assert len(of_torch) == len(of_numpy)
    for one, other in zip(of_torch, of_numpy, strict=True):
        if isinstance(one, TensorMap):
            assert one.spec == other.spec and np.array_equal(_bytes(one.array.host), _bytes(other.array.host))
        elif isinstance(one, torch.Tensor):
            assert np.array_equal(_bytes(_as_numpy(one)), _bytes(other))
        else:
            assert np.array_equal(one, other) and one.dtype == other.dtype


def _as_numpy(tensor: Any) -> np.ndarray:
    from warploom.runtime import view

    host = view(tensor).host
    assert host is not None
    return host


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


@pytest.mark.usefixtures("needs_ptxas")
def test_each_set_of_operands_has_a_launch_of_its_own() -> None:
    duel = next(duel for duel in program.DUELS if duel.text == "bf16_decode_m16")
    sets = operands.make(duel.small, sets=2, device="cpu")
    prepared = program.Reference(duel.kernel).prepare(duel.small, sets, NO_BEAT)
    for o in sets:
        o.out.fill_(float("nan"))
    prepared.calls[1]()
    assert sets[0].out.isnan().all()
    assert operands.reference(duel.small, sets[1]).errors(sets[1].out)[1]


@pytest.mark.sample(0, all=1)
@duels
def test_a_run_holds_all_three_against_the_exact_result_and_says_of_each_what_it_was(
    duel: program.Duel, tmp_path: Path
) -> None:
    path = tmp_path / "reference-texts.json"
    program.main(["--pretend", "--texts", duel.text, "--out", str(path)])
    found = evidence.read(path)
    rows = found["rows"]
    assert (found["failed"], found["missing"]) == ([], [])
    assert [(row["provider"], row["protocol"]) for row in rows] == [
        (name, protocol) for protocol in program.PROTOCOLS for name in (program.REFERENCE, program.SAME, program.CHOSEN)
    ]
    for row in rows:
        assert row["text"] == duel.text and row["relative_error"] < 3e-3
        assert row["ratio_to"] == {program.REFERENCE: 1.0}, "on the pretended clock all calls take as long"
        assert status.judge(row) == ("", True)
    theirs, ours = rows[:2]
    assert theirs["text_sha256"] == evidence.ptx_sha256((FOLDER / f"{duel.text}.ptx").read_text())
    assert ours["config"] == program.same_idea(duel, duel.problem(duel.shapes[0])).name()
    assert theirs["pdl"] == ours["pdl"]
    line = render.kernels.reference_texts(found)[2]
    assert line.startswith(f"| {duel.text}") and ours["config"] in line and line.count(" 1.000 ") == 4


@pytest.mark.usefixtures("needs_ptxas")
def test_a_later_run_takes_the_place_of_the_same_texts_rows(tmp_path: Path) -> None:
    path = tmp_path / "reference-texts.json"
    for text in ("bf16_decode_m16", "bf16_decode_m8_splitk2", "bf16_decode_m16"):
        program.main(["--pretend", "--texts", text, "--append", "--out", str(path)])
    rows = evidence.read(path)["rows"]
    assert [(row["text"], row["run"]) for row in rows[::6]] == [("bf16_decode_m8_splitk2", 1), ("bf16_decode_m16", 2)]
    assert len({evidence.identity({**rows[0], "text": text}) for text in program.TEXTS}) == len(program.TEXTS)


def test_what_matmul_chooses_is_left_out_where_it_is_the_same_kernel() -> None:
    (duel,) = (duel for duel in program.DUELS if duel.text == "fp8_pingpong_128x192")
    problem = duel.problem(duel.shapes[0])
    assert "the kernel of the same idea" in str(program.Chosen(duel).missing(problem))
    assert program.Chosen(duel).missing(duel.small) is None


def test_rows_that_were_measured_are_of_the_texts_that_are_there() -> None:
    if not program.OUT.exists():
        pytest.skip("not measured yet")
    for row in evidence.read(program.OUT)["rows"]:
        if row["provider"] == program.REFERENCE:
            assert row["text_sha256"] == evidence.ptx_sha256((FOLDER / f"{row['text']}.ptx").read_text())


# -- the way to the GPU, with a driver that only writes down its calls ---------------------------------------

LAUNCHES = f"""
import os, sys
sys.path[:0] = [{str(ROOT)!r}]
from benchmarks import reference_texts as program
from warploom.lab.operands import Operands
class Stream:
    cuda_stream = 0x50
torch.cuda.synchronize = lambda: None
torch.cuda.current_stream = lambda: Stream
kinds = {{"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}}
for duel in program.DUELS:
    with open(os.environ["FAKE_CUDA_LOG"], "a") as log:
        log.write(f"text {{duel.text}}\\n")
    problem = duel.problem(duel.shapes[0])
    o = Operands(torch.empty(problem.m, problem.k, dtype=kinds[problem.dtype]),
                 torch.empty(problem.n, problem.k, dtype=kinds[problem.dtype]),
                 torch.empty(problem.m, problem.n, dtype=torch.bfloat16))
    if problem.scales:
        blocks = (problem.m, problem.k // 128), (problem.n // 128, problem.k // 128)
        o.scale_a, o.scale_b = map(torch.ones, blocks if problem.scales == "block128" else ((), ()))
    beats = []
    (call,) = program.Reference(duel.kernel).prepare(problem, [o], lambda *beat: beats.append(beat)).calls
    call()
    assert beats[-1] == (duel.text + ", first launch", 20.0), beats
"""


@pytest.mark.slow
@pytest.mark.usefixtures("needs_ptxas")
def test_on_a_gpu_every_text_is_launched_as_it_says_at_once_and_again_on_the_stream_of_the_time(pretend: Any) -> None:
    log = "\n".join(pretend(TENSORS + LAUNCHES, imported=IMPORTED))
    asked = dict(part.split("\n", 1) for part in log.split("text ")[1:])
    assert list(asked) == [duel.text for duel in program.DUELS]
    for duel in program.DUELS:
        problem = duel.problem(duel.shapes[0])
        launched = program.Reference(duel.kernel).program(problem, SMS)
        shape = f"grid {launched.grid[0]} 1 1 block {launched.block[0]} 1 1 smem {duel.kernel.shared}"
        rest = " cluster 2 1 1" * (launched.cluster != (1, 1, 1)) + " pdl 1" * launched.pdl
        lines = re.sub(r" first \w+", "", asked[duel.text]).splitlines()
        wanted = [f"launch {shape} stream {stream}{rest}" for stream in ("40", "50")]
        assert [line for line in lines if line.startswith("launch")] == wanted
        maps = re.findall(r"dims (\d+) (\d+) stride (\d+) box (\d+) (\d+) swizzle 3", asked[duel.text])
        assert sorted(tuple(map(int, each)) for each in maps) == sorted(maps_of(duel)), duel.text


def maps_of(duel: program.Duel) -> list[tuple[int, ...]]:
    """Extents, stride in bytes and box of the tensor maps of a launch, from the README's table."""
    kernel, (m, n, k) = duel.kernel, duel.shapes[0]
    if "decode" in duel.text:
        return [(k, n, 2 * k, 64, 64), (k, m, 2 * k, 64, kernel.rows)]
    width = 1 if duel.problem((m, n, k)).scales else 2
    a, b = ((k, rows, width * k, 128 // width, box) for rows, box in zip((m, n), kernel.boxes, strict=True))
    return [a, b, (n, m, 2 * n, 64, 64)]
