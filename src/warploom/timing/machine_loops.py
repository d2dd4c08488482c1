"""The loops of machine code: natural loops of its control-flow graph.

A branch backward is no loop by itself. ptxas puts the second attempt of a wait behind the code that follows it, and the
branch with which that returns goes backward over whatever lies between. So a loop is what textbooks call a natural
loop: a branch to a block that every path from the entry to the branch goes through, and all blocks from which that
branch is reached without it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

OUTSIDE = -1
"""The number of no loop."""
LANES = "BRA.U.ANY"
"""The end of a loop over the lanes, which is run once and so counts as none."""
GUARD = re.compile(r"^@!?U?P\w+\s+")
"""The predicate of an instruction."""
_LABEL = re.compile(r"\.L_\w+")
_JUMPS, _LEAVES = ("BRA", "BRX", "JMP"), ("EXIT", "RET", "KILL")
Edges = Mapping[int, Sequence[int]]


def innermost(texts: Sequence[str], labels: Mapping[str, int]) -> list[int]:
    """Return the innermost loop of each machine instruction, by the index of the loop's first one, or `OUTSIDE`.

    texts: the instructions as nvdisasm prints them; labels: the index of the instruction that each label stands at.
    """
    if not texts:
        return []
    starts = _starts(texts, labels)
    blocks = dict(zip(starts, [*starts[1:], len(texts)], strict=True))
    loops = _natural({start: _follow(texts[start:end], labels, end, len(texts)) for start, end in blocks.items()})
    ordered = sorted(loops.items(), key=lambda loop: sum(blocks[start] - start for start in loop[1]))
    found: list[int] = []
    for start, end in blocks.items():
        found += [next((header for header, inside in ordered if start in inside), OUTSIDE)] * (end - start)
    return found


def _starts(texts: Sequence[str], labels: Mapping[str, int]) -> list[int]:
    """The first instruction of each basic block."""
    after = {at + 1 for at, text in enumerate(texts) if _word(text) in (*_JUMPS, *_LEAVES)}
    return sorted(at for at in {0, *labels.values(), *after} if at < len(texts))


def _follow(block: Sequence[str], labels: Mapping[str, int], end: int, size: int) -> list[int]:
    """The blocks that may follow a block. end: the first instruction behind it; size: the number of instructions."""
    last = block[-1]
    always = _word(last) in (*_JUMPS, *_LEAVES) and not GUARD.match(last) and LANES not in last
    targets = [text for text in block if _word(text) in (*_JUMPS, "CALL", "BSSY") and LANES not in text]
    found = [labels[name] for text in targets for name in _LABEL.findall(text) if name in labels]
    return [one for one in ([] if always else [end]) + found if one < size]


def _word(text: str) -> str:
    """The opcode without its modifiers."""
    return GUARD.sub("", text).split()[0].rstrip(";").partition(".")[0]


def _natural(follow: Edges) -> dict[int, set[int]]:
    """The blocks of each natural loop, by its first block."""
    before: dict[int, list[int]] = defaultdict(list)
    for block, others in follow.items():
        for other in others:
            before[other].append(block)
    dominators = _dominators(follow, before)
    loops: dict[int, set[int]] = {}
    for block, others in follow.items():
        for header in others:
            if block in dominators and header in dominators[block]:
                loops.setdefault(header, {header}).update(_reaching(block, header, before))
    return loops


def _reaching(block: int, header: int, before: Edges) -> set[int]:
    """The blocks from which `block` is reached without going through `header`."""
    found, left = {header}, [block]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += before.get(one, ())
    return found


def _dominators(follow: Edges, before: Edges) -> dict[int, set[int]]:
    """For each block that the entry reaches, the blocks that every path to it goes through."""
    order = _order(follow)
    place = {block: at for at, block in enumerate(order)}
    above: dict[int, int] = {order[0]: order[0]}
    changed = True
    while changed:  # Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm
        changed = False
        for block in order[1:]:
            known = [one for one in before[block] if one in above]
            nearest = known[0]
            for one in known[1:]:
                nearest = _common(nearest, one, above, place)
            if above.get(block) != nearest:
                above[block], changed = nearest, True
    return {block: set(_chain(block, above)) for block in order}


def _common(one: int, other: int, above: Mapping[int, int], place: Mapping[int, int]) -> int:
    while one != other:
        while place[one] > place[other]:
            one = above[one]
        while place[other] > place[one]:
            other = above[other]
    return one


def _chain(block: int, above: Mapping[int, int]) -> Iterable[int]:
    yield block
    while above[block] != block:
        block = above[block]
        yield block


def _order(follow: Edges) -> list[int]:
    """The blocks that the entry reaches, each before those that follow it unless by a loop."""
    entry = min(follow)
    seen, done = {entry}, []
    stack = [(entry, iter(follow[entry]))]
    while stack:
        block, others = stack[-1]
        new = next((other for other in others if other not in seen), None)
        if new is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(new)
            stack.append((new, iter(follow[new])))
    return done[::-1]
