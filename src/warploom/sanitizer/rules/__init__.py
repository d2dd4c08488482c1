"""All rules, by id: data for findings, for `warploom rules` and for the tests."""

from __future__ import annotations

from . import grid, performance, protocol, races, tensor, tensor_memory
from .schema import ERROR, PERFORMANCE, WARNING, Example, Rule

RULES: dict[str, Rule] = {
    rule.id: rule for family in (races, grid, protocol, tensor, tensor_memory, performance) for rule in family.RULES
}

__all__ = ["ERROR", "PERFORMANCE", "RULES", "WARNING", "Example", "Rule"]
