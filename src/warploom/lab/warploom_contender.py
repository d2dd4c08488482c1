"""Our own contender: what `warploom.matmul` runs, a pinned configuration of the Hopper GEMM, or a rung of the ladder.

(nothing)                              what the library chooses
constant-weights                       the same, promising that B is not written while it is read (small M)
no-pdl                                 the same, with each kernel starting after the previous one has ended
rung:19                                a rung
small_m:tokens=16,split=2              a configuration by the name that tables show
kernel_schedule=ping_pong,tile_n=192,stages=5  a large kernel's, by its fields
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from ..kernels.hopper.description import Product
from ..kernels.hopper.free_tile_config import FreeTileConfig
from ..kernels.hopper.names import any_config
from ..kernels.hopper.small_m_config import SmallMConfig
from ..lang import Kernel
from .contender import COMPILE_S, Beat, Contender, Prepared
from .evidence import facts
from .operands import Operands, stored
from .recipe import recipe
from .work import GemmWork, Work

CONSTANT_WEIGHTS = "constant-weights"
NO_PDL = "no-pdl"


def product_of(problem: GemmWork) -> Product:
    """The Hopper GEMM's product of a problem."""
    return problem.posed.product


class Warploom(Contender):
    """Ours. `name` is "warploom", or "warploom:CONFIG" if one is pinned."""

    dtypes = ("bf16", "f16", "f32", "e4m3", "e5m2", "s8")
    scales = ("", "tensor", "row", "block128")
    kinds = ("gemm", "gelu", "swiglu", "grouped")

    def __init__(self, config: str = "", pdl: bool | None = None) -> None:
        """config: see the module. pdl: programmatic dependent launch on or off; None: as in the configuration."""
        self.config, self.pdl = config, False if config == NO_PDL else pdl
        self.name = f"warploom:{config}" if config else "warploom"
        self._chosen_by_library = config in ("", CONSTANT_WEIGHTS, NO_PDL)
        if config.startswith("rung:"):
            self._rung()
        elif not self._chosen_by_library:
            any_config(config)

    def _rung(self) -> Any:
        from ..kernels.ladder import find

        return find(self.config.partition(":")[2])

    def missing(self, problem: Work | None = None) -> str | None:
        reason = super().missing(problem)
        if reason is not None or problem is None:
            return reason
        if self.config.startswith("rung:") and (problem.kind != "gemm" or problem.scales):
            return "a rung is a plain product"
        if self.config.startswith("rung:") and self.pdl is not None:
            return "a rung launches as its file says"
        return None

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        beat(f"{self.name}, building", COMPILE_S)
        if self.config.startswith("rung:"):
            rung = self._rung()
            if (rung.dtype.name, rung.layout) != (problem.dtype, "TN"):
                raise ArgumentError(f"rung {rung.number} takes {rung.dtype.name}, {rung.layout}", got=problem.dtype)
            own = rung.load().Config()
            return self._pinned(rung.build, (own,), rung.module, "its own", sets, product_of(problem))
        if self._chosen_by_library:
            from . import library_calls

            return library_calls.prepare(problem, sets, self.pdl, self.config == CONSTANT_WEIGHTS)
        pinned = any_config(self.config)
        if problem.scales or problem.kind != "gemm" or isinstance(pinned, (SmallMConfig, FreeTileConfig)):
            from . import library_calls

            return library_calls.prepare(problem, sets, self.pdl, pinned=pinned)
        from ..kernels.hopper import gemm

        if self.pdl is not None:
            pinned = dataclasses.replace(pinned, pdl=self.pdl)
        of, name = product_of(problem), f"hopper_{pinned.kernel_schedule}"
        return self._pinned(gemm.build, (of, pinned), name, pinned.name(), sets, of)

    def _pinned(
        self, build: Callable[..., Kernel], arguments: tuple[Any, ...], name: str, config: str,
        sets: Sequence[Operands], of: Product,
    ) -> Prepared:  # fmt: skip
        kernel = build(*arguments)
        calls = [_call(kernel, o, of) for o in sets]
        return Prepared(calls, name, config, facts(kernel, recipe(build, *arguments)), kernel.program(),
                        [((o.a, o.b), o.out) for o in sets])  # fmt: skip


def _call(kernel: Kernel, o: Operands, of: Product) -> Callable[[], object]:
    a, b = stored(o.a, of.a_major), stored(o.b, of.b_major)
    return lambda: kernel(a, b, out=o.out)
