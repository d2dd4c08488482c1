"""`wrong-result` counts the wrong elements, shows the first, finds the pattern and names likely causes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from warploom.testing.wrong_result import wrong_result

RANDOM = np.random.default_rng(7)
EXPECTED = RANDOM.standard_normal((128, 128))


def tiles(axes: tuple[int, ...]) -> np.ndarray:
    """The expected result with the dimensions (tile row, tile column, row, column) of its 8 x 8 tiles exchanged."""
    cut = EXPECTED.reshape(16, 8, 16, 8).swapaxes(1, 2).transpose(axes)
    return cut.swapaxes(1, 2).reshape(128, 128)


def swizzled() -> np.ndarray:
    """The expected result with its chunks of 8 elements exchanged as the 128B swizzle does it, except in every 8th."""
    places = np.arange(16)[None, :] ^ (np.arange(128)[:, None] & 7)
    return np.take_along_axis(EXPECTED.reshape(128, 16, 8), places[:, :, None], axis=1).reshape(128, 128)


def found(got: np.ndarray, expected: np.ndarray = EXPECTED) -> dict[str, str]:
    """The notes of the finding, causes joined; `summary` is the count."""

    def run() -> None:  # the caller's frame, which the finding leaves out
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-6)

    with pytest.raises(AssertionError) as raised:
        run()
    finding = wrong_result(raised.value)
    assert finding.rule == "wrong-result" and finding.severity == "error"
    notes: dict[str, str] = {"summary": finding.summary}
    for label, text in finding.notes:
        notes[label] = f"{notes[label]}; {text}" if label in notes else text
    return notes


def changed(change: Callable[[np.ndarray], None]) -> np.ndarray:
    got = EXPECTED.copy()
    change(got)
    return got


def test_it_counts_the_wrong_elements_and_shows_the_first() -> None:
    got = EXPECTED.copy()
    got[3, 5] += 1
    got[100, 7] -= 4
    notes = found(got)
    assert "2 of 16384" in notes["summary"]
    assert notes["first"] == "[3, 5]"
    assert float(notes["expected"]) == pytest.approx(EXPECTED[3, 5], rel=1e-4)
    assert float(notes["got"]) == pytest.approx(EXPECTED[3, 5] + 1, rel=1e-4)
    assert float(notes["largest difference"]) == pytest.approx(4)


def test_no_difference_is_shown_if_all_are_nan() -> None:
    assert "largest difference" not in found(np.full_like(EXPECTED, np.nan))


def test_whole_wrong_tiles_are_named() -> None:
    def change(got: np.ndarray) -> None:
        got[0:64, 64:128] += 1

    assert "1 of 4 tiles of 64 x 64: (0, 1)" in found(changed(change))["where"]


@pytest.mark.parametrize(
    "got, cause",
    [
        (np.where(np.arange(128) < 64, EXPECTED, np.nan), "NaN"),
        (np.where(np.arange(128) < 64, EXPECTED, 0.0), "never stored"),
        (EXPECTED.T, "transpose"),
        (2 * EXPECTED, "2 times"),
        (np.roll(EXPECTED, 64, axis=1), "tile (0, 0) of 128 x 64 holds the values of tile (0, 1)"),
        (tiles((1, 0, 2, 3)), "row and column of the tile are swapped"),
        (tiles((0, 1, 3, 2)), "each wrong tile of 8 x 8 is the transpose"),
        (EXPECTED[np.arange(128) ^ 1], "rows are swapped with those 1 further"),
        (EXPECTED[:, np.arange(128) ^ 1], "columns are swapped with those 1 further"),
        (swizzled(), "chunks of 16 bytes are swapped in a row"),
        (np.block([[EXPECTED[:64, :64], EXPECTED[64:, :64]], [EXPECTED[:64, 64:], EXPECTED[64:, 64:]]]), "tile (1, 0)"),
        (np.block([[EXPECTED[:64, :64], EXPECTED[:64, 127:63:-1]], [EXPECTED[64:, :64], EXPECTED[64:, 64:]]]),
         "tile (0, 1) has the right values"),
        (np.where(np.arange(128)[:, None] < 120, EXPECTED, EXPECTED + 3), "last rows"),
    ],
    ids=["poison", "not-stored", "transposed", "scaled", "moved", "coordinates", "fragments", "rows", "columns",
         "chunks", "tiles-exchanged", "swizzled", "edge"],
)  # fmt: skip
def test_the_likely_cause_is_named(got: np.ndarray, cause: str) -> None:
    assert cause in found(got)["likely cause"]


def test_an_assertion_without_arrays_keeps_its_own_words() -> None:
    def run() -> None:
        assert EXPECTED is None, "my own words"

    with pytest.raises(AssertionError) as raised:
        run()
    finding = wrong_result(raised.value)
    assert finding.rule == "wrong-result" and "my own words" in finding.message


def test_tensors_that_torch_compared_are_compared_by_tile_too() -> None:
    torch = pytest.importorskip("torch")
    got = EXPECTED.copy()
    got[64:, :64] = 0

    def run() -> None:
        torch.testing.assert_close(torch.tensor(got), torch.tensor(EXPECTED))

    with pytest.raises(AssertionError) as raised:
        run()
    assert "(1, 0)" in wrong_result(raised.value).message


def test_elements_that_are_their_neighbours() -> None:
    expected = RANDOM.standard_normal(100)
    got = expected.copy()
    got[32:64] = expected[33:65]
    assert "the element after them" in found(got, expected)["likely cause"]


def test_the_first_wrong_matrix_of_several_is_looked_at() -> None:
    expected = np.stack([EXPECTED, RANDOM.standard_normal((128, 128))])
    got = expected.copy()
    got[1, :64], got[1, 64:] = expected[1, 64:], expected[1, :64]
    assert "tile (0, 0) of 64 x 128 holds the values of tile (1, 0)" in found(got, expected)["likely cause"]


def test_constant_data_say_nothing_of_places() -> None:
    expected = np.kron(np.indices((16, 16)).sum(0) % 2, np.ones((8, 8)))
    notes = found(expected[::-1], expected)
    assert "holds the values" not in notes.get("likely cause", "")
