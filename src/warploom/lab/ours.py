"""Our own contender: what `warploom.matmul` runs, a pinned configuration of the Hopper GEMM, or a rung of the ladder.

(nothing)                              what the library chooses
constant-weights                       the same, promising that B is not written while it is read (small M)
rung:19                                a rung
ping_pong_128x192x5_2b_g8              a configuration by the name that tables show
cooperative_256x192x3_2a_g8,slots=3    the same, with fields set
form=ping_pong,tile_n=192,stages=5     by fields alone
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ..errors import ArgumentError
from ..isa import dtypes
from ..kernels.hopper.description import BOX, SHARED_BYTES, Config, Product
from ..lang import Kernel
from .contenders import COMPILE_S, Beat, Contender, Prepared
from .evidence import facts
from .operands import Operands
from .problem import Problem
from .recipe import recipe

_NAME = re.compile(
    r"(cooperative|ping_pong|staggered)_(\d+)x(\d+)x(\d+)(?:_(\d)([ab]))?_g(\d+)(_tail)?(_cw)?", re.ASCII
)  # fmt: skip
CONSTANT_WEIGHTS = "constant-weights"
WIDE_PING_PONG = 160
"""Columns above which a second store box of each consumer costs a stage."""
_BOOLS = {"0": False, "1": True, "false": False, "true": True}


def parse_config(text: str) -> Config:
    """The configuration of a text. Raises ArgumentError for what is none."""
    first, _, rest = text.partition(",")
    values: dict[str, Any] = {}
    if found := _NAME.fullmatch(first.strip()):
        form, m, n, stages, ctas, shared, group, tail, promise = found.groups()
        values = {
            "form": form, "tile_m": int(m), "tile_n": int(n), "stages": int(stages), "ctas": int(ctas or 1),
            "shared": shared or "b", "group": int(group), "split_tail": bool(tail),
            "constant_weights": bool(promise),
        }  # fmt: skip
        if form != "ping_pong" and int(m) % 128:
            values["consumers"] = int(m) // 64
    else:
        rest = text
    fields = {field.name: field for field in dataclasses.fields(Config)}
    for word in filter(None, (part.strip() for part in rest.split(","))):
        name, equals, value = word.partition("=")
        if not equals or name not in fields:
            raise ArgumentError(
                "this is no configuration of the Hopper GEMM",
                expected=f"a name as in ping_pong_128x192x5_2b_g8, then FIELD=VALUE of {', '.join(fields)}", got=text,
            )  # fmt: skip
        default = fields[name].default
        try:
            values[name] = (
                value
                if isinstance(default, str)
                else _BOOLS[value.lower()]
                if isinstance(default, bool)
                else int(ast.literal_eval(value))
            )
        except (ValueError, SyntaxError, KeyError):
            raise ArgumentError(f"`{name}` of a configuration is of another type",
                                expected=type(default).__name__, got=value) from None  # fmt: skip
    config = Config(**values)
    return with_slots(config) if found and "slots" not in values else config


def with_slots(config: Config) -> Config:
    """The configuration with the store boxes that its name leaves open: a staggered consumer's whole part, two
    otherwise, or as many as fit beside the stages."""
    many = -(-config.tile_n // BOX) if config.form == "staggered" else 2
    if config.form == "ping_pong" and config.tile_n > WIDE_PING_PONG:
        many = 1
    while many > 1 and dataclasses.replace(config, slots=many).shared_bytes(Product()) > SHARED_BYTES:
        many -= 1
    return dataclasses.replace(config, slots=many)


def default_config(problem: Problem) -> Config:
    """A configuration by a rule of thumb, where the library is not asked: short K likes ping-pong, large C the
    largest tile, small C a smaller one."""
    if problem.k <= 2048:
        return Config("ping_pong", 128, 192, stages=5, slots=1)
    if problem.m * problem.n >= 6e7:
        return Config("cooperative", 256, 192, stages=3, slots=3, shared="a")
    return Config()


def product_of(problem: Problem) -> Product:
    """The Hopper GEMM's product of a problem."""
    a = getattr(dtypes, problem.dtype)
    return Product(a, a, getattr(dtypes, problem.out))


def library_there() -> bool:
    """Whether the package has `matmul`, which chooses kernels."""
    return callable(getattr(import_module(__name__.partition(".")[0] + ".gemm"), "matmul", None))


class Warploom(Contender):
    """Ours. `name` is "warploom", or "warploom:CONFIG" where one is pinned."""

    dtypes = ("bf16", "f16", "f32", "e4m3", "e5m2", "s8")
    scales = ("", "tensor", "row", "block128")
    kinds = ("gemm", "gelu", "swiglu", "grouped")

    def __init__(self, config: str = "", pdl: bool | None = None) -> None:
        """config: see the module. pdl: programmatic dependent launch on or off; None: as the configuration says."""
        self.config, self.pdl = config, pdl
        self.name = f"warploom:{config}" if config else "warploom"
        self._through_library = config in ("", CONSTANT_WEIGHTS)
        if config.startswith("rung:"):
            self._rung()
        elif not self._through_library:
            parse_config(config)

    def _rung(self) -> Any:
        from ..kernels.ladder import find

        return find(self.config.partition(":")[2])

    def missing(self, problem: Problem | None = None) -> str | None:
        reason = super().missing(problem)
        if reason is not None or problem is None:
            return reason
        if self._through_library and library_there():
            return None
        if self._through_library:
            return "the library is not there yet" if problem.kind != "gemm" or problem.scales else None
        if self.config.startswith("rung:") and (problem.kind != "gemm" or problem.scales):
            return "a rung is a plain product"
        return None

    def prepare(self, problem: Problem, sets: Sequence[Operands], beat: Beat) -> Prepared:
        beat(f"{self.name}, building", COMPILE_S)
        if self.config.startswith("rung:"):
            rung = self._rung()
            if (rung.dtype.name, rung.layout) != (problem.dtype, "TN"):
                raise ArgumentError(f"rung {rung.number} takes {rung.dtype.name}, {rung.layout}", got=problem.dtype)
            config = rung.load().Config()
            if self.pdl is not None:
                config = dataclasses.replace(config, pdl=self.pdl)
            return self._pinned(rung.build, (config,), rung.module, "its own", sets)
        if self._through_library and library_there():
            from . import through_library

            return through_library.prepare(problem, sets, self.pdl, self.config == CONSTANT_WEIGHTS)
        if problem.scales or problem.kind != "gemm":
            from . import through_library

            return through_library.prepare(problem, sets, self.pdl, pinned=parse_config(self.config))
        from ..kernels.hopper import gemm

        chosen = default_config(problem) if self._through_library else parse_config(self.config)
        if self.pdl is not None:
            chosen = dataclasses.replace(chosen, pdl=self.pdl)
        return self._pinned(gemm.build, (product_of(problem), chosen), f"hopper_{chosen.form}", chosen.name(), sets)

    def _pinned(
        self, build: Callable[..., Kernel], arguments: tuple[Any, ...], name: str, config: str, sets: Sequence[Operands]
    ) -> Prepared:
        kernel = build(*arguments)
        calls = [_call(kernel, o) for o in sets]
        return Prepared(calls, name, config, facts(kernel, recipe(build, *arguments)), kernel.program(),
                        [((o.a, o.b), o.out) for o in sets])  # fmt: skip


def _call(kernel: Kernel, o: Operands) -> Callable[[], object]:
    return lambda: kernel(o.a, o.b, out=o.out)
