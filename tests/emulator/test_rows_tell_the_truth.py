"""A run reports to observers exactly what the rows of the instruction table declare.

Every event of many small kernels is compared with the effects of its instruction.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.sanitizer.running import run
from warploom.emulator.engines.boxes import Box, SharedBox
from warploom.emulator.engines.bulk import Bytes, Scattered
from warploom.emulator.engines.matrix_operands import OperandPlace
from warploom.emulator.machine.async_operation import AsyncOperation
from warploom.emulator.machine.events import CompletedWait, Observer
from warploom.emulator.machine.frame import Frame, Issuer
from warploom.emulator.machine.mbarrier import MBarrier
from warploom.emulator.machine.operation import Operation
from warploom.emulator.machine.places import Lanes, Rows
from warploom.emulator.machine.tensor_memory import Cells
from warploom.errors import EmulationError
from warploom.isa import effects
from warploom.isa.effects import (
    Access,
    Allocates,
    Arrives,
    Changes,
    Commits,
    Creates,
    Destroys,
    Expects,
    Fences,
    Frees,
    Permits,
    Starts,
    Synchronises,
    Waits,
)
from warploom.kernels import ladder
from warploom.sanitizer.rules import RULES

PLACES = {
    "bytes": Bytes, "masked_bytes": Bytes, "value": Bytes, "lanes": Scattered, "box": Box, "shared_box": SharedBox,
    "descriptor": OperandPlace, "register": Rows, "response": Bytes,
    **dict.fromkeys(
        ("accumulator", "matrix_cells", "scale_cells", "fragment_cells", "copied_cells", "shifted_cells"), Cells
    ),
}  # fmt: skip
"""The place that a footprint is, of an operation."""
SAME_UNIT = {"remote": {"remote", "tma"}}
"""A copy from CTA to CTA is made by the TMA and takes its time as all that goes to another CTA does."""


class Witness(Observer):
    """Holds every event against the row of its instruction."""

    def __init__(self, seen: Counter[str]) -> None:
        self.seen = seen

    def _declares(self, operation: Operation, *kinds: type, **fields: object) -> None:
        found = [effect for effect in operation.effects if isinstance(effect, kinds)]
        named = [one for one in found if all(getattr(one, name, None) == value for name, value in fields.items())]
        assert named, f"{operation.text}: the row does not declare {kinds} with {fields}"
        self.seen[kinds[0].__name__] += 1

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if how == "changes":
            self._declares(frame.operation, Changes)
        else:
            self._declares(frame.operation, Access, how=how, at=effects.ISSUE)

    def issued(self, operation: AsyncOperation) -> None:
        code = operation.issuer.operation
        if effects.started(code.effects) is None:  # an arrival that takes its time
            self._declares(code, Arrives, Expects, Commits)
            assert not operation.sources and not operation.targets
            return
        self._declares(code, Starts)
        assert effects.started(code.effects).engine in SAME_UNIT.get(operation.unit.engine, {operation.unit.engine})
        for places, hows in ((operation.sources, ("reads", "updates")), (operation.targets, ("writes", "updates"))):
            declared = {PLACES[one.footprint] for one in effects.accesses(code.effects, effects.RUN) if one.how in hows}
            assert {type(place) for place in places} <= declared, code.text

    def committed(self, frame: Frame, family: str, operations: object) -> None:
        assert any(
            isinstance(one, Commits) and one.family == family or isinstance(one, Waits) and one.on == f"group:{family}"
            for one in frame.operation.effects
        )  # cp.async.wait_all does both
        self.seen["Commits"] += 1

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        if wait.on in ("cta", "cluster"):
            self._declares(frame.operation, Synchronises, kind=wait.on)
        else:
            whole = wait.on in ("phase", "grid") or wait.on.startswith("drained:")
            self._declares(frame.operation, Waits, on=wait.on if whole else f"group:{wait.on}")

    def fenced(self, frame: Frame, places: np.ndarray | None) -> None:
        self._declares(frame.operation, Fences)

    def arrived(self, on: object, event: object) -> None:
        kinds = (Arrives, Expects, Commits, Starts) if isinstance(on, MBarrier) else (Synchronises,)
        self._declares(event.by.operation, *kinds)  # type: ignore[attr-defined]

    def made(self, kind: str, what: object, by: Issuer) -> None:
        self._declares(by.operation, Creates, object=kind)

    def unmade(self, kind: str, what: object, by: Issuer) -> None:
        self._declares(by.operation, Destroys, object=kind)

    def took(self, frame: Frame, pool: str, amount: int, effective: bool) -> None:
        self._declares(frame.operation, Allocates, pool=pool)

    def gave(self, frame: Frame, pool: str, amount: int, effective: bool) -> None:
        self._declares(frame.operation, Frees, pool=pool)

    def permitted(self, frame: Frame, what: str) -> None:
        self._declares(frame.operation, Permits)


EXAMPLES = [rule for rule in RULES.values() if rule.bad is not None]


def watched(rule, seen: Counter[str]) -> None:
    """Run the rule's examples under a Witness, which counts the kinds of effects in `seen`."""
    for example in (rule.good, rule.bad):
        try:
            run(example, watch=lambda machine: Witness(seen))
        except EmulationError:
            assert example is rule.bad


@pytest.mark.parametrize("rule", EXAMPLES, ids=lambda rule: rule.id)
def test_the_examples_of_the_rules_do_what_their_rows_declare(rule):
    watched(rule, Counter())


@pytest.mark.parametrize("number", [3, 6, 11, 21])
def test_a_rung_of_the_ladder_does_what_its_rows_declare(number):
    import ml_dtypes

    rung = ladder.find(number)
    dtype = np.float32 if number == 3 else ml_dtypes.bfloat16
    a, b = np.zeros((256, 64), dtype), np.zeros((256, 64), dtype)
    rung.build().emulate(a, b, check=False, watch=lambda machine: Witness(Counter()))


def test_the_examples_meet_every_kind_of_effect():
    """So that the tests above hold something against each."""
    seen: Counter[str] = Counter()
    for rule in EXAMPLES:
        watched(rule, seen)
    kinds = {"Access", "Starts", "Commits", "Waits", "Synchronises", "Fences", "Arrives", "Creates", "Destroys"}
    assert kinds <= set(seen)
