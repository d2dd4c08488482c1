"""Whether a kernel waits for its bulk stores at all, derived from its text alone.

    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [tile], 1024;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 1;   one group may stay pending, and there is no other

A kernel whose commit is in a loop may have any number of groups pending, so that its wait for all but one waits for
all groups but the last.
"""

from __future__ import annotations

from ..asm.nodes import Integer
from ..emulator.machine.control_flow import successors
from ..emulator.machine.image import Image
from ..isa import effects

GROUP = "bulk"


def waits_for_a_bulk_group(code: Image) -> bool:
    """True if some wait may be reached with more groups pending than it leaves so."""
    commits = [one.pc for one in code.operations if any(isinstance(each, effects.Commits) and each.family == GROUP
                                                        for each in one.effects)]  # fmt: skip
    followers = {pc: _followers(code, pc) for pc in commits}
    for operation in code.operations:
        if not any(isinstance(each, effects.Waits) and each.on == f"group:{GROUP}" for each in operation.effects):
            continue
        before = [pc for pc in commits if operation.pc in followers[pc]]
        newest = operation.bound.operands["n"] if operation.bound is not None else None
        if any(pc in followers[pc] for pc in before) or not isinstance(newest, Integer) or newest.value < len(before):
            return True
    return False


def _followers(code: Image, pc: int) -> set[int]:
    """The operations that may be executed after this one."""
    found: set[int] = set()
    work = [pc]
    while work:
        for target in successors(code.operations[work.pop()], len(code.operations)):
            if target not in found:
                found.add(target)
                work.append(target)
    return found
