"""The choice and the launches of the kernel that computes dQ, dK and dV together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ...kernels.hopper.attention_backward_joint_config import JointConfig, joins, joint_config, joint_section
from ...kernels.hopper.attention_config import Attention
from ...runtime.arrays import ArrayView
from ...runtime.launch_template import Launched
from ...runtime.program import Program
from ..kernel_cache import kept
from .limits import ELEMENTS
from .named_launch import launch_named

CHOSEN, UNORDERED = "chosen", "unordered"
"""Instead of a configuration: the one of `joint_choice`; the same without a fixed order of the sums of dQ."""


@dataclass(frozen=True)
class Joint:
    """A configuration, and the number of key heads whose blocks are interleaved; by default `joint_section`."""

    config: JointConfig
    section: int | None = None

    def clears(self, name: str) -> bool:
        """True if an array of the workspace must be zeros: the counters, or the sums where no block comes first."""
        return self.config.deterministic == (name == "turns")


def joint_choice(of: Attention, lines: tuple[int, ...], keys: int, deterministic: bool = True) -> Joint | None:
    """The configuration for a problem; None if one kernel computes dQ and another dK and dV.

    lines: batches, query heads, queries. The kernel numbers blocks, turns and the sums of a head in 32 bits.
    """
    if not joins(of):
        return None
    config = replace(joint_config(of), deterministic=deterministic)
    batch, heads, queries = lines
    blocks = batch * heads * -(-keys // config.rows)
    most = max(blocks, config.turns(batch * heads, queries), config.sum_elements(of, queries))
    return Joint(config) if most <= ELEMENTS else None


def launch_joint(
    of: Attention, joint: Joint, arrays: Mapping[str, ArrayView], numbers: Mapping[str, float], folded: bool,
    folder: Path | None,
) -> list[Launched | None]:  # fmt: skip
    """Launch the kernel of all gradients, then the one that converts dQ. The arrays include the workspace."""
    (batch, queries, heads, _), kv_heads = arrays["Q"].shape, arrays["K"].shape[2]
    section = min(joint.section or joint_section(of, queries, heads, kv_heads), batch * kv_heads)
    numbers = {**numbers, "section": section, "keys": arrays["K"].shape[1]}
    programs = _program(of, joint.config, folder), _convert_program(of, joint.config, folded, folder)
    return [launch_named(program, arrays, numbers) for program in programs]


@lru_cache(maxsize=64)
def _program(of: Attention, config: JointConfig, folder: Path | None) -> Program:
    def trace() -> Program:
        from ...kernels.hopper import attention_backward_joint

        return attention_backward_joint.build(of, config).program()

    return trace() if folder is None else kept(f"attention backward joint {of!r} {config!r}", trace, folder)


@lru_cache(maxsize=64)
def _convert_program(of: Attention, config: JointConfig, folded: bool, folder: Path | None) -> Program:
    def trace() -> Program:
        from ...kernels.hopper import attention_backward_sums

        return attention_backward_sums.build_convert(of, config, folded).program()

    name = f"attention backward convert {of!r} {config!r}" + " folded" * folded
    return trace() if folder is None else kept(name, trace, folder)
