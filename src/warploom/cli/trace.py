"""`trace`: the timeline of a kernel, as a page, for Perfetto, or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import runtime
from ..errors import ArgumentError
from . import check, find, sizes
from .described import described
from .output import say, say_json
from .sizes import headings, say_under
from .still import still

if TYPE_CHECKING:
    from ..timing import Traced


def trace(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.py|FILE.ptx|MODULE...",
            help="A kernel with an example(), a text with its launch description, a rung of the ladder; several are "
            "shown one above the other on the same clock.",
        ),
    ],
    html: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write the page to this file.")] = None,
    perfetto: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write a trace for ui.perfetto.dev to this file.")
    ] = None,
    launch: Annotated[
        Path | None, typer.Option(help="Launch description of a text; FILE.launch.toml next to it by default.")
    ] = None,
    size: Annotated[str, typer.Option(help="For a rung of the ladder: 512, or 512x768x256 (M, N, K).")] = "",
    clusters: Annotated[int, typer.Option(help="Number of the grid's first clusters to run; others repeat them.")] = 1,
    check_it: Annotated[bool, typer.Option("--check/--no-check", help="Let the sanitizer watch.")] = True,
    sass: Annotated[
        bool, typer.Option("--sass/--no-sass", help="Show machine code, if ptxas and nvdisasm are installed.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show who waited for what in a launch, and what ended it.

    The times are those of the model of an H200; no GPU is used.

    Example: warploom trace examples/walkthrough_gemm.py --html trace.html

    Example: warploom trace warploom.kernels.ladder.r19_stmatrix warploom.kernels.ladder.r20_ping_pong --html steps.html
    """
    traced = [one for target in targets for one in _traced(target, launch, size, clusters, check_it, sass)]
    found = [one for one, _ in traced]
    names = Counter(one.kernel for one in found)
    for one, arguments in traced:
        one.arguments = sizes.shapes(arguments) if names[one.kernel] > 1 else ""
    if perfetto is not None and len(found) > 1:  # before anything is written
        raise ArgumentError("--perfetto takes one launch", expected="one kernel", got=f"{len(found)} kernels")
    if html is not None:
        with _written(html):
            found[-1].to_html(html, above=found[:-1])
    if perfetto is not None:
        with _written(perfetto):
            found[0].to_perfetto(perfetto)
    if as_json:
        say_json([one.as_dict() for one in found])
        return
    for one, heading in zip(found, headings([(one.kernel, arguments) for one, arguments in traced]), strict=True):
        say_under(heading, str(one))
    for path in (html, perfetto):
        if path is not None:
            say(f"wrote {path}")


def _traced(
    target: str, launch: Path | None, size: str, clusters: int, checked: bool, sass: bool
) -> Iterator[tuple[Traced, Sequence[Any]]]:  # fmt: skip
    """The launches that a target names, with their arguments."""
    place, name = find.split(target)
    options: dict[str, Any] = {"clusters": clusters, "check": checked, "sass": sass}
    if Path(place).suffix == ".ptx":
        if size:
            raise _no_size(size)
        yield _text(Path(place), name, launch, options)
        return
    module = find.load(place)
    folders = [Path(str(module.__file__)).parent]
    with find.running(place, "has an example that fails"):
        runs = _runs(module, name, size)
    if not runs:
        raise check.without_arguments(target, module, "trace")
    for kernel, arguments in runs:
        with find.running(place, "cannot be traced"), still(f"recording {target}"):
            traced = runtime.trace(kernel, *arguments, folders=folders, **options)
        yield traced, arguments


def _runs(module: Any, name: str, size: str) -> list[tuple[Any, Any]]:
    """Kernels with their arguments; for a file with several sets of arguments, the first of each kernel."""
    if size:
        return [_rung(module, size)]
    kernels = check.named(module, name) if name else find.kernels_of(module)
    found: dict[int, tuple[Any, Any]] = {}
    for run in check.examples(module, kernels, name):
        if run.arguments is not None:
            found.setdefault(id(run.kernel), (run.kernel, run.arguments))
    return list(found.values())


def _rung(module: Any, size: str) -> tuple[Any, Any]:
    """A rung of the ladder at a size."""
    from ..kernels import ladder
    from ..lab import ladder_runner

    package, _, name = module.__name__.rpartition(".")
    words = size.split("x")
    if package != ladder.__name__:
        raise _no_size(size)
    if len(words) not in (1, 3) or not all(word.isdigit() for word in words):
        raise ArgumentError("--size is not a size", expected="--size 512 or --size 512x768x256 (M, N, K)", got=size)
    m, n, k = (int(word) for word in words * (3 // len(words)))
    rung = ladder.find(name)
    return rung.build(), ladder_runner.operands(rung, m, n, k)


def _no_size(size: str) -> ArgumentError:
    return ArgumentError("--size needs a rung of the ladder", expected="a module of warploom.kernels.ladder", got=size)


def _text(
    path: Path, entry: str, launch: Path | None, options: dict[str, Any]
) -> tuple[Traced, Sequence[Any]]:  # fmt: skip
    """A PTX text under its launch description, and the arguments."""
    program, arguments = described(path, entry, launch, "a trace")
    with still(f"recording {path}"):
        return runtime.trace(program, *arguments, folders=[path.parent], **options), arguments


@contextmanager
def _written(path: Path) -> Iterator[None]:
    from ..lab.evidence import writing

    with writing(path):
        yield
