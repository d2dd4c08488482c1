"""Mutants of the package's kernels are found by the right rule, or are equivalent for a reason given here."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from warploom import asm
from warploom.asm.mutate import Mutant, mutants
from warploom.errors import EmulationError
from warploom.kernels import walkthrough, warp_specialised
from warploom.kernels.ladder import r15_multicast, r19_stmatrix
from warploom.runtime import H200, emulate

SMALL = H200(sms=2)
"""Few places, so that a persistent CTA has several tiles and its buffers are used again."""
SCHEDULES = [("lazy", 0), ("random", 0), ("starve", 1)]
DEADLOCK = "DeadlockError"
RIGHT = {
    "drop-proxy-fence": {"generic-write-before-async-read", "generic-write-before-wgmma-read",
                         "generic-access-before-async-write"},
    "drop-wgmma-fence": {"missing-wgmma-fence"},
    "drop-commit": {"operand-overwritten", "wgmma-register-in-flight", "exit-with-pending-work",
                    "store-source-overwritten", "cp-async-not-waited"},
    "drop-wgmma-wait": {"operand-overwritten", "wgmma-register-in-flight"},
    "wait-for-less": {"operand-overwritten", "wgmma-register-in-flight", "store-source-overwritten",
                      "exit-with-pending-work", "cp-async-not-waited"},
    "wait-before-commit": {"operand-overwritten", "wgmma-register-in-flight"},
    "release-before-wait": {"operand-overwritten"},
    "drop-copy-wait": {"cp-async-not-waited"},
    "drop-store-wait": {"store-source-overwritten", "exit-with-pending-work"},
    "drop-barrier": {"data-race", "mbarrier-init-not-visible", "store-source-overwritten",
                     "generic-write-before-async-read"},
    "drop-arrival": {DEADLOCK},
    "drop-expect": {"byte-count-mismatch"},
    "drop-wait": {"copy-not-waited", "overlapping-copies", "operand-overwritten", "surplus-arrival"},
    "flip-phase": {"stale-phase-wait", "overlapping-copies", "operand-overwritten", "surplus-arrival", DEADLOCK},
    "change-bytes": {"byte-count-mismatch", "bytes-in-later-phase"},
    "change-count": {DEADLOCK, "operand-overwritten", "surplus-arrival", "phase-not-observed"},
    "change-swizzle": {"layout-mismatch", "InvalidOperandError"},
    "drop-cluster-barrier": {"mbarrier-init-not-visible", "cta-may-have-exited"},
}  # fmt: skip
"""The rules that name each mutation rightly."""


def kernels() -> dict[str, tuple[object, int, int, int]]:
    return {
        "walkthrough": (walkthrough.build_gemm_m64n64(64, 64, 48), 64, 64, 48),
        "warp_specialised": (warp_specialised.build(), 128, 128, 512),
        "multicast": (r15_multicast.build(), 512, 512, 512),
        "stmatrix": (r19_stmatrix.build(), 512, 512, 512),
    }


EQUIVALENT = {
    ("walkthrough", "drop-proxy-fence"): "mbarrier operations are of the generic proxy: bar.sync alone orders the init",
    ("walkthrough", "drop-barrier"): "behind the first k-tile the wait on the tile's own barrier orders everything",
    ("walkthrough", "drop-wgmma-fence"): "behind the first k-tile the accumulator is a chain of one shape (9.7.15.7.1)",
    ("warp_specialised", "drop-init-fence"): "within one CTA bar.sync orders the initialisation",
    ("multicast", "drop-init-fence"): "barrier.cluster.arrive releases by itself",
    ("stmatrix", "drop-init-fence"): "likewise",
    ("stmatrix", "wait-for-reads-only"): "the exit needs the sources to have been read, and nobody reads C",
    ("multicast", "release-before-wait"): "the last release of a tile: nobody fills the stage again",
    ("multicast", "drop-arrival"): "likewise",
}
"""What is not found in some places of a kernel, and the edge that makes the mutant right."""


def found(name: str, mutant: Mutant, known: set[str]) -> set[str]:
    """What is found beyond what the kernel itself is told, under the first schedule that tells anything."""
    kernel, m, n, k = KERNELS[name]
    program = replace(kernel.program(), text=mutant.module.to_text(line_info=True))
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    if name == "walkthrough":
        b = np.ascontiguousarray(b.T)
    rules: set[str] = set()
    for schedule, seed in SCHEDULES:
        try:
            report = emulate(program, a, b, check=True, schedule=schedule, seed=seed, machine=SMALL)
            rules |= {finding.rule for finding in report.findings if finding.severity != "performance"}
        except EmulationError as error:
            rules |= {type(error).__name__, *(finding.rule for finding in error.findings)}
        if rules - known:
            break
    return rules - known


KERNELS = kernels()


def every(name: str) -> list[Mutant]:
    program = KERNELS[name][0].program()
    return list(mutants(asm.parse(program.text, name=name)))


def judge(name: str, chosen: list[Mutant]) -> list[str]:
    """The mutants that were not found by a right rule and are not known to be equivalent."""
    known = {"remote-arrival-scope"}
    missed = []
    for mutant in chosen:
        rules = found(name, mutant, known)
        if not rules & RIGHT.get(mutant.kind, set()) and (rules or (name, mutant.kind) not in EQUIVALENT):
            missed.append(f"{mutant} -> {sorted(rules)}")
    return missed


@pytest.mark.parametrize("name", ["walkthrough", "warp_specialised"])
def test_every_mutant_is_found_by_the_right_rule(name: str):
    assert judge(name, every(name)) == []


@pytest.mark.parametrize("name", ["multicast", "stmatrix"])
def test_every_seventh_mutant_of_a_large_kernel_is_found(name: str):
    assert judge(name, every(name)[::7]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multicast", "stmatrix"])
def test_every_mutant_of_a_large_kernel_is_found(name: str):
    assert judge(name, every(name)) == []


def test_dropping_the_proxy_fence_before_a_tma_store_is_found_at_the_store():
    fences = [mutant for mutant in every("stmatrix") if mutant.kind == "drop-proxy-fence"]
    assert fences
    assert "generic-write-before-async-read" in found("stmatrix", fences[-1], set())
