"""The cost of a gate and an addend: each candidate is timed with each epilogue."""

from __future__ import annotations

from itertools import count

from benchmarks import fused_ends
from warploom.operators.spec.gpu import EMULATED

SIZE = (128, 4096, 4096)


def test_every_candidate_is_timed_with_every_end_and_refusals_are_left_out(monkeypatch, capsys):
    times, refused = count(1), []

    def time_on_gpu(problem, configs, device, rounds, step):
        refused.append(configs[-1])
        return {config: float(next(times)) for config in configs[:-1]}, {configs[-1].name(): "no room"}

    monkeypatch.setattr(fused_ends, "time_on_gpu", time_on_gpu)
    rows = fused_ends.rows(SIZE, EMULATED)
    of = {end: {row["config"] for row in rows if row["end"] == end} for end in fused_ends.ENDS}
    assert of["gate"] == of["addend"] == of["plain"] and len(of["plain"]) > fused_ends.OF_A_FAMILY
    assert [row["us"] for row in rows] == [float(at + 1) for at in range(len(rows))]
    assert all(row["expected_us"] > 0 and (row["m"], row["n"], row["k"]) == SIZE for row in rows)
    assert len(set(refused)) == 1 and capsys.readouterr().out.count(refused[0].name()) == 3
