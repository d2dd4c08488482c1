"""PTX text and trees: parse, print, bind to the instruction table, verify.

`parse(text)` gives a `nodes.Module`, `module.to_text()` the text again, `verify(module)` what is wrong with it and
`check(module)` raises the first of it.
"""

from . import nodes
from .heads import newer
from .parser import parse
from .verifier import check, verify

__all__ = ["check", "newer", "nodes", "parse", "verify"]
