"""The operators' modules: no import cycles, typed ones included; names shared by several tables are the same."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import warploom
from warploom.collective.epilogue import activations, spec
from warploom.operators.spec.activations import ACTIVATIONS
from warploom.operators.spec.arguments import DEFAULTS, signature

ROOT = Path(warploom.__file__).parent


def imports() -> dict[str, set[str]]:
    """The modules of `operators` that each of them imports, wherever it does."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "operators").rglob("*.py")
    }
    found: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                words = name.split(".") + ["__init__"] * (path.name == "__init__.py")
                source = ".".join([*words[: len(words) - node.level], *([node.module] if node.module else [])])
                for alias in node.names:
                    found[name] |= {
                        each for each in (f"{source}.{alias.name}", source) if each in files and each != "operators"
                    }
    return found


def test_no_module_imports_itself_by_way_of_others():
    edges = imports()
    assert len(edges) > 20 and edges["operators.calls"] >= {"operators.execute", "operators.request"}
    while leaves := [name for name, targets in edges.items() if not targets & set(edges)]:
        for name in leaves:
            del edges[name]
    assert not edges, f"circles among {sorted(edges)}"


def test_every_activation_is_known_as_array_operations_and_as_ptx():
    assert set(ACTIVATIONS) == set(activations.FUNCTIONS) == set(spec.ACTIVATIONS)


def test_the_typed_signature_of_matmul_is_the_table_s():
    """Type checkers need it written out; what runs is made from the table."""
    tree = ast.parse((ROOT / "operators" / "calls.py").read_text())
    (typed,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "matmul"]
    defaults = [None if node is None else ast.literal_eval(node) for node in typed.args.kw_defaults]
    names = [argument.arg for argument in typed.args.kwonlyargs]
    assert dict(zip(names, defaults, strict=True)) == {"out": None, **DEFAULTS}
    assert list(inspect.signature(warploom.matmul).parameters) == ["a", "b", *names] == list(signature().parameters)
