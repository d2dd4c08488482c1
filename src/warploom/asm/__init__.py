"""PTX text and trees: parse, print, bind to the instruction table, verify.

`parse(text)` returns a `nodes.Module`, `module.to_text()` the text again, `verify(module)` the errors in it, and
`check(module)` raises the first of them.
"""

from . import nodes
from .directives import newer
from .parser import parse
from .verifier import check, verify

__all__ = ["check", "newer", "nodes", "parse", "verify"]
