"""One HTML text of traced launches: the template, the style, the scripts and the bytes."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib.resources import files

from ...asm.demangle import readable
from ..tracing import Traced
from .pack import packed

SCRIPTS = ("data.js", "rows.js", "series.js", "draw.js", "view.js", "code.js", "panel.js", "main.js")


def document(launches: Sequence[Traced]) -> str:
    """The page of one launch, or of several above each other."""
    folder = files(__package__)

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    data = "\n".join(
        f'<script type="text/plain" class="launch">{base64.b64encode(packed(one)).decode()}</script>'
        for one in launches
    )
    parts = {
        "title": html.escape(" and ".join(dict.fromkeys(readable(one.kernel) for one in launches))),
        "style": text("page.css"),
        "data": data,
        "script": "\n".join(text(name) for name in SCRIPTS),
    }
    page = text("page.html")
    for name, part in parts.items():
        page = page.replace("{{" + name + "}}", part, 1)
    return page
