"""Two small PTX texts, a right one and one that forgets a proxy fence, and launch descriptions for them."""

from __future__ import annotations

from pathlib import Path

from warploom.emulator.sanitizer.rules import RULES

LAUNCH = """\
grid = [1]
block = [128]
[[parameter]]
name = "data"
dtype = "u32"
shape = [2048]
"""


def good() -> str:
    example = RULES["generic-write-before-async-read"].good
    assert example is not None
    return example.text()


def bad() -> str:
    example = RULES["generic-write-before-async-read"].bad
    assert example is not None
    return example.text()


def write(folder: Path, name: str, text: str, launch: str | None = LAUNCH) -> Path:
    """A text in a folder, with a launch description beside it unless `launch` is None."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ptx"
    path.write_text(text)
    if launch is not None:
        path.with_suffix(".launch.toml").write_text(launch)
    return path
