"""Time kernels of attention and of its gradients and the SM clock that they count, with random data and with zeros.

    python benchmarks/kernel_clocks.py [--only PART …] [--seconds S] [--out kernel-clocks.json]

The other evidence of attention has no clock, so a prediction's clocks and its power cannot be judged apart. With zeros
the power cap does not act, and time is clocks. The kernel adds in any order here: in a fixed order, a
launch needs counters that another kernel clears.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
from predict_sets import outputs_for, zeros_for  # noqa: E402

from warploom.kernels.hopper.attention import build as build_forward  # noqa: E402
from warploom.kernels.hopper.attention_backward import build  # noqa: E402
from warploom.kernels.hopper.attention_backward_config import backward_config  # noqa: E402
from warploom.kernels.hopper.attention_config import section  # noqa: E402
from warploom.lab import evidence  # noqa: E402
from warploom.lab.attention_contenders import subject  # noqa: E402
from warploom.lab.attention_problem import ForwardProblem  # noqa: E402

LOG2_E = math.log2(math.e)
BACKWARD = tuple(ForwardProblem(dim, 4096, False) for dim in (128, 64, 96))
FORWARD = (
    *(ForwardProblem(128, length, False) for length in (2048, 16384)), ForwardProblem(128, 4096, False, "f16"),
    *(ForwardProblem(dim, 4096, False) for dim in (64, 96, 256)), ForwardProblem(128, 16384, True),
    ForwardProblem(256, 16384, True),
)  # fmt: skip
Made = tuple[str, Any, dict[str, int], dict[str, Any]]


def kernels() -> Iterator[Made]:
    """The name, the kernel, the sizes of its arrays and its scalars."""
    for case in FORWARD:
        (b, h, n, _), of = case.sizes, subject(case)
        numbers = {"scale": LOG2_E / math.sqrt(case.head_dim), "section": section(of, case.causal, n, h, h), "last": 0}
        yield f"attention {case.name}", build_forward(of), {"B": b, "S": n, "T": n, "H": h, "G": h, "N": 1}, numbers
    for case in BACKWARD:
        (b, h, n, _), of = case.sizes, subject(case)
        config = replace(backward_config(of), deterministic=False)
        padded = config.padded(n)
        sizes = {"B": b, "S": n, "T": n, "H": h, "G": h, "P": padded, "N": 1,
                 "W": config.sum_elements(of, padded), "places": config.turns(b * h, padded)}  # fmt: skip
        scale = LOG2_E / math.sqrt(case.head_dim)
        yield f"attention_backward {case.name}", build(of, config), sizes, {"scale": scale, "factor": 1.0, "section": 8}


def arguments(made: Made, data: str, device: str) -> tuple[list[Any], tuple[Any, ...], dict[str, Any]]:
    """The inputs, outputs and scalars; lse2 is about what random scores have."""
    import torch

    _, kernel, sizes, numbers = made

    def moved(array: np.ndarray, name: str) -> Any:
        dtype = getattr(torch, array.dtype.name)
        if data == "normal" and dtype in (torch.bfloat16, torch.float16):
            return torch.randn(array.shape, device=device, dtype=dtype)
        level = (math.log(sizes["T"]) + 0.5) * LOG2_E if name == "lse2" else 0.0
        return torch.full(array.shape, level, device=device).to(dtype)

    names = [array.name for array in kernel.program().arrays if array.role in ("in", "inout")]
    inputs = [moved(array, name) for name, array in zip(names, zeros_for(kernel, sizes), strict=True)]
    outputs = tuple(moved(array, "") for array in outputs_for(kernel, sizes))
    known = {parameter.source for parameter in kernel.program().scalars}
    return inputs, outputs, {name: value for name, value in numbers.items() if name in known}


def assembled(number: int) -> None:
    from warploom.runtime.on_gpu import build as built

    built(list(kernels())[number][1].program())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--out", type=Path, default=Path("kernel-clocks.json"))
    options = parser.parse_args()
    import torch

    from warploom.runtime.benchmark.power import driver_version

    wanted = {
        number: one for number, one in enumerate(kernels())
        if not options.only or any(part in one[0] for part in options.only)
    }  # fmt: skip
    with ProcessPoolExecutor() as pool:
        list(pool.map(assembled, wanted))
    head = evidence.header("kernel-clocks", gpu=torch.cuda.get_device_name(), driver=driver_version())
    rows: list[dict[str, Any]] = []
    for made in wanted.values():
        for data in ("normal", "zeros"):
            inputs, outputs, scalars = arguments(made, data, "cuda")
            for protocol in ("alone", "burst") if data == "normal" else ("alone",):
                found = made[1].time(
                    *inputs, out=outputs if len(outputs) > 1 else outputs[0], protocol=protocol,
                    seconds=options.seconds, launch="stream", **scalars,
                ).as_dict()  # fmt: skip
                us, watts = next(iter(found["us"].values())), next(iter(found["power_w"].values()), None)
                rows.append({"kernel": made[0], "data": data, "protocol": protocol, "us": us,
                             "kernel_clock_mhz": found["kernel_clock_mhz"], "power_w": watts})  # fmt: skip
                print(rows[-1], flush=True)
                evidence.write(options.out, head, rows)


if __name__ == "__main__":
    main()
