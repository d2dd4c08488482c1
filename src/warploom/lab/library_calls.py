"""Our contender as a user calls it: `warploom.matmul` and `linear`, which choose the kernel.

The choice is queried from the library, so that an evidence row can name it and rebuild it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .. import operators
from ..errors import WarploomError
from ..kernels.hopper import block_scaled, free_tile, grouped, small_m
from ..kernels.hopper import gemm as large
from ..kernels.hopper.description import Config
from ..kernels.hopper.free_tile_config import FreeTileConfig
from ..kernels.hopper.small_m_config import SmallMConfig
from ..operators import select
from ..operators.spec.gpu import EMULATED, Gpu, gpu_of
from .contender import Prepared
from .evidence import facts
from .operands import Operands
from .recipe import recipe
from .work import GemmWork


def prepare(
    problem: GemmWork, sets: Sequence[Operands], pdl: bool | None = None, constant_weights: bool = False,
    pinned: Config | SmallMConfig | FreeTileConfig | None = None,
) -> Prepared:  # fmt: skip
    """Calls through the library. Raises the library's errors.

    pinned: a configuration instead of the one that the library chooses.

    pdl: dependent launch on or off; constant_weights: promise that B is not written while it is read. Both change the
    library's configuration, which the calls then pin.
    """
    if problem.kind == "grouped":
        return grouped_products(problem, sets, pdl, pinned)
    changed = pdl is not None or constant_weights or pinned is not None
    try:
        config = changed_config(pinned or chosen_config(problem, gpu(sets)), pdl, constant_weights)
        found, program = built(problem, config)
    except WarploomError:  # it may use more than one kernel; then there is no single text
        if changed:
            raise
        return Prepared([call_of(problem, o) for o in sets], "matmul")
    calls = [call_of(problem, o, config if changed else None) for o in sets]
    plain = problem.kind == "gemm" and not problem.scales
    arguments = [((o.a, o.b), o.out) for o in sets] if plain else []
    names = {SmallMConfig: "small_m", FreeTileConfig: "free_tile"}
    kernel = f"hopper_{names.get(type(config)) or config.kernel_schedule}"
    return Prepared(calls, kernel, config.name(), found, program if plain else None, arguments)


def grouped_products(problem: GemmWork, sets: Sequence[Operands], pdl: bool | None, pinned: Any = None) -> Prepared:
    """Calls of `grouped_matmul`."""
    asked, config = problem.posed, pinned or chosen_config(problem, gpu(sets))
    if pdl is not None:
        config = replace(config, pdl=pdl)
    arguments = asked.product, config, asked.fusion, asked.limits
    found = facts(grouped.build(*arguments), recipe(grouped.build, *arguments))
    return Prepared([call_of(problem, o, config) for o in sets], "hopper_grouped", config.name(), found)


def gpu(sets: Sequence[Operands]) -> Gpu:
    """The GPU of the operands; the emulated one if they are in CPU memory."""
    return EMULATED if sets[0].a.device.type == "cpu" else gpu_of(sets[0].a.device.index)


def chosen_config(problem: GemmWork, where: Gpu) -> Any:
    """The configuration that the library runs for a problem on a GPU."""
    return operators.choose(problem.posed, where).config


def changed_config(config: Any, pdl: bool | None, constant_weights: bool) -> Any:
    """The configuration with the requested dependent launch, and with the promise if it supports one."""
    small = isinstance(config, SmallMConfig)
    if pdl is not None:
        config = replace(config, trigger="start" if pdl else "off") if small else replace(config, pdl=pdl)
    return select.promised(config) if constant_weights else config


def built(problem: GemmWork, config: Any) -> tuple[dict[str, Any], Any]:
    """(facts of the kernel of a configuration, its program)."""
    asked = problem.posed
    kernel = select.kernel_of(asked, config)
    if asked.promoted:
        return facts(kernel, recipe(block_scaled.build, asked.product, config)), kernel.program()
    builders: dict[type, Any] = {SmallMConfig: small_m.build, FreeTileConfig: free_tile.build, Config: large.build}
    return facts(kernel, recipe(builders[type(config)], asked.product, config, asked.fusion)), kernel.program()


def call_of(problem: GemmWork, o: Operands, config: Any = None) -> Callable[[], object]:
    """One call of the public function for this problem; config: instead of the library's choice."""
    if problem.kind == "gemm":
        matmul, a, b, out, scale_a = operators.matmul, o.a, o.b.T, o.out, o.scale_a
        if config is not None and not problem.scales:
            return lambda: matmul(a, b, out=out, config=config)
        if not problem.scales:
            return lambda: matmul(a, b, out=out)
        scale_b = o.scale_b if problem.scales == "tensor" else o.scale_b.T
        if config is None:
            return lambda: matmul(a, b, out=out, scale_a=scale_a, scale_b=scale_b)
        return lambda: matmul(a, b, out=out, scale_a=scale_a, scale_b=scale_b, config=config)
    if problem.kind == "gelu":
        return lambda: operators.linear(o.a, o.b, o.bias, activation="gelu", out=o.out, config=config)
    if problem.kind == "swiglu":
        # two launches: the gate's product takes the other one as its gate
        up = o.out.new_empty(o.out.shape)

        def call() -> None:
            operators.linear(o.a, o.up, out=up)
            operators.linear(o.a, o.b, activation="silu", gate=up, out=o.out, config=config)

        return call
    weights = o.b.mT
    if not problem.scales:
        return lambda: operators.grouped_matmul(o.a, weights, offsets=o.ends, out=o.out, config=config)
    scale_b = o.scale_b.mT
    return lambda: operators.grouped_matmul(
        o.a, weights, offsets=o.ends, out=o.out, scale_a=o.scale_a, scale_b=scale_b, config=config
    )
