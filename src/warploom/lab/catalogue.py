"""Linear layers of public models, and a seeded draw of products from them.

`models.json` has only facts: the sizes that each model's public configuration states, and the numbers of GPUs over
which its layers are commonly sharded. The layers follow from them:

    attention    qkv (heads + 2 kv_heads) x head_dim of hidden; output hidden of heads x head_dim; low-rank attention
                 has a down and an up projection for each part instead
    feed-forward up (gated: gate and up together) of hidden; down of intermediate; the same of an expert
    vocabulary   lm_head vocab of hidden
    sharding     by columns (qkv, up, lm_head: N / shards) or by rows (output, down: K / shards)

A draw takes a model, one of its layers, and a number of rows, uniform on a logarithmic scale.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .work import LAYOUTS, GemmWork

FILE = Path(__file__).with_name("models.json")
KINDS = ("dense", "moe", "vision", "speech")
MOST_ROWS = 16384
MOST_SIZE = (1 << 31) - 1
TMA_ELEMENTS = 8
"""Number of 16-bit elements in 16 bytes: rows of an operand that TMA can address are multiples of it."""
_PATIENCE = 10_000
"""Consecutive draws without a new product after which the catalogue counts as exhausted."""
_SIZES = ("hidden", "heads", "kv_heads", "head_dim")
_OPTIONAL = ("intermediate", "vocab", "experts", "experts_per_token", "expert_intermediate")
_LOW_RANK = ("kv", "rope", "nope", "value")
_KNOWN = {"name", "kind", "gated", "sharding", "low_rank", *_SIZES, *_OPTIONAL}


@dataclass(frozen=True)
class Layer:
    """A linear layer: D (rows, n) = A (rows, k) W (n, k).

    Attributes:
        experts, of_token: number of experts with such a layer, and of those that each token has; 0 for other layers.
    """

    model: str
    name: str
    n: int
    k: int
    shards: int = 1
    experts: int = 0
    of_token: int = 0


@dataclass(frozen=True)
class Model:
    """A checked entry of the catalogue. `facts`: as in the file."""

    name: str
    facts: Mapping[str, Any]

    def layers(self) -> Iterator[Layer]:
        """Its layers, whole and in shards, except shards that are uneven or that TMA cannot address."""
        experts = self.facts.get("experts", 0), self.facts.get("experts_per_token", 0)
        for shards in self.facts["sharding"]:
            for name, n, k, by_rows in self._whole():
                divided, of = k if by_rows else n, experts if name.startswith("expert") else (0, 0)
                sizes = n // (1 if by_rows else shards), k // (shards if by_rows else 1)
                layer = Layer(self.name, name, *sizes, shards, *of)
                if divided % shards == 0 and layer.k % TMA_ELEMENTS == 0:
                    yield layer

    def _whole(self) -> Iterator[tuple[str, int, int, bool]]:
        """(name, n, k, whether shards divide k)."""
        facts = self.facts
        hidden, heads, width = facts["hidden"], facts["heads"], facts["head_dim"]
        gate = 2 if facts["gated"] else 1
        if "low_rank" in facts:
            yield from self._low_rank(facts["low_rank"], hidden, heads)
        else:
            yield "qkv", (heads + 2 * facts["kv_heads"]) * width, hidden, False
            yield "output", hidden, heads * width, True
        for prefix, inner in (("", facts.get("intermediate")), ("expert ", facts.get("expert_intermediate"))):
            if inner is not None:
                yield f"{prefix}up", gate * inner, hidden, False
                yield f"{prefix}down", hidden, inner, True
        if "vocab" in facts:
            yield "lm_head", facts["vocab"], hidden, False

    def _low_rank(self, ranks: Mapping[str, int], hidden: int, heads: int) -> Iterator[tuple[str, int, int, bool]]:
        inner = heads * (ranks["nope"] + ranks["rope"])
        if "query" in ranks:
            yield "query down", ranks["query"], hidden, False
            yield "query up", inner, ranks["query"], False
        else:
            yield "query", inner, hidden, False
        yield "kv down", ranks["kv"] + ranks["rope"], hidden, False
        yield "kv up", heads * (ranks["nope"] + ranks["value"]), ranks["kv"], False
        yield "output", hidden, heads * ranks["value"], True


def load(path: Path = FILE) -> tuple[Model, ...]:
    """The models of a catalogue. Raises ArgumentError for an invalid file or entry, saying which and why."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"the catalogue of models cannot be read: {error}", got=path.name, code="catalogue"
        ) from None
    entries = found.get("models") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ArgumentError(
            "this is not a model catalogue", expected='an object with a list "models"', got=path.name, code="catalogue"
        )
    made = tuple(_model(entry, number, path.name) for number, entry in enumerate(entries))
    names = [model.name.lower() for model in made]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ArgumentError(
            f"the catalogue {path.name} has two models {twice[0]!r}",
            expected="distinct names, ignoring case",
            got=repr(twice),
            code="catalogue",
        )
    return made


