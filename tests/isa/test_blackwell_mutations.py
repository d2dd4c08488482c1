"""Random changes of legal Blackwell instructions: the instruction table accepts none that ptxas 13.0 refuses, and what
only ptxas accepts has a reason below.

A change replaces, removes, repeats, swaps or inserts a modifier, or replaces or removes an operand; modifiers and
operands come from the same family of `blackwell_space`: tensor memory, tensor copies, cluster launch control.
Seeds are fixed.
"""

from __future__ import annotations

import random
import re

import pytest

from tests.isa import blackwell_beside
from tests.isa import blackwell_space as space
from tests.isa.assembling import find_ptxas, refused
from tests.isa.test_blackwell_verdicts import WE_REFUSE
from tests.isa.test_instruction_table import refused_by_verifier
from warploom.isa.instructions import nearest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_ptxas() is None, reason="no ptxas here")]

OPERANDS = re.compile(r"\[[^]]*\]|\{[^}]*\}|[^,\s][^,]*")
MODIFIER = re.compile(r"(?<!:)\.(?!:)")
COUNT = 400
BESIDE = {family.__name__ for family in blackwell_beside.FAMILIES}
PTXAS_IS_LENIENT = {
    **WE_REFUSE,
    r"tcgen05\.dealloc[^;]*, \d+;": "ptxas looks for a multiple of 32 only; the ISA has powers of two to 512",
    r"tcgen05\.mma[^;]*, \d+(, %rd4)?;": "the operand is a predicate: ptxas takes any number for one, we 0 and 1",
    r"clusterlaunchcontrol\.query_cancel.*, (\d+|\{[^;]*\});": "the response is one register of 128 bits",
    r"(tcgen05|clusterlaunchcontrol)(?!\S*\.shared).*\[%r\d": "a generic address has 64 bits",
    r"cp\.async\.bulk\.tensor.* %[hqf]": "a register of another size, without brackets, is no address",
}
"""What ptxas takes and we refuse, with the reason."""


def parts(text: str) -> tuple[list[str], list[str]]:
    """The name and its modifiers, and the operands."""
    name, _, rest = text.rstrip(";").partition(" ")
    return MODIFIER.split(name), [operand.strip() for operand in OPERANDS.findall(rest)]


def changed(text: str, modifiers: list[str], operands: list[str], draw: random.Random) -> str:
    """One instruction with one or two random changes."""
    name, given = parts(text)
    for _ in range(draw.choice((1, 1, 2))):
        at = draw.randrange(1, len(name)) if len(name) > 1 else 1
        match draw.choice(("replace", "replace", "insert", "remove", "repeat", "swap", "operand", "fewer")):
            case "insert":
                name.insert(at, draw.choice(modifiers))
            case "operand" if given:
                given[draw.randrange(len(given))] = draw.choice(operands)
            case "fewer" if given:
                del given[draw.randrange(len(given))]
            case "replace" if len(name) > 1:
                name[at] = draw.choice(modifiers)
            case "remove" if len(name) > 1:
                del name[at]
            case "repeat" if len(name) > 1:
                name.insert(at, name[at])
            case "swap" if len(name) > 1:
                other = draw.randrange(1, len(name))
                name[at], name[other] = name[other], name[at]
    return f"{'.'.join(name)} {', '.join(given)}".strip() + ";"


def mutations(target: str, seed: int) -> list[str]:
    draw = random.Random(seed)
    recorded = space.recorded()
    families = []
    for family in sorted(space.FAMILIES.keys() - BESIDE):
        legal = [text for text, taken in zip(space.texts(family), recorded[family][target], strict=True) if taken]
        if legal:
            modifiers = sorted({modifier for text in legal for modifier in parts(text)[0][1:]})
            families.append((legal, modifiers, sorted({operand for text in legal for operand in parts(text)[1]})))
    found: dict[str, None] = {}
    while len(found) < COUNT:
        legal, modifiers, operands = draw.choice(families)
        found[changed(draw.choice(legal), modifiers, operands, draw)] = None
    return list(found)


@pytest.mark.parametrize(("target", "seed"), [("sm_100a", 1), ("sm_100a", 2), ("sm_103a", 3), ("sm_120a", 4)])
def test_the_table_accepts_no_mutation_that_ptxas_refuses(target, seed, monkeypatch):
    monkeypatch.setattr(nearest, "suggest", lambda opcode: "")
    texts = mutations(target, seed)
    theirs, ours = refused(texts, target, space.VERSION), refused_by_verifier(texts, target, space.VERSION)
    assert [text for index, text in enumerate(texts) if index in theirs and index not in ours] == []
    only_ptxas = [text for index, text in enumerate(texts) if index in ours and index not in theirs]
    assert [text for text in only_ptxas if not any(re.match(each, text) for each in PTXAS_IS_LENIENT)] == []
    assert len(theirs) < COUNT
