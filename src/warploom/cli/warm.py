"""`warm`: build the kernels of a model's products in advance, on all cores."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ArgumentError, NoGpuError, WarploomError
from ..plural import counted
from .ignored import refuse_ignored
from .output import say, say_json
from .product import DTYPES, GROUPS, sizes_of

if TYPE_CHECKING:
    from ..collective.epilogue.spec import Fusion
    from ..operators.spec.problem import Problem

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended, as in shells."""
ROWS = "1,16,64,256,1024,8192"


def warm(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL|MxNxK,...|M N K", help="A model of the catalogue, such as Llama-3-8B, or sizes of products."
        ),
    ],
    rows: Annotated[str, typer.Option(help="For a model: rows of A, comma-separated.")] = ROWS,
    dtype: Annotated[str, typer.Option(help=f"{DTYPES}.")] = "bf16",
    scales: Annotated[str, typer.Option(help="For eight-bit floats: tensor, row or block128.")] = "",
    shards: Annotated[int, typer.Option(help="For a model: number of GPUs that shard its layers.")] = 1,
    fused: Annotated[
        bool, typer.Option(help="For a model: also what `warploom.torch.convert` fuses: epilogues, experts.")
    ] = True,
    groups: Annotated[int, typer.Option(help=f"For sizes: {GROUPS[0].lower()}{GROUPS[1:]}")] = 0,
    workers: Annotated[int, typer.Option(help="Processes; 0: one per core.")] = 0,
    device: Annotated[int, typer.Option(help="Number of the GPU; without one, kernels are built for an H200.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Build the kernels of a model ahead of its first call.

    These are the kernels that matmul and grouped_matmul will run; they stay in the cache, and no call waits for ptxas.

    Example: warploom warm Llama-3-8B --rows 1,16,8192

    Example: warploom warm 256x6144x4096,8192x4096x4096
    """
    from ..operators.spec.gpu import EMULATED, gpu_of
    from ..operators.warm import warm as build

    try:
        gpu = gpu_of(device)
        where = f"on {gpu.name}"
    except NoGpuError:
        gpu, where = EMULATED, f"for an {EMULATED.name}, since there is no GPU here"
    if workers < 0:
        raise ArgumentError("the number of workers is negative", expected="--workers of at least 0", got=workers)
    wanted = problems_of(one_word(what), rows, dtype, scales, shards, fused, groups)
    try:
        found = build(wanted, gpu, workers=workers or None)
    except KeyboardInterrupt:
        typer.echo("interrupted: finished builds are in the cache, and the same command continues from there", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        say_json({"gpu": asdict(gpu), **asdict(found)})
    else:
        say(
            f"{counted(found.products, 'product')} {where}: {counted(found.kernels, 'kernel')}, "
            f"{found.built} built now, in {found.folder}"
        )
        for problem, reason in found.failed.items():
            say(f"  {problem} failed: {reason}")
    if found.failed:
        raise typer.Exit(1)


def one_word(words: list[str]) -> str:
    """The model or the sizes as one word. Raises ArgumentError for several words that are not M N K."""
    return words[0] if len(words) == 1 else "x".join(map(str, sizes_of(words)))


def problems_of(
    what: str, rows: str, dtype: str, scales: str, shards: int, fused: bool, groups: int = 0
) -> list[Problem]:  # fmt: skip
    """The products of a model or a list of sizes. Raises ArgumentError for anything else."""
    from dataclasses import replace

    from ..collective.epilogue.spec import Fusion
    from ..lab import catalogue
    from ..lab.work import GemmWork, parse_shapes
    from ..operators.spec.problem import Problem
    from ..operators.spec.validation import check_together

    fusion = Fusion(scales=scales or None)
    if what[:1].isdigit():
        refuse_ignored("sizes say what to build; a model has rows, shards and fused layers",
                       {"--rows": (rows, ROWS), "--shards": (shards, 1), "--no-fused": (fused, True)})  # fmt: skip
        sizes = [(each.m, each.n, each.k, fusion, groups) for each in parse_shapes(what, GemmWork(1, 1, 1))]
    else:
        refuse_ignored("a model says how many experts it has", {"--groups": (groups, 0)})
        layers = [(m, layer) for m in _rows(rows) for layer in catalogue.layers_of(what, shards)]
        sizes = [(m, layer.n, layer.k, each, 0) for m, layer in layers for each in _ends(layer.name, fusion, fused)]
        sizes += [(m * layer.of_token, layer.n, layer.k, fusion, layer.experts)
                  for m, layer in layers if fused and layer.experts]  # fmt: skip
    found = [replace(Problem.of(m, n, k, dtype), fusion=end, groups=each) for m, n, k, end, each in sizes]
    if what[:1].isdigit():
        for problem in found:
            check_together(problem)
    else:
        check_together(replace(found[0], fusion=fusion, groups=0))
    return [problem for problem in found if _is_computed(problem)]


def _is_computed(problem: Problem) -> bool:
    """False for an epilogue that the product's kernels do not have: convert does not fuse it either."""
    from ..operators.spec.validation import check_together

    try:
        check_together(problem)
    except WarploomError:
        return False
    return True


def _rows(text: str) -> list[int]:
    try:
        found = [int(each) for each in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise ArgumentError("--rows is not a list of rows", expected="positive integers, such as 1,16,8192",
                            got=repr(text))  # fmt: skip
    return found


def _ends(layer: str, fusion: Fusion, fused: bool) -> list[Fusion]:
    """The epilogues of a layer's product in a converted model, and the plain product."""
    from dataclasses import replace

    more: dict[str, dict[str, Any]] = {
        "output": {"addend": True},
        "down": {"addend": True},
        "gate": {"activation": "silu", "gate": True},
    }
    ends = [fusion]
    if fused and layer in more:
        ends.append(replace(fusion, **more[layer]))
    return ends