def _model(entry: Any, number: int, file: str) -> Model:
    """An entry, checked."""
    name = entry.get("name") if isinstance(entry, dict) else None
    where = f"{name!r}" if isinstance(name, str) and name else f"number {number}"

    def wrong(what: str, expected: str, got: object) -> ArgumentError:
        return ArgumentError(
            f"entry {where} of the catalogue {file} {what}", expected=expected, got=repr(got), code="catalogue"
        )

    if not isinstance(entry, dict):
        raise wrong("is not a model", "an object of sizes", entry)
    if not isinstance(name, str) or not name:
        raise wrong("has no name", "a text", name)
    if unknown := sorted(set(entry) - _KNOWN):
        raise wrong(f"has an unknown field {unknown[0]!r}", ", ".join(sorted(_KNOWN)), entry[unknown[0]])
    if entry.get("kind") not in KINDS:
        raise wrong("is of no known kind", ", ".join(KINDS), entry.get("kind"))
    if not isinstance(entry.get("gated"), bool):
        raise wrong("does not say whether its feed-forward layer is gated", "true or false", entry.get("gated"))
    if "intermediate" not in entry and "expert_intermediate" not in entry:
        raise wrong("has no feed-forward layer", "intermediate or expert_intermediate", None)
    for field in (*_SIZES, *(each for each in _OPTIONAL if each in entry)):
        if not _is_size(entry.get(field)):
            raise wrong(f"has a wrong {field}", f"an integer from 1 to {MOST_SIZE}", entry.get(field))
    shards = entry.get("sharding")
    if not isinstance(shards, list) or not shards or not all(_is_size(each) for each in shards):
        raise wrong("has a wrong sharding", "a list of numbers of GPUs, such as [1, 2]", shards)
    if "low_rank" in entry:
        ranks = entry["low_rank"]
        known = isinstance(ranks, dict) and {*_LOW_RANK} <= {*ranks} <= {*_LOW_RANK, "query"}
        if not known or not all(_is_size(each) for each in ranks.values()):
            raise wrong("has a wrong low_rank", f"an object of {', '.join(_LOW_RANK)}, and query if it has one",
                        ranks)  # fmt: skip
    model = Model(name, entry)
    if not any(model.layers()):
        raise wrong("has no layer", f"a K of a multiple of {TMA_ELEMENTS} that a sharding divides",
                    [entry["hidden"], shards])  # fmt: skip
    return model


def _is_size(value: object) -> bool:
    return type(value) is int and 0 < value <= MOST_SIZE


