"""Checks of the directives of functions and kernels that are not limits, and of `.alias`.

PTX ISA 11.4 and 11.6. The verdicts are those of ptxas 13.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import VerificationError
from ..isa.special_registers import SPECIAL_NAMES
from .directives import version_text
from .nodes import Directive, Function, Module

_OF_FUNCTIONS = {"noreturn": (6, 4), "abi_preserve": (9, 0), "abi_preserve_control": (9, 0)}
"""Directives that kernels do not take, and the first PTX version with each."""
_FORMALS = ("reg", "param")
_MOST_PRESERVED = {"abi_preserve": 239, "abi_preserve_control": 11}
_LAST_WITH_MAXNCTAPERSM = (2, 0)


def wrong_directives(module: Module, function: Function) -> Iterator[VerificationError]:
    """Errors in the name of a function or kernel, in the spaces of a function's formals, and in the directives between
    head and body."""
    what = "kernel" if function.kind == "entry" else "function"
    if what == "kernel" and function.linkage == "common":
        yield _error(f"the kernel {function.name} is declared .common", ".visible, .extern or .weak")
    if function.name in SPECIAL_NAMES:
        yield _error(f"the {what} {function.name} has the name of a special register", "another name")
    if what == "function":
        for formal in (*function.results, *function.parameters):
            if formal.space not in _FORMALS:
                yield _error(f"{formal.name} of {function.name} is in .{formal.space}", "a formal in .reg or .param")
        if len(function.results) > 1 and any(each.space != "reg" for each in function.results):
            yield _error(f"{function.name} returns several values, not all in .reg", "one, or .reg variables")
    for directive in function.directives:
        name, since = directive.name, _OF_FUNCTIONS.get(directive.name)
        said = f"the {what} {function.name} says .{name}"
        if name == "maxnctapersm" and module.version > _LAST_WITH_MAXNCTAPERSM:
            yield _error(f"{said}, which PTX no longer has", ".minnctapersm")
        if since is None:
            if what == "function":
                yield _error(f"{said}, which is for kernels", f"no .{name}, or an .entry")
            continue
        if what == "kernel":
            yield _error(f"{said}, which is for functions", f"no .{name}, or a .func")
        elif module.version < since:
            yield _error(f"{said}, which needs PTX {version_text(since)}", f".version {version_text(since)} or later")
        elif name == "noreturn" and [each.name for each in function.directives].count(name) > 1:
            yield _error(f"{said} twice", "it once")
        elif name == "noreturn" and function.results:
            yield _error(f"{said} and returns a value", "a function without results")
        elif (function.directive(name) or (0,))[0] > _MOST_PRESERVED.get(name, 0):
            yield _error(f"{said} {directive.text}", f"at most {_MOST_PRESERVED[name]}")


def wrong_aliases(module: Module) -> Iterator[VerificationError]:
    """Errors in `.alias name, function;`: both must be declared before, only the function may have a body."""
    known: dict[str, Function] = {}
    bodies = {each.name for each in module.functions if each.body is not None}
    for item in module.items:
        if isinstance(item, Function):
            known[item.name] = item if item.body is not None else known.get(item.name, item)
        elif isinstance(item, Directive) and item.name == "alias":
            name, _, of = (word.strip() for word in item.text.partition(","))
            yield from _wrong_alias(name, of, known, bodies)


def _wrong_alias(name: str, of: str, known: dict[str, Function], bodies: set[str]) -> Iterator[VerificationError]:
    alias, function, said = known.get(name), known.get(of), f"`.alias {name}, {of}`"
    for one, found in ((name, alias), (of, function)):
        if found is None or found.kind != "func":
            yield _error(f"{said}: {one} is no function declared before it", "a .func")
            return
    assert alias is not None and function is not None
    if name in bodies:
        yield _error(f"{said}: {name} has a body", "a function that is only declared")
    elif function.linkage == "extern":
        yield _error(f"{said}: {of} is .extern", "a function of this module")
    elif len(alias.parameters) != len(function.parameters) or len(alias.results) != len(function.results):
        yield _error(f"{said}: the functions have other parameters", "the same parameters and results")


def _error(what: str, expected: str) -> VerificationError:
    return VerificationError(what, expected=expected, code="verification")
