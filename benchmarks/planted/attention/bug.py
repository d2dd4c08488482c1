"""A planted bug, and how kernels that are already imported get it: in a separate process, their functions get the code
of a changed text."""

from __future__ import annotations

import importlib
import inspect
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

FAMILIES = ("forward", "fp8", "decode", "backward")
PLACES = {
    "softmax": "kernels.hopper.attention_softmax",
    "consumer": "kernels.hopper.attention_consumer",
    "forward": "kernels.hopper.attention",
    "tiles": "kernels.hopper.attention_tiles",
    "rows": "kernels.hopper.attention_rows",
    "turn": "kernels.hopper.attention_transpose",
    "functions": "kernels.hopper.attention_functions",
    "decode": "kernels.hopper.attention_decode",
    "warp": "kernels.hopper.attention_decode_warp",
    "combine": "kernels.hopper.attention_decode_combine",
    "work": "kernels.hopper.attention_decode_work",
    "cluster": "kernels.hopper.attention_decode_cluster",
    "backward": "kernels.hopper.attention_backward",
    "backward rows": "kernels.hopper.attention_backward_rows",
    "backward functions": "kernels.hopper.attention_backward_functions",
    "backward consumer": "kernels.hopper.attention_backward_consumer",
    "backward sums": "kernels.hopper.attention_backward_sums",
    "blocks": "kernels.hopper.attention_key_blocks",
    "store": "collective.epilogue.whole_store",
    "ring": "collective.pipeline.tma",
    "queue": "collective.tile.queue",
    "turns": "collective.tile.ordered_barrier",
    "fragment": "collective.mma.fragment",
    "groups": "collective.tile.groups",
    "shares": "collective.tile.stream_k",
}
"""Modules of warploom by the names that bugs use."""


@dataclass(frozen=True)
class Edit:
    """A text that occurs once in a module, and its replacement."""

    place: str
    right: str
    wrong: str


@dataclass(frozen=True)
class Bug:
    """A bug: a short description, the cases that reach it, and the edits.

    Attributes:
        of: the kernels, a name in `FAMILIES`.
        order: true for a synchronisation bug, which is searched for under all schedules.
    """

    of: str
    name: str
    cases: tuple[str, ...]
    edits: tuple[Edit, ...]
    order: bool = False


def bugs() -> list[Bug]:
    """All bugs, in the order of the files."""
    found = []
    for of in FAMILIES:
        for one in tomllib.loads((Path(__file__).parent / f"{of}.toml").read_text())["bug"]:
            edits = tuple(Edit(**edit) for edit in one["edit"])
            found.append(Bug(of, one["name"], tuple(one["cases"]), edits, one.get("order", False)))
    return found


def texts(bug: Bug) -> dict[str, str]:
    """The texts of the modules that a bug changes, by their names in `PLACES`."""
    changed: dict[str, str] = {}
    for edit in bug.edits:
        text = changed.get(edit.place) or inspect.getsource(module_of(edit.place))
        if text.count(edit.right) != 1:
            raise SystemExit(f"{bug.name}: {edit.right!r} stands {text.count(edit.right)} times in {edit.place}")
        changed[edit.place] = text.replace(edit.right, edit.wrong)
    return changed


def plant(bug: Bug) -> None:
    """Change the kernels of this process."""
    for place, text in texts(bug).items():
        replace_code(module_of(place), text)


def module_of(place: str) -> ModuleType:
    """A module of `PLACES`."""
    return importlib.import_module(f"warploom.{PLACES[place]}")


def replace_code(module: ModuleType, text: str) -> None:
    """Give the functions of a module the code of another text of it."""
    other = ModuleType(module.__name__)
    other.__dict__.update(__file__=module.__file__, __package__=module.__package__)
    sys.modules[module.__name__], kept = other, module  # dataclasses look their module up
    try:
        exec(compile(text, str(module.__file__), "exec"), other.__dict__)
    finally:
        sys.modules[module.__name__] = kept
    theirs = dict(functions(other))
    for name, function in functions(module):
        new = theirs[name].__code__
        if same(function.__code__, new):
            continue
        function.__code__ = new
        function.__defaults__ = theirs[name].__defaults__
    for name, value in vars(other).items():
        if isinstance(value, (int, float, dict, tuple, str)) and not name.startswith("__"):
            setattr(module, name, value)


def functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The functions and methods that a module defines, by qualified name."""

    def of(owner: Any) -> Iterator[tuple[str, FunctionType]]:
        for value in list(vars(owner).values()):
            value = getattr(value, "__wrapped__", value)
            value = getattr(value, "fget", value)
            value = getattr(value, "__func__", value)
            if getattr(value, "__module__", None) != module.__name__:
                continue
            if isinstance(value, FunctionType) and value.__code__.co_filename == module.__file__:
                yield value.__qualname__, value
            elif isinstance(value, type) and value is not owner:
                yield from of(value)

    yield from of(module)


def same(one: CodeType, other: CodeType) -> bool:
    """True if two code objects do the same, regardless of line numbers."""
    if one.co_code != other.co_code or one.co_names != other.co_names:
        return False
    pairs = zip(one.co_consts, other.co_consts, strict=False)
    return len(one.co_consts) == len(other.co_consts) and all(
        same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else a == b for a, b in pairs
    )
