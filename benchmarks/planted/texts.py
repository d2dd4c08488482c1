"""The texts in which bugs are planted, with their launches and expected results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from warploom import asm
from warploom.asm.nodes import Function, Module
from warploom.runtime import launch_file
from warploom.testing import Checked, check_text

ROOT = Path(__file__).resolve().parents[2]
LAUNCHES = Path(__file__).parent / "launches"
OURS = (ROOT / "tests" / "foreign" / "nvcc", ROOT / "tests" / "foreign" / "triton")
"""Texts of our own kernels; launch descriptions for nvcc are in `launches`, those for Triton next to the texts."""
BLACKWELL = ROOT / "tests" / "foreign" / "blackwell" / "current"
"""Texts of Triton and Gluon for sm_100a."""


@dataclass(frozen=True)
class Text:
    """A kernel of a text and its launch description.

    Attributes:
        source: the origin: "nvcc", "triton", or the name of a folder.
        name: the text's name and, if it has several kernels, the kernel's.
    """

    source: str
    name: str
    path: Path
    launch: Path

    @cached_property
    def module(self) -> Module:
        """The kernel alone, with the module-level declarations."""
        module = asm.parse(self.path.read_text(), name=self.path.name)
        entry = launch_file.read(self.launch).entry
        kept = [
            item
            for item in module.items
            if entry is None or not (isinstance(item, Function) and item.kind == "entry") or item.name == entry
        ]
        return replace(module, items=tuple(kept))

    def check(self, folder: Path, module: Module, **options: object) -> Checked:
        """Run a changed text, written to the folder, like `warploom check`."""
        text = folder / f"{self.path.stem}.ptx"
        text.write_text(module.to_text())
        return check_text(text, launch=self.launch, **options)


def texts(folders: Sequence[Path] = ()) -> Iterator[Text]:
    """Our texts, and those with launch descriptions next to them in further folders."""
    for launch in sorted(LAUNCHES.glob("*.launch.toml")):
        stem = launch.name.removesuffix(".launch.toml")
        yield Text("nvcc", stem, OURS[0] / f"{stem.partition('.')[0]}.ptx", launch)
    for folder in (OURS[1], *folders):
        yield from texts_of(folder)


def texts_of(folder: Path) -> Iterator[Text]:
    """Texts with launch descriptions next to them."""
    source = "blackwell" if folder == BLACKWELL else folder.name
    for launch in sorted(folder.glob("*.launch.toml")):
        yield Text(source, launch.name.removesuffix(".launch.toml"), launch_file.text_of(launch), launch)
