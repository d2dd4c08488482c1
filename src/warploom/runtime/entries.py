"""Finds a kernel of a PTX text by its name: the name in the text, or that of the C++ source if it says which."""

from __future__ import annotations

from functools import partial

from ..asm import nodes
from ..asm.demangle import short
from ..errors import ArgumentError
from ..near import near

_wrong_text = partial(ArgumentError, code="not-this-text")


def choose(module: nodes.Module, entry: str | None, file: str) -> nodes.Function:
    """The entry of that name, or the only one. Raises ArgumentError if none or several have it."""
    entries = {function.name: function for function in module.entries}
    if not entries:
        raise _wrong_text("the PTX text has no kernel (.entry)")
    if entry is None:
        if len(entries) > 1:
            raise _wrong_text(
                "the PTX text has several kernels",
                expected="entry= one of " + _listed(list(entries)),
                hint=f"on the command line the name follows the file: {file}:{next(iter(entries))}",
            )
        return next(iter(entries.values()))
    if entry in entries:
        return entries[entry]
    meant = [name for name in entries if entry in _names(name)]
    if len(meant) > 1:
        raise _wrong_text(
            f"several kernels of the PTX text are called `{entry}`", expected="one of " + _listed(meant), got=entry
        )
    if meant:
        return entries[meant[0]]
    known = {called: None for name in entries for called in (name, *sorted(_names(name)))}
    raise _wrong_text(
        f"the PTX text has no kernel `{entry}`", expected="one of " + _listed(list(entries)), hint=near(entry, known)
    )


def _names(mangled: str) -> set[str]:
    """The names in the C++ source: with template arguments and namespaces, without the former, without both."""
    full = short(mangled)
    plain = full.partition("<")[0]
    return {full, plain, plain.rpartition("::")[2]}


def _listed(names: list[str]) -> str:
    return ", ".join(name if short(name) == name else f"{name} ({short(name)})" for name in names)
