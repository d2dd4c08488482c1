"""Checks of the head of a module and of a kernel against the target: versions, threads, clusters, shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..errors import ArgumentError, VerificationError
from ..isa import arch as isa_arch
from ..isa import dtypes
from ..isa.arch import Arch
from .initial_values import lanes
from .nodes import Directive, Function, Module, Variable, instructions_of, names_in

_CLUSTER_DIRECTIVES = {
    "reqnctapercluster": (7, 8), "explicitcluster": (7, 8), "maxclusterrank": (7, 8), "blocksareclusters": (9, 0),
}  # fmt: skip
"""The first PTX version with each directive."""

CONSTANT_BYTES = 65536
"""Bytes of all `.const` variables of a module (CUDA C++ Programming Guide, technical specifications)."""
PARAMETER_BYTES, _FEW_PARAMETER_BYTES = 32764, 4352
"""Bytes of a kernel's parameters, from PTX 8.1 and before (PTX ISA 5.1.6.1; ptxas 13.0)."""
_NUMBERS = {"maxntid": 3, "reqntid": 3, "reqnctapercluster": 3, "maxnreg": 1, "minnctapersm": 1, "maxclusterrank": 1}
"""Directives of a kernel with positive numbers: how many at most."""
_NO_OPTIONS = (
    (("map_f64_to_f32",), "a target of sm_12 or before"),
    (("texmode_unified", "texmode_independent"), "one of them"),
)
"""Options of .target that cannot be, and what they would need (PTX ISA 11.1.2)."""
_EXCLUSIVE = (("maxntid", "reqntid"), ("reqnctapercluster", "maxclusterrank"))


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
    for options, why in _NO_OPTIONS:
        if set(options) <= set(module.target):
            found.append(
                VerificationError(f"the .target says {', '.join(options)}", expected=why, code="target-lacks-it")
            )
    if module.address_size not in (None, 64):
        found.append(
            VerificationError(
                f"the text asks for addresses of {module.address_size} bits",
                expected=".address_size 64: ptxas no longer builds others",
                got=f".address_size {module.address_size}",
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
    yield from _directives(function)
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
    most = PARAMETER_BYTES if module.version >= (8, 1) else _FEW_PARAMETER_BYTES
    size = 0
    for parameter in function.parameters:
        align = parameter.align or dtypes.ALL[parameter.type].bytes if parameter.type in dtypes.ALL else 1
        size = -(-size // max(align, 1)) * max(align, 1) + _bytes(parameter, "param")
    if size > most:
        yield VerificationError(
            f"the parameters of the kernel {function.name} have {size} bytes",
            expected=f"at most {most} in PTX {version_text(module.version)}",
            code="target-lacks-it",
        )
    size = sum(_bytes(item, "shared") for item in function.body or () if isinstance(item, Variable))
    shared = {item.name: _bytes(item, "shared") for item in module.items if isinstance(item, Variable)}
    if size + sum(shared.values()) > target.shared_static:
        used = names_reached(module, function)
        size += sum(count for name, count in shared.items() if name in used)
    if size > target.shared_static:
        yield VerificationError(
            f"the kernel {function.name} declares {size} bytes of static shared memory",
            expected=f"at most {target.shared_static}; more must be dynamic (.extern .shared)",
            code="target-lacks-it",
        )


def _directives(function: Function) -> Iterator[VerificationError]:
    """Directives of a kernel with numbers that ptxas rejects, or that exclude each other."""
    names = {item.name for item in function.directives}
    for item in function.directives:
        most = _NUMBERS.get(item.name)
        sizes = function.directive(item.name) if most else ()
        if most and sizes is not None and (len(sizes) > most or any(size < 1 for size in sizes)):
            yield VerificationError(
                f"the kernel {function.name} says .{item.name} {item.text}",
                expected=f"at most {most} numbers of at least 1" if most > 1 else "one number of at least 1",
                code="verification",
            )
    for one, other in _EXCLUSIVE:
        if one in names and other in names:
            yield VerificationError(
                f"the kernel {function.name} has both .{one} and .{other}", expected="one of them", code="verification"
            )


def names_reached(module: Module, kernel: Function) -> set[str]:
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


def prototypes(module: Module) -> Iterator[VerificationError]:
    """An error for each function whose declarations disagree."""
    heads: dict[str, object] = {}
    for item in (each for each in module.functions if each.kind == "func"):
        head = [[(each.space, each.type, each.dims) for each in row] for row in (item.results, item.parameters)]
        if heads.setdefault(item.name, head) != head:
            yield VerificationError(f"the declarations of {item.name} have other parameters", code="verification")


def constant_memory(module: Module) -> Iterator[VerificationError]:
    """An error if the `.const` variables of a module are too large together."""
    size = sum(_bytes(item, "const") for item in module.items if isinstance(item, Variable))
    if size > CONSTANT_BYTES:
        yield VerificationError(
            f"the module declares {size} bytes of .const variables",
            expected=f"at most {CONSTANT_BYTES}",
            code="target-lacks-it",
        )


def _bytes(variable: Variable, space: str) -> int:
    """Bytes of a variable of a state space, 0 for any other."""
    if variable.space != space or variable.linkage == "extern" or variable.type not in dtypes.ALL:
        return 0
    return dtypes.ALL[variable.type].bytes * lanes(variable) * math.prod(max(size, 0) for size in variable.dims)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
