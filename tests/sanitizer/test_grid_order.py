"""Severity of accesses to global memory before griddepcontrol.wait: it depends on the launch and on the access."""

from __future__ import annotations

import numpy as np
import pytest

from warploom import asm
from warploom.emulator import api
from warploom.sanitizer import Sanitizer
from warploom.sanitizer.rules import Example

READ = "mad.wide.u32 %d0, %idx, 4, %data;\nld.global.u32 %r0, [%d0];\n"
WRITE = "mad.wide.u32 %d0, %idx, 4, %data;\nst.global.u32 [%d0], %idx;\n"
STRONG = READ.replace("ld.", "ld.relaxed.gpu.")
WAIT = "griddepcontrol.wait;\n"

FIRST_WAITS = "@%first griddepcontrol.wait;\n"
FETCH = """
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 1024, [bar];
"""
READY = "@%first mbarrier.init.shared::cta.b64 [bar], 1;\nbar.sync 0;\n"
FETCHED = "wait_0:\nmbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;\n@!%p0 bra wait_0;\n"


def severities(body: str, dependent: bool | None, in_front: tuple[str, ...] = ()) -> set[str]:
    """Of the findings about the order of grids."""
    report = api.run(
        asm.parse(Example(body).text(), name="k.ptx"), "k", [np.zeros(2048, np.uint32)], grid=(1, 1, 1),
        block=(128, 1, 1), watch=[Sanitizer], dependent=dependent, written_in_front=in_front,
    )  # fmt: skip
    return {finding.severity for finding in report.findings if finding.rule == "before-grid-wait"}


@pytest.mark.parametrize(
    "body, dependent, severity",
    [
        (READ, None, None),
        (READ + WAIT, None, "warning"),
        (READ + WAIT, False, None),
        (READ + WAIT, True, "warning"),
        (READ, True, "error"),
        (READ + "@%first griddepcontrol.wait;\n", True, "error"),
        (READ + "@%first griddepcontrol.wait;\nbar.sync 0;\n", True, "warning"),
        (WRITE + WAIT, None, "warning"),
        (WRITE + WAIT, False, None),
        (WRITE + WAIT, True, "error"),
        (WAIT + READ + WRITE, True, None),
        (STRONG + WAIT, None, None),
        (STRONG + WAIT, True, None),
        (STRONG, True, "error"),
        (READY + FIRST_WAITS + FETCH + FETCHED + WRITE, True, None),
        (READY + FIRST_WAITS + FETCH + WRITE + FETCHED, True, "error"),
        (READY + FETCH + FIRST_WAITS + FETCHED + WRITE, True, "error warning"),
    ],
)
def test_severity(body: str, dependent: bool | None, severity: str | None) -> None:
    assert severities(body, dependent) == set((severity or "").split())


@pytest.mark.parametrize(
    "body, in_front, severity",
    [
        (READ + WAIT, "data", "error"),
        (READ + WAIT, "weights", None),
        (READ, "weights", None),
        (WRITE + WAIT, "weights", "error"),
        (WAIT + READ + WRITE, "data", None),
        (READ + FIRST_WAITS + "bar.sync 0;\n", "data", "error"),
        (FIRST_WAITS + "bar.sync 0;\n" + READ, "data", None),
    ],
)
def test_what_the_grid_in_front_writes(body: str, in_front: str, severity: str | None) -> None:
    assert severities(body, True, (in_front,)) == ({severity} if severity else set())


def test_a_buffer_is_told_once_for_reads_and_once_for_writes() -> None:
    """A loop over tiles, unrolled, has dozens of copies in front of the wait."""
    report = api.run(
        asm.parse(Example(READ * 3 + WRITE * 2 + WAIT).text(), name="k.ptx"), "k", [np.zeros(2048, np.uint32)],
        grid=(1, 1, 1), block=(128, 1, 1), watch=[Sanitizer], dependent=True,
    )  # fmt: skip
    found = [finding for finding in report.findings if finding.rule == "before-grid-wait"]
    assert sorted((finding.severity, finding.count) for finding in found) == [("error", 8), ("warning", 12)]
