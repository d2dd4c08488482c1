"""The documentation site builds without a warning, shows every public name, and all its links lead somewhere."""

from __future__ import annotations

import html
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

from tests.browser import chromium, complaints

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    for package in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "tools" / "docs_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def letters(text: str) -> str:
    """A text without what markup changes."""
    return re.sub("[^A-Za-z]", "", html.unescape(text))


def test_the_reference_names_everything_public(hook: ModuleType) -> None:
    import warploom

    modules = {"reg", "smem", "tmem", "ptx", "asm", "errors", "types", "__version__"}
    wanted = {f"warploom.{name}" for name in set(warploom.__all__) - modules}
    assert wanted - {public for _, public, _ in hook.shown()} == set()


def test_the_reference_shows_each_name_with_its_docstring(site: Path, hook: ModuleType) -> None:
    for page, public, home in hook.shown():
        text = (site / "api" / f"{page}.html").read_text()
        assert f'id="{home}"' in text, f"{public} is not on the page {page}"
        if public.rpartition(".")[0] not in hook.STATIC:
            module, name = home.rpartition(".")[::2]
            said = inspect.getdoc(getattr(sys.modules[module], name)) or ""
            first = letters(said.splitlines()[0]) if said else ""
            assert first and first in letters(re.sub("<[^>]*>", "", text)), f"{public} is shown without its docstring"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


SEEN = """
return {
    title: document.title,
    links: [...document.querySelectorAll("a[href]")].map(a => a.href),
    ids: [...document.querySelectorAll("[id]")].map(e => e.id),
    blank: [...document.images].filter(i => i.naturalWidth === 0).map(i => i.src),
}
"""


@pytest.mark.full
def test_every_link_inside_the_site_leads_to_a_page_and_a_place_on_it(site: Path, browser: Any) -> None:
    start = (site / "index.html").as_uri()
    pages: dict[str, dict[str, Any]] = {}
    left, links = [start], set()
    while left:
        address = left.pop()
        assert Path(unquote(address.removeprefix("file://"))).is_file(), f"there is no {address}: {links}"
        browser.get(address)
        pages[address] = seen = browser.execute_script(SEEN)
        assert seen["title"] and not seen["blank"], address
        inside = {link for link in seen["links"] if link.startswith(site.as_uri())}
        links |= {(address, link) for link in inside}
        for target in {urldefrag(link)[0] for link in inside}:
            if target.endswith(".html") and target not in pages and target not in left:
                left.append(target)
    lost = {
        (address, link)
        for address, link in links
        if (target := urldefrag(link))[0] in pages
        and target[1] not in ("", "__top", *map(str, pages[target[0]]["ids"]))
        and unquote(target[1]) not in pages[target[0]]["ids"]
    }
    assert lost == set()
    assert len(pages) >= len([*site.rglob("*.html")]) - 1, "every page but that for errors can be reached"
    assert complaints(browser) == []
