"""The texts that bugs are planted in, with the launches under which they run and what they must compute."""

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
"""Texts of kernels of our own: the descriptions of nvcc's are in `launches`, those of Triton's beside them."""
BLACKWELL = ROOT / "tests" / "foreign" / "blackwell" / "current"
"""Texts of Triton and Gluon for sm_100a."""


@dataclass(frozen=True)
class Text:
    """A kernel of a text and its launch description.

    Attributes:
        source: who wrote it: "nvcc", "triton", or the name of a folder.
        name: the text's and, where it has several kernels, the kernel's.
    """

    source: str
    name: str
    path: Path
    launch: Path

    @cached_property
    def module(self) -> Module:
        """The kernel alone, with what all kernels share."""
        module = asm.parse(self.path.read_text(), name=self.path.name)
        entry = launch_file.read(self.launch).entry
        kept = [
            item
            for item in module.items
            if entry is None or not (isinstance(item, Function) and item.kind == "entry") or item.name == entry
        ]
        return replace(module, items=tuple(kept))

    def check(self, folder: Path, module: Module, **options: object) -> Checked:
        """As `warploom check` does it, of a changed text that is written to the folder."""
        text = folder / f"{self.path.stem}.ptx"
        text.write_text(module.to_text())
        return check_text(text, launch=self.launch, **options)


def texts(folders: Sequence[Path] = ()) -> Iterator[Text]:
    """Ours, and those with launch descriptions beside them in more folders."""
    for launch in sorted(LAUNCHES.glob("*.launch.toml")):
        stem = launch.name.removesuffix(".launch.toml")
        yield Text("nvcc", stem, OURS[0] / f"{stem.partition('.')[0]}.ptx", launch)
    for folder in (OURS[1], *folders):
        yield from texts_of(folder)


def texts_of(folder: Path) -> Iterator[Text]:
    """Those with launch descriptions beside them."""
    source = "blackwell" if folder == BLACKWELL else folder.name
    for launch in sorted(folder.glob("*.launch.toml")):
        yield Text(source, launch.name.removesuffix(".launch.toml"), launch_file.text_of(launch), launch)
