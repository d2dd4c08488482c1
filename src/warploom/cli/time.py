"""`time`: how long a kernel takes on the GPU, next to the user's own callable; or a prediction."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ArgumentError
from . import check, find
from .described import described
from .output import say, say_json
from .sizes import headings, say_under, shapes
from .still import still


def time(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py|FILE.ptx",
            help="FILE.py, FILE.py:KERNEL or MODULE:KERNEL, with an example(); with --predict also a text with its "
            "launch description.",
        ),
    ],
    against: Annotated[
        list[str] | None,
        typer.Option(help="A function of the file, or MODULE:NAME (torch:mm), called with the kernel's inputs."),
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="alone (the default), interleaved or burst.")] = None,
    seconds: Annotated[float | None, typer.Option(help="For the kernel, and for each callable; 2 by default.")] = None,
    launch: Annotated[
        str, typer.Option(help="graph or stream; graph if torch is installed; for a text its launch description.")
    ] = "",
    predict: Annotated[
        bool, typer.Option("--predict", help="Predict time, clock, power and waits on an H200; no GPU is used.")
    ] = False,
    clusters: Annotated[
        int | None,
        typer.Option(help="With --predict: number of the grid's first clusters to record; others repeat them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time a kernel on the GPU, or predict its time on an H200.

    With the arguments of its example: microseconds, power, SM clock, ratios to other functions.

    Example: warploom time examples/walkthrough_gemm.py --against torch:mm --protocol interleaved

    Example: warploom time examples/walkthrough_gemm.py --predict

    Example: warploom time dump/gemm.ptx --predict
    """
    from ..runtime.benchmark.protocols import check_protocol
    from ..runtime.benchmark.watchdog import HANG, Watchdog

    if protocol is not None:
        check_protocol(protocol)
    _refuse(predict, {"--against": against or None, "--protocol": protocol, "--seconds": seconds}, clusters)
    recorded = 1 if clusters is None else clusters
    place, name = find.split(target)
    if Path(place).suffix == ".ptx":
        _predict_text(Path(place), name, Path(launch) if launch else None, predict, recorded, as_json)
        return
    if predict and launch:
        raise ArgumentError("--launch does not apply to a prediction of a Python file", got=f"--launch {launch}")
    module = find.load(place)
    kernels = check.named(module, name) if name else find.kernels_of(module)
    with find.running(place, "has an example that fails"):
        runs = [run for run in check.examples(module, kernels, name) if run.arguments is not None]
    if not runs:
        raise check.without_arguments(target, module, "time")
    if predict:
        _predict(runs, place, recorded, as_json)
        return
    seconds = 2.0 if seconds is None else seconds
    others = {spec: _callable(spec, module) for spec in against or ()}

    def hang(who: str) -> None:
        print(
            f"warploom time: no answer from the GPU for a while: {who}; exit code {HANG}", file=sys.stderr, flush=True
        )

    timings = []
    for run, heading in zip(runs, headings([(run.name, run.arguments or ()) for run in runs]), strict=True):
        with Watchdog(hang, limit_s=60 + 4 * seconds * (1 + len(others))), find.running(place, "cannot be timed"):
            timings.append(
                run.kernel.time(
                    *(run.arguments or ()), against=others, protocol=protocol or "alone", seconds=seconds, launch=launch
                )
            )
        if not as_json:
            say_under(heading, str(timings[-1]))
    if as_json:
        say_json(_with_arguments(runs, timings))


def _refuse(predict: bool, measured: dict[str, Any], clusters: int | None) -> None:
    """Raise ArgumentError for options of a measurement next to --predict, and for --clusters without it."""
    given = [name for name, value in measured.items() if value is not None]
    if predict and given:
        raise ArgumentError(
            f"{' and '.join(given)} cannot be used with --predict, which times nothing",
            expected=f"--predict or {given[0]}",
        )
    if clusters is not None and not predict:
        raise ArgumentError("--clusters needs --predict", got=f"--clusters {clusters}")


def _predict(runs: list[Any], place: str, clusters: int, as_json: bool) -> None:
    """Print the model's prediction for an H200 for each kernel with the arguments of its example."""
    found = []
    for run, heading in zip(runs, headings([(run.name, run.arguments or ()) for run in runs]), strict=True):
        with find.running(place, "cannot be predicted"), still(f"recording {run.name}"):
            found.append(run.kernel.predict(*(run.arguments or ()), clusters=clusters))
        if not as_json:
            say_under(heading, str(found[-1]))
    if as_json:
        say_json(_with_arguments(runs, found))


def _with_arguments(runs: list[Any], results: list[Any]) -> list[dict[str, Any]]:
    return [
        result.as_dict() | {"arguments": shapes(run.arguments or ())} for run, result in zip(runs, results, strict=True)
    ]


def _predict_text(path: Path, entry: str, launch: Path | None, asked: bool, clusters: int, as_json: bool) -> None:
    """Print the model's prediction for a text under its launch description."""
    from .. import runtime

    if not asked:
        raise ArgumentError(
            f"{path} is a text, whose time can only be predicted", expected=f"warploom time {path} --predict",
            hint="to time a text on a GPU, launch it from Python: warploom.launch, or Kernel.time of a kernel",
        )  # fmt: skip
    program, arguments = described(path, entry, launch, "a prediction")
    with still(f"recording {path}"):
        found = runtime.predict(program, *arguments, clusters=clusters)
    if as_json:
        say_json([found.as_dict() | {"guessed": program.guessed}])
        return
    say(str(found))
    if program.guessed:
        say(f"  note    {program.guessed} has guesses: sizes and values decide the time")


def _callable(spec: str, module: Any) -> Callable[..., object]:
    """The function that `--against` names. Raises ArgumentError if there is none."""
    place, name = find.split(spec)
    home = find.load(place) if name else module
    found = getattr(home, name or spec, None)
    if not callable(found):
        raise ArgumentError(
            "--against names nothing callable", expected="a function of the file, or MODULE:NAME", got=spec
        )
    return found
