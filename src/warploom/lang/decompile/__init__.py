"""PTX as a kernel in Python: `to_python(text)`.

    naming      registers, variables and labels under unique Python names
    structure   loops and branches, recovered from labels and jumps
    writing     operands, instructions and blocks as lines of Python

The result is traced again and compared with the PTX before it is returned (`asm.equivalence`).
"""

from __future__ import annotations

from ... import asm
from ...asm.equivalence import normal_form
from ...asm.lowering import lowered
from ...errors import ArgumentError, VerificationError
from ...runtime.entries import choose
from .naming import named
from .structure import structured
from .writing import Writer

__all__ = ["to_python"]


def to_python(text: str, entry: str | None = None, source: str = "") -> str:
    """The kernels of PTX as a Python file whose PTX is equivalent.

    Args:
        text: PTX.
        entry: one kernel of several, by its name in the text or in its C++ source; None: all of them.
        source: the origin that the file states.

    Raises PtxSyntaxError and VerificationError for invalid PTX, ArgumentError if there is no such kernel,
    VerificationError with code "no-python-form" for what cannot be written: textures, calls through pointers.
    """
    module = asm.parse(text, name=source or SOURCE)
    asm.check(module)
    if not module.entries:
        raise ArgumentError(
            "the text has no kernel", expected="a function with .entry and a body", code="not-this-text"
        )
    if entry is not None:
        entry = choose(module, entry, source or SOURCE).name
    writer = Writer(module, source, source or SOURCE)
    chosen = [each for each in lowered(module).entries if entry in (None, each.name)]
    for function in chosen:
        found = named(lowered(module), function)
        writer.kernel(function, found, *structured(found.items))
    written = writer.text()
    for function in chosen:
        _compare(module, written, function.name, writer.python_names[function.name])
    return written


SOURCE = "<ptx>"
"""The file that locations name if the PTX has no `.loc` and no source is given."""


def _compare(module: asm.nodes.Module, written: str, entry: str, name: str) -> None:
    """Trace the written Python, and raise if its PTX is not equivalent."""
    namespace: dict[str, object] = {"__name__": "written"}
    exec(compile(written, f"<{entry}>", "exec"), namespace)
    made = asm.parse(namespace[name].ptx())  # type: ignore[attr-defined]
    wanted, got = normal_form(module, entry), normal_form(made, entry)
    if wanted == got:
        return
    first = next((pair for pair in zip(wanted, got, strict=False) if pair[0] != pair[1]), (len(wanted), len(got)))
    raise VerificationError(
        f"the Python of {entry} would not be equivalent to its PTX",
        expected=str(first[0])[:300],
        got=str(first[1])[:300],
        hint="this is a bug in warploom: please report it with the text",
        code="no-python-form",
    )
