"""The choice and the launches of the kernels that compute dQ, dK and dV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ...isa.dtypes import DType, f32, u32
from ...kernels.hopper.attention_backward_config import (
    WHOLE_BLOCKS,
    BackwardConfig,
    backward_config,
    backward_section,
    values_config,
)
from ...kernels.hopper.attention_backward_reads import workspace
from ...kernels.hopper.attention_config import Attention
from ...runtime.arrays import ArrayView
from ...runtime.launch_template import Launched
from ...runtime.program import Program
from ..kernel_cache import kept
from .limits import ELEMENTS, check_countable
from .named_launch import launch_named

CHOSEN, UNORDERED = "chosen", "unordered"
"""Instead of a configuration: the one of `backward_choice`; the same without a fixed order of the sums of dQ."""


ROWS = ("lse2", "delta")
"""What each query needs."""


@dataclass(frozen=True)
class BackwardChoice:
    """A configuration, and the number of key heads whose blocks are interleaved; by default `backward_section`."""

    config: BackwardConfig
    section: int | None = None

    def clears(self, name: str) -> bool:
        """True if an array of the workspace must be zeros: the counters, or the sums where no block comes first; and
        the gradients of captured arrays."""
        return name not in (*ROWS, "sums" if self.config.deterministic else "turns")


def backward_choice(of: Attention, deterministic: bool = True) -> BackwardChoice:
    """The configuration for a problem."""
    return BackwardChoice(replace(backward_config(of), deterministic=deterministic))


def whole_blocks(choice: BackwardChoice | str) -> tuple[int, int]:
    """Queries and keys: blocks of a mask of multiples of them are whole numbers of tiles."""
    return WHOLE_BLOCKS if isinstance(choice, str) else (choice.config.tile_m, choice.config.tile_n)


def arrays_of(
    of: Attention, choice: BackwardChoice, lines: tuple[int, ...], keys: int, sequences: int = 0
) -> dict[str, tuple[tuple[int, ...], DType]]:  # fmt: skip
    """Shapes and types of what each query needs, and of the workspace. Raises ArgumentError if there are too many
    blocks or turns.

    lines: batches, query heads, queries. sequences: the number of packed ones, or 0.
    """
    config, (batch, heads, queries) = choice.config, lines
    padded = config.padded(queries, sequences)
    blocks, turns = -(-keys // config.tile_n) + sequences, config.turns(batch * heads, padded)
    check_countable("blocks of keys", max(batch * heads * blocks, turns), "divide the batch", ELEMENTS)
    check_countable("sums of a head", config.sum_elements(of, padded), "divide the queries")
    rows = (batch, heads, padded)
    return {
        **dict.fromkeys(ROWS, (rows, f32)),
        "sums": ((batch, heads, config.sum_elements(of, padded)), f32), "turns": ((turns,), u32),
        **{name: ((elements,), f32) for name, elements in workspace(of).items()},
    }  # fmt: skip


def launch_backward(
    of: Attention, choice: BackwardChoice, arrays: Mapping[str, ArrayView], numbers: Mapping[str, float], folded: bool,
    folder: Path | None,
) -> list[Launched | None]:  # fmt: skip
    """Launch the kernel of all gradients, the one of dV if it is another, and the one that converts dQ. The arrays
    include the workspace."""
    (batch, queries, heads, _), kv_heads = arrays["Q"].shape, arrays["K"].shape[2]
    section = min(choice.section or backward_section(of, queries, heads, kv_heads), batch * kv_heads)
    numbers = {**numbers, "section": section, "keys": arrays["K"].shape[1]}
    values = values_config(choice.config)
    programs = [_program(of, config, folder) for config in (choice.config, values) if config is not None]
    programs.append(_convert_program(of, choice.config, folded, folder))
    return [launch_named(program, arrays, numbers) for program in programs]


@lru_cache(maxsize=64)
def _program(of: Attention, config: BackwardConfig, folder: Path | None) -> Program:
    def trace() -> Program:
        from ...kernels.hopper import attention_backward

        return attention_backward.build(of, config).program()

    return trace() if folder is None else kept(f"attention backward {of!r} {config!r}", trace, folder)


@lru_cache(maxsize=64)
def _convert_program(of: Attention, config: BackwardConfig, folded: bool, folder: Path | None) -> Program:
    def trace() -> Program:
        from ...kernels.hopper import attention_backward_sums

        return attention_backward_sums.build_convert(of, config, folded).program()

    name = f"attention backward convert {of!r} {config!r}" + " folded" * folded
    return trace() if folder is None else kept(name, trace, folder)
