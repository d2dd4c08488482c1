"""The emulator in hardware numerics gives the same bits as an H200, for whole kernels."""

from __future__ import annotations

import json

import pytest

from tests.conformance.whole_kernels import RECORDED, Whole, cases, fingerprint
from warploom.runtime.machine import H200

CASES = list(cases())
GOLDEN = json.loads(RECORDED.read_text())["sha256"]


def test_every_kernel_is_recorded_and_nothing_else():
    assert sorted(GOLDEN) == sorted(case.name for case in CASES)


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_bits_as_the_gpu(case: Whole):
    report = case.kernel.emulate(*case.arguments, check=False, numerics="hardware", machine=H200(sms=2))
    assert fingerprint(report.outputs[0]) == GOLDEN[case.name]
