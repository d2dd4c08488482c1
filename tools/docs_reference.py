"""For mkdocstrings: a public name whose docstring and signature are made when its module runs is read from the module.

mkdocs.yml names this file as an extension of griffe, which reads the source without running it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).resolve().parent))

from docs_site import STATIC, shown  # noqa: E402


class Reference(griffe.Extension):
    """Take what the source does not show from the imported module; keep `x<n>` of an opcode from being a tag."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            pieces = re.split("(`[^`]*`)", obj.docstring.value)
            pieces[::2] = [piece.replace("<", "&lt;") for piece in pieces[::2]]
            obj.docstring.value = "".join(pieces)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        homes = {home for _, public, home in shown() if public.rpartition(".")[0] not in STATIC}
        for home in sorted(homes):
            module, _, name = home.rpartition(".")
            inside = module.removeprefix(f"{pkg.path}.")
            if home.startswith(f"{pkg.path}.") and pkg[f"{inside}.{name}"].docstring is None:
                pkg[inside].set_member(name, griffe.inspect(module)[name])
