"""The launches that repeated products only start again."""

from __future__ import annotations

from ..runtime.launch_cache import LaunchCache

CACHE = LaunchCache(differentiable=True)
"""The launches of `matmul`, `linear` and `grouped_matmul`. Keys of hits: the function (not for `matmul`), the options'
names, their addresses or types and values, then the addresses of a, b and out. Forms: the same with sizes in bytes
instead of addresses, without out; a guard tells shapes apart.
"""
