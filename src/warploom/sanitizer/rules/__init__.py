"""All rules, by id: data for findings, for `warploom rules` and for the tests. A TOML file for each kind of rule.

`kernel` is the body of a small kernel with both examples in it, as a diff: a line with `-` belongs only to the example
that violates the rule, a line with `+` only to the one that follows it. `threads`, `cluster` … are fields of `Example`;
`good.threads` applies to the good one alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...pages import Pages
from .schema import ERROR, PERFORMANCE, WARNING, Example, Rule

_FAMILIES = ("bounds", "races", "grid", "devices", "protocol", "tensor", "tensor_memory", "performance")
_OF_EXAMPLES = ("threads", "cluster", "grid", "directives", "target", "devices", "calls")


def _rule(id: str, facts: dict[str, Any]) -> Rule:
    lines = facts.pop("kernel", "").splitlines()
    good = facts.pop("good", {})
    launch = {name: facts.pop(name) for name in _OF_EXAMPLES if name in facts}
    if not lines:
        return Rule(id, **facts)
    breaks, keeps = ("\n".join(line[2:] for line in lines if line[0] in marks) for marks in (" -", " +"))
    return Rule(id, **facts, bad=Example(breaks, **launch), good=Example(keeps, **{**launch, **good}))


RULES = Pages(tuple(Path(__file__).with_name(f"{name}.toml") for name in _FAMILIES), _rule)

__all__ = ["ERROR", "PERFORMANCE", "RULES", "WARNING", "Example", "Rule"]