def layers_of(name: str, shards: int = 1) -> list[Layer]:
    """The layers of a model over that many GPUs, plus the separate gate of a gated feed-forward layer, for models
    that keep it apart. The name is not case-sensitive.

    Raises ArgumentError for a model that the catalogue lacks, and for a sharding that it does not state.
    """
    known = load()
    model = next((each for each in known if each.name.lower() == name.lower()), None)
    if model is None:
        raise ArgumentError(f"the catalogue has no model {name!r}", got=repr(name), code="unknown-name",
                            expected=", ".join(each.name for each in known))  # fmt: skip
    if shards not in model.facts["sharding"]:
        raise ArgumentError(f"the catalogue has no such sharding of {model.name}", got=shards,
                            expected=", ".join(map(str, model.facts["sharding"])))  # fmt: skip
    found = [layer for layer in model.layers() if layer.shards == shards]
    if model.facts["gated"]:
        found += [replace(each, name="gate", n=each.n // 2) for each in found if each.name == "up"]
    return found


def draw(
    seed: int, count: int, models: Sequence[Model] | None = None, *, like: GemmWork | None = None,
    layouts: Sequence[str] = ("forward",), least: int = 1, most: int = MOST_ROWS,
) -> tuple[GemmWork, ...]:  # fmt: skip
    """Draw `count` distinct products, the same ones for the same seed.

    Args:
        models: to draw from; the catalogue's by default.
        like: element types, scales and outputs of the products; by default plain bf16.
        layouts: of `LAYOUTS`, one of which is drawn for each product. A layer of N x K has the products rows x N x K
            (forward), rows x K x N (input-gradient) and N x K x rows (weight-gradient).
        least, most: range of rows, uniform on a logarithmic scale. Half of them are rounded to a multiple of 8, like
            batches; the others are unchanged.

    Raises ArgumentError for a number of products or rows that cannot be drawn, and for an unknown layout.
    """
    if type(count) is not int or count < 1:
        raise ArgumentError("the size of a sample is not a positive integer", expected="1 or more", got=repr(count))
    if not 1 <= least <= most:
        raise ArgumentError("the range of rows is invalid", expected="1 <= least <= most",
                            got=f"{least} to {most}")  # fmt: skip
    if unknown := [each for each in layouts if each not in LAYOUTS]:
        raise ArgumentError(f"unknown layout {unknown[0]!r}", expected=", ".join(LAYOUTS), got=repr(unknown[0]))
    if not layouts:
        raise ArgumentError("a sample needs a layout", expected=", ".join(LAYOUTS), got="none")
    generator, like = random.Random(seed), like or GemmWork(1, 1, 1)
    by_model = [list(model.layers()) for model in models or load()]
    found: dict[GemmWork, None] = {}
    missed = 0
    while missed < _PATIENCE:
        missed += 1
        layer = generator.choice(generator.choice(by_model))
        problem = _product(layer, _rows(generator, least, most), generator.choice(list(layouts)), like)
        if problem is None or problem in found:
            continue
        found[problem], missed = None, 0
        if len(found) == count:
            return tuple(found)
    raise ArgumentError("the catalogue does not have that many different products", expected=f"at most {len(found)}",
                        got=count)  # fmt: skip


def _rows(generator: random.Random, least: int, most: int) -> int:
    rows = min(most, max(least, round(math.exp(generator.uniform(math.log(least), math.log(most + 1))))))
    rounded = rows // 8 * 8
    return rounded if generator.random() < 0.5 and rounded >= least else rows


def _product(layer: Layer, rows: int, layout: str, like: GemmWork) -> GemmWork | None:
    """The product of a layer in a direction; None if TMA cannot address one of its operands."""
    sizes = {"forward": (rows, layer.n, layer.k), "input-gradient": (rows, layer.k, layer.n),
             "weight-gradient": (layer.n, layer.k, rows)}[layout]  # fmt: skip
    problem = replace(like, m=sizes[0], n=sizes[1], k=sizes[2], layout=LAYOUTS[layout])
    inner = {"tn": (problem.k,), "tt": (problem.k, problem.n), "nt": (problem.m, problem.n)}[problem.layout]
    step = 16 if like.dtype in ("e4m3", "e5m2") else TMA_ELEMENTS
    return problem if all(size % step == 0 for size in inner) else None
