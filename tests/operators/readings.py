"""What large-product kernels read on H200s, as ratios to cuBLAS: to hold the model to, whose constants they gave.

`READINGS` are of a prototype, random order in 50 ms slices. Its tiles were those of `TILES`, all with dependent launch
or near enough, and its figures are good to about 1.5 %. `readings()` are of the finished kernels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from warploom.kernels.hopper.description import Config, Fusion
from warploom.kernels.hopper.names import large_config
from warploom.operators import Problem

TILES = (
    Config("cooperative", 128, 256, stages=4, epi_stages=2, ctas=2, multicast="b"),
    Config("cooperative", 256, 128, stages=4, epi_stages=2, ctas=2, multicast="a"),
    Config("ping_pong", 128, 192, stages=5, epi_stages=1, ctas=2, multicast="b"),
    Config("ping_pong", 128, 128, stages=6, epi_stages=1, ctas=2, multicast="b"),
    Config("staggered", 256, 128, stages=4, epi_stages=2, ctas=2, multicast="a"),
    Config("staggered", 256, 192, stages=3, epi_stages=3, ctas=2, multicast="a"),
    Config("cooperative", 256, 192, stages=3, epi_stages=3, ctas=2, multicast="a"),
)

READINGS = {
    (8192, 8192, 8192): (1.044, 1.031, 1.055, 0.977, 1.031, 1.017, 1.017),
    (4096, 4096, 4096): (1.005, 1.012, 0.906, 1.010, 0.999, 0.914, 0.903),
    (2048, 2048, 2048): (0.961, 0.979, 0.713, 0.969, 0.962, 0.713, 0.720),
    (4096, 14336, 4096): (1.012, 1.016, 0.995, 1.013, 1.016, 0.960, 0.948),
    (4096, 4096, 14336): (0.993, 1.010, 0.884, 0.963, 0.986, 0.915, 0.913),
    (8192, 28672, 8192): (1.014, 1.001, 1.016, 1.000, 1.008, 1.012, 1.009),
    (8192, 8192, 1024): (1.073, 1.060, 1.174, 1.151, 1.110, 1.073, 1.034),
    (4096, 4096, 2048): (1.015, 1.020, 0.946, 1.027, 1.026, 0.941, 0.925),
    (4096, 6144, 4096): (0.999, 1.013, 1.020, 1.018, 1.006, 1.016, 1.003),
    (4096, 7168, 2048): (1.015, 1.028, 0.987, 1.053, 1.030, 0.966, 0.936),
    (4096, 2112, 7168): (0.717, 0.705, 0.918, 0.796, 0.712, 0.718, 0.699),
    (2048, 7168, 4096): (0.865, 0.858, 0.893, 0.969, 0.856, 0.758, 0.736),
    (1024, 4096, 4096): (0.996, 1.023, 0.670, 0.996, 0.999, 0.682, 0.675),
    (16384, 4096, 1536): (1.042, 1.056, 1.084, 1.114, 1.066, 1.049, 1.008),
    (8192, 10240, 8192): (1.020, 1.026, 1.000, 1.038, 1.013, 0.980, 0.959),
    (16384, 16384, 16384): (1.013, 1.010, 0.975, 0.954, 0.992, 1.035, 1.001),
}


FILE = Path(__file__).with_name("readings_h200.json")
"""What the finished kernels read on an H200, as ratios to cuBLAS (to torch._scaled_mm with the same scales, for eight
bits): each configuration's [interleaved] or [interleaved, alone], means over up to four runs."""


@dataclass(frozen=True)
class Readings:
    """One shape's configurations, and their readings by name."""

    problem: Problem
    configs: dict[str, Config]
    interleaved: dict[str, float]
    alone: dict[str, float]

    def share_of_best(self, name: str) -> float:
        """How a configuration did: the mean of both protocols next to the best such mean, where it was timed by both;
        else interleaved next to the best of that."""
        both = {each: (self.interleaved[each] + alone) / 2 for each, alone in self.alone.items()}
        scores = both if name in both else self.interleaved
        return scores[name] / max(scores.values())


def readings() -> list[Readings]:
    """All of the file."""
    found = []
    for row in json.loads(FILE.read_text()):
        fusion = Fusion(scales=row["scales"] or None)
        read = row["readings"]
        found.append(
            Readings(
                Problem.of(*row["shape"], row["dtype"], fusion=fusion),
                {name: large_config(name) for name in read},
                {name: each[0] for name, each in read.items()},
                {name: each[1] for name, each in read.items() if len(each) > 1},
            )
        )
    return found
