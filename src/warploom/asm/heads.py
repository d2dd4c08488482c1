"""Checks of the head of a module and of a kernel against the target: versions, threads, clusters, shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..errors import ArgumentError, VerificationError
from ..isa import arch as isa_arch
from ..isa import dtypes
from ..isa.arch import Arch
from .nodes import Directive, Function, Module, Variable, instructions_of, names_in

_CLUSTER_DIRECTIVES = {
    "reqnctapercluster": (7, 8), "explicitcluster": (7, 8), "maxclusterrank": (7, 8), "blocksareclusters": (9, 0),
}  # fmt: skip
"""The first PTX version with each directive."""


def target_of(module: Module, machine: str | None) -> tuple[Arch | None, list[VerificationError]]:
    """The target that a module names (None if it does not exist), and the errors in it, in its PTX version, or in the
    choice of the machine to run on."""
    name, found = module.arch, []
    try:
        target = isa_arch.get(name)
    except ArgumentError as error:
        return None, [
            VerificationError(
                f"the .target {name} is not known",
                expected=_text(error.expected),
                got=name,
                code="target-lacks-it",
            )
        ]
    if module.version not in isa_arch.PTX_VERSIONS and not newer(module):
        found.append(
            VerificationError(
                f"there is no PTX {version_text(module.version)}",
                expected=f".version {isa_arch.KNOWN_VERSIONS}",
                got=f".version {version_text(module.version)}",
                code="target-lacks-it",
            )
        )
    elif module.version < target.ptx:
        found.append(
            VerificationError(
                f"PTX {version_text(module.version)} does not know the target {name}",
                expected=f".version {version_text(target.ptx)} or later",
                got=f".version {version_text(module.version)}",
                code="target-lacks-it",
            )
        )
    return target, [*found, *_on(machine, name, target)]


def newer(module: Module) -> str:
    """A note on a .version newer than the newest one known here; "" for any other.

    Such a text is accepted: PTX is backward compatible, so only an unknown instruction is an error.
    """
    newest = max(isa_arch.PTX_VERSIONS)
    if module.version <= newest:
        return ""
    return (
        f".version {version_text(module.version)} is newer than PTX {version_text(newest)}, the newest known here; "
        "the text is read by the rules of that one"
    )


def _on(machine: str | None, name: str, target: Arch) -> Iterator[VerificationError]:
    """Reasons why a text for a target cannot run on a machine."""
    if machine is None:
        return
    try:
        runs = isa_arch.get(machine).supports(name)
    except ArgumentError as error:
        yield VerificationError(
            f"{machine!r} is not a known target", expected=_text(error.expected), got=machine, code="target-lacks-it"
        )
        return
    if not runs:
        only = "runs on that very chip only" if target.suffix == "a" else "does not run on an older chip"
        yield VerificationError(
            f"a text for {name} cannot run on {machine}: it {only}", expected=machine, got=name, code="target-lacks-it"
        )


def limits(module: Module, function: Function, target: Arch | None) -> Iterator[VerificationError]:
    """Threads, clusters and static shared memory of a kernel that exceed the target's limits."""
    if target is None or function.kind != "entry":
        return
    for name in ("maxntid", "reqntid"):
        sizes = function.directive(name)
        if sizes and math.prod(sizes) > target.threads_per_cta:
            yield VerificationError(
                f"the kernel {function.name} requests {math.prod(sizes)} threads in .{name}",
                expected=f"at most {target.threads_per_cta}",
                code="target-lacks-it",
            )
    for directive in function.directives:
        yield from _cluster_directive(module, function, directive, target)
    size = sum(_bytes(item) for item in function.body or () if isinstance(item, Variable))
    shared = {item.name: _bytes(item) for item in module.items if isinstance(item, Variable)}
    if size + sum(shared.values()) > target.shared_static:
        used = _reached(module, function)
        size += sum(count for name, count in shared.items() if name in used)
    if size > target.shared_static:
        yield VerificationError(
            f"the kernel {function.name} declares {size} bytes of static shared memory",
            expected=f"at most {target.shared_static}; more must be dynamic (.extern .shared)",
            code="target-lacks-it",
        )


def _reached(module: Module, kernel: Function) -> set[str]:
    """The names that a kernel uses, and the functions that it calls or takes the address of: other kernels' variables
    take no room in it."""
    bodies = {item.name: item for item in module.items if isinstance(item, Function)}
    used: set[str] = set()
    waiting = [kernel]
    while waiting:
        names = {
            name
            for instruction in instructions_of(waiting.pop())
            for operand in instruction.operands
            for name in names_in(operand)
        }
        waiting += [bodies[name] for name in names - used if name in bodies]
        used |= names
    return used


def _cluster_directive(
    module: Module, function: Function, directive: Directive, target: Arch
) -> Iterator[VerificationError]:
    first = _CLUSTER_DIRECTIVES.get(directive.name)
    if first is None:
        return
    if target.number < 90:
        yield VerificationError(
            f".{directive.name} of the kernel {function.name} needs sm_90, the target is {target}",
            code="target-lacks-it",
        )
    elif module.version < first:
        have = version_text(module.version)
        yield VerificationError(
            f".{directive.name} needs PTX {version_text(first)}, the text says .version {have}", code="target-lacks-it"
        )
    elif directive.name == "reqnctapercluster":
        sizes = function.directive(directive.name) or ()
        if math.prod(sizes) > target.cluster_limit:
            yield VerificationError(
                f"the kernel {function.name} requests clusters of {math.prod(sizes)} CTAs",
                expected=f"at most {target.cluster_limit} on {target}",
                code="target-lacks-it",
            )


def version_text(version: tuple[int, int]) -> str:
    """ "8.7"."""
    return f"{version[0]}.{version[1]}"


def _bytes(variable: Variable) -> int:
    """Bytes of a shared variable, 0 for any other."""
    if variable.space != "shared" or variable.linkage == "extern" or variable.type not in dtypes.ALL:
        return 0
    vector = next((int(word[2:]) for word in variable.attributes if word in (".v2", ".v4", ".v8")), 1)
    return dtypes.ALL[variable.type].bytes * vector * math.prod(max(size, 0) for size in variable.dims)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
