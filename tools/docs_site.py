"""Hooks for mkdocs: README and its neighbours as pages, the API reference, links into the repository.

mkdocs.yml names this file as a hook. The reference shows what the package exports, so no name is forgotten.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the tests read REFERENCE without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

TOP_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
REFERENCE = {
    "kernels": ("Writing kernels", {"warploom": ("kernel", "Kernel", "Tile", "Scalar", "tiles", "ptx_kernel",
                                                 "PtxKernel", "Param"), "warploom.reg": (),
                                    "warploom.smem": (), "warploom.tmem": (), "warploom.types": ("DType", "of")}),
    "instructions": ("Instructions", {"warploom.ptx": ()}),
    "running": ("Running and emulating", {"warploom": ("emulate", "launch", "predict", "trace", "Program", "TensorMap",
                                                       "Struct", "H200", "Report", "config"),
                                          "warploom.timing": ("Prediction", "Traced", "Timeline", "Event"),
                                          "warploom.asm": ("parse", "check", "verify")}),
    "products": ("Products and attention", {"warploom": ("matmul", "linear", "grouped_matmul", "quantize", "rms_norm",
                                                         "rotary_embedding", "attention", "attention_varlen",
                                                         "attention_decode", "attention_backward",
                                                         "attention_varlen_backward"),
                                     "warploom.torch": ("Linear", "convert", "converted", "fused",
                                                        "ConversionWarning", "flex_attention",
                                                        "scaled_dot_product_attention"), "warploom.jax": ()}),
    "testing": ("Testing", {"warploom.testing": ()}),
    "errors": ("Errors and warnings", {"warploom.errors": ()}),
}  # fmt: skip
"""Pages of the API reference: title, and of each module the names shown; all that it exports where none is named."""
STATIC = ("warploom.torch", "warploom.jax")
"""Modules that import a framework: where their names come from is read from the source."""


def exported(module: str) -> tuple[str, ...]:
    """The names a module exports."""
    if module in STATIC:
        return tuple(homes(module))
    found = _module(module)
    if hasattr(found, "__all__"):
        return tuple(found.__all__)
    own = (name for name, value in vars(found).items() if getattr(value, "__module__", "") == found.__name__)
    return tuple(name for name in own if not name.startswith("_"))


def homes(module: str) -> dict[str, str]:
    """Of each name that a module imports from others, where it is defined."""
    imports = re.findall(r"^from \.(\S+) import (.*)$", source(module).read_text(), re.MULTILINE)
    return {name: f"warploom.{origin}.{name}" for origin, names in imports for name in names.split(", ")}


def source(module: str) -> Path:
    return ROOT / "src" / (module.replace(".", "/") + ".py")


def _module(name: str) -> ModuleType:
    package, _, attribute = name.partition(".")
    try:
        return import_module(name)
    except ModuleNotFoundError:  # warploom.ptx is warploom.lang.ptx
        return getattr(import_module(package), attribute)


def shown() -> Iterator[tuple[str, str, str]]:
    """(page, public name, where it is defined) of everything in the reference."""
    for page, (_, modules) in REFERENCE.items():
        for module, names in modules.items():
            for name in names or exported(module):
                public = f"{module}.{name}"
                if module in STATIC:
                    yield page, public, homes(module)[name]
                    continue
                value = getattr(_module(module), name)
                if not hasattr(value, "__qualname__"):  # an object: its class has the docstrings
                    value = type(value)
                if value.__module__ != "builtins":
                    yield page, public, f"{value.__module__}.{value.__qualname__}"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    chapters = [f"ladder/{path.name}" for path in sorted((ROOT / "docs" / "ladder").glob("*.md"))]
    book = sorted(chapters, key=lambda chapter: chapter != "ladder/README.md")
    config.nav = [{"The ladder": book} if "The ladder" in entry else entry for entry in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for name, target in TOP_PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / name).read_text()))
    listed = list(shown())
    for page, (title, modules) in REFERENCE.items():
        lines = [f"# {title}", ""]
        for module in modules:
            if module != "warploom":
                lines += [f"## {module}", "", _summary(module), ""]
            for _, public, home in (
                each for each in listed if each[0] == page and each[1].rpartition(".")[0] == module
            ):
                lines += [f"::: {home}", "    options:", f"      heading: {public}", f"      toc_label: {public}", ""]
        files.append(File.generated(config, f"api/{page}.md", content="\n".join(lines)))
    return files


def _summary(module: str) -> str:
    """The first sentence of a module's docstring."""
    text: Any = source(module).read_text() if module in STATIC else f'"""{_module(module).__doc__}"""'
    (first,) = re.findall(r'\A\s*"""(.*?)(?:\n\n|""")', text, re.DOTALL)
    return first.strip()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to the repository, and links between README and docs/ to pages."""
    here = page.file.src_uri
    original = next((name for name, target in TOP_PAGES.items() if target == here), f"docs/{here}")
    folder = (ROOT / original).parent

    def link(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        place = (folder / target).resolve()
        if not place.is_relative_to(ROOT) or not place.exists():
            return match[0]
        inside = place.relative_to(ROOT).as_posix()
        if inside in TOP_PAGES:
            uri = TOP_PAGES[inside]
        elif inside.startswith("docs/") and place.is_file():
            uri = inside.removeprefix("docs/")
        else:
            return f"]({config.extra['repository']}/{'tree' if place.is_dir() else 'blob'}/main/{inside}{anchor})"
        return f"]({'../' * here.count('/')}{uri}{anchor})"

    if not here.startswith("api/"):
        markdown = re.sub(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)", link, markdown)
    return re.sub(r"^<!-- .*? -->\n(?=\|)", "", markdown, flags=re.MULTILINE)  # a comment would swallow its table
