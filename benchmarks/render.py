"""Render the figures of benchmarks/results into docs and README.md, after their markers; docs/ladder through `book`.

    python benchmarks/render.py [--check]        --check: exit 1 if a document differs, write nothing

tables_*.py in this folder make the tables. In README.md and docs/measured.md a row whose kernel now has another text is
marked as stale.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]  # this checkout, whatever is installed

from benchmarks import book  # noqa: E402
from benchmarks import tables_attention as attention  # noqa: E402
from benchmarks import tables_compared as compared  # noqa: E402
from benchmarks import tables_few_rows as few_rows  # noqa: E402
from benchmarks import tables_goals as goals  # noqa: E402
from benchmarks import tables_kernels as kernels  # noqa: E402
from benchmarks import tables_package as package  # noqa: E402
from benchmarks import tables_predicted as predicted  # noqa: E402
from benchmarks.tables_rows import STALE  # noqa: E402

MISSING = "Not measured yet.\n"
H200, H100 = RESULTS / "nvidia-h200", RESULTS / "nvidia-h100"
FACTS, MEASURED, README = ROOT / "docs" / "measured-facts.md", ROOT / "docs" / "measured.md", ROOT / "README.md"
INSTALLING, ATTENTION = ROOT / "docs" / "installing.md", ROOT / "docs" / "attention.md"
PREDICTING = ROOT / "docs" / "predicting.md"
BF16 = tuple(H200 / f"{suite}-bf16.json" for suite in ("square", "llm", "small-k"))
BF16_SAMPLES = tuple(H200 / f"sample-bf16-seed-{seed}.json" for seed in (5001, 5002, 5003, 6001, 7001, 8201, 9302))
SAMPLES = (*BF16_SAMPLES, *(H200 / f"sample-{name}.json" for name in (
    *(f"bf16-gradients-seed-{seed}" for seed in (5007, 7002, 9303)), "fp8-seed-4005", "fp8-seed-8202",
    "fp8-row-seed-5006")))  # fmt: skip
GOALS = (
    BF16_SAMPLES,
    tuple(H200 / f"sample-fp8-seed-{seed}.json" for seed in (4005, 8202)),
    (H200 / "sample-fp8-row-seed-5006.json",),
    (H200 / "few-rows-shapes.json",),
    *(tuple(H200 / f"{suite}-bf16{length}.json" for length in ("", "-long")) for suite in ("llm", "small-k")),
    (H200 / "square-bf16.json",),
    tuple(H200 / f"language-model{which}.json" for which in ("", "-qwen")),
    (H200 / "language-model-compiled.json",),
    *((RESULTS / f"{name}.json",) for name in ("choice-model", "choice-models")),
    tuple(H200 / f"overhead{which}.json" for which in ("-first", "", "-third")),
)
"""The files of each argument of the table of goals."""
EARLIER_SAMPLES = tuple(H200 / f"sample-{name}.json" for name in (
    "bf16-seed-4002", "bf16-seed-4003", "bf16-gradients-seed-4007", "fp8-row-seed-4006"))  # fmt: skip
H100_SAMPLES = tuple(H100 / f"sample-{name}.json" for name in (
    "bf16-seed-1601", "bf16-seed-2052", "bf16-gradients-seed-2041", "bf16-gradients-seed-2051", "fp8-seed-1702",
    "fp8-seed-2053", "fp8-row-seed-1703", "fp8-row-seed-2054"))  # fmt: skip
UNSEEN = tuple(RESULTS / "emulator" / f"unseen{which}.json" for which in ("", "-h100"))
Entry = tuple[Any, ...]
"""The function that makes a table, then its evidence files, in order."""
TABLES: dict[Path, dict[str, Entry]] = {
    FACTS: {
        "ladder": (kernels.ladder, H200 / "ladder.json"),
        "ladder-zeros": (kernels.energy, H200 / "ladder-zeros.json"),
        "ladder-4096": (kernels.energy, H200 / "ladder-4096.json"),
        "few-rows": (few_rows.few_rows, H200 / "few-rows.json"),
        "decode": (few_rows.decode, H200 / "decode.json"),
        "energy-square": (kernels.energy, H200 / "square-bf16.json"),
        "energy-llm": (kernels.energy, H200 / "llm-bf16.json"),
        "first-light": (kernels.first_light, H200 / "first-light.json"),
        "eager-call": (package.eager_call, H200 / "first-light.json"),
        "sweep-bf16": (kernels.sweep, H200 / "sweep-bf16.json"),
        "reference-texts": (kernels.reference_texts, H200 / "reference-texts.json"),
        "beside": (kernels.beside, H200 / "beside.json", RESULTS / "emulator" / "beside.json"),
        "samples-earlier": (compared.samples, *EARLIER_SAMPLES),
        "samples-h100": (compared.samples, *H100_SAMPLES),
        "remote-arrival": (kernels.remote_arrival, H200 / "remote-arrival.json"),
        "tensor-store-edges": (kernels.tensor_store_edges, H200 / "tensor-store-edges.json"),
        "emulator-speed": (package.emulator_speed, RESULTS / "cpu-x86_64-2-cores" / "emulator-speed.json"),
        "mutant-zoo": (package.mutant_zoo, RESULTS / "cpu-x86_64-2-cores" / "mutant-zoo.json"),
        "mutant-kinds": (package.mutant_kinds, RESULTS / "cpu-x86_64-2-cores" / "mutant-zoo.json"),
        "download-size": (package.download_size, RESULTS / "download_size.json"),
    },
    PREDICTING: {
        "predicted": (predicted.scores, RESULTS / "emulator" / "predicted.json"),
        "predicted-furthest": (predicted.furthest, RESULTS / "emulator" / "predicted.json"),
        "waits": (predicted.waits, RESULTS / "emulator" / "profiled.json"),
        "profiled": (predicted.profiled, RESULTS / "emulator" / "profiled.json"),
        "blind": (predicted.blind, RESULTS / "emulator" / "blind.json"),
        "unseen": (predicted.unseen, *UNSEEN),
        "unseen-brought": (predicted.brought, UNSEEN[0]),
        "unseen-furthest": (predicted.unseen_furthest, *UNSEEN),
    },
    MEASURED: {
        "ladder": (kernels.ladder_short, H200 / "ladder.json"),
        "bf16-summary": (compared.bf16_summary, *BF16),
        "square-bf16": (compared.comparison, H200 / "square-bf16.json"),
        "llm-bf16": (compared.comparison, H200 / "llm-bf16.json"),
        "samples": (compared.samples, *SAMPLES),
        "goals": (partial(goals.goals, runs=tuple(map(len, GOALS))), *(path for paths in GOALS for path in paths)),
        "sample-peers": (compared.peers, H200 / "sample-peers-seed-9301.json"),
        "small-k-bf16": (compared.comparison, H200 / "small-k-bf16.json"),
        "fp8": (compared.fp8, H200 / "fp8.json"),
        "fused": (compared.comparison, H200 / "fused.json"),
        "grouped": (compared.comparison, H200 / "grouped.json"),
        "decode": (few_rows.decode_summary, H200 / "decode.json"),
        "launch": (compared.launch_ways, H200 / "launch.json"),
        "overhead": (package.host_time, H200 / "overhead.json"),
        "first-call": (package.first_call, H200 / "first-call.json"),
        "first-use": (package.first_use, H200 / "first-use.json"),
        "llama-block": (compared.llama_block, H200 / "llama-block.json"),
        "language-model": (compared.language_model, H200 / "language-model.json"),
        "language-model-qwen": (compared.language_model, H200 / "language-model-qwen.json"),
        "language-model-qwen-e4m3": (compared.language_model, H200 / "language-model-qwen-e4m3.json"),
    },
    README: {
        "summary": (
            compared.summary,
            *BF16,
            *(H200 / f"{name}.json" for name in ("fp8", "fused", "grouped")),
            *(H200 / f"attention{name}.json" for name in ("", "-backward", "-decode")),
            *BF16_SAMPLES,
        ),
    },
    ATTENTION: {
        "attention": (attention.table, H200 / "attention.json"),
        "attention-trained": (attention.trained, H200 / "attention-trained.json"),
        "attention-backward": (attention.backward, H200 / "attention-backward.json"),
        "attention-triton": (attention.beside_triton, H200 / "attention-triton.json"),
        "attention-peers": (attention.peers, H200 / "attention-peers.json"),
        "attention-functions": (attention.functions, H200 / "attention-functions.json"),
        "attention-gradients": (attention.gradients, H200 / "attention-gradients.json"),
        "attention-e4m3": (attention.eight_bits, H200 / "attention-e4m3.json"),
        "eight-bit-sums": (attention.eight_bit_sums, RESULTS / "emulated" / "eight-bit-sums.json"),
        "attention-decode": (attention.decode, H200 / "attention-decode.json"),
    },
    INSTALLING: {"download-size": (package.download_size, RESULTS / "download_size.json")},
}


def rendered(text: str, tables: Mapping[str, Entry]) -> str:
    """The document with each marked table regenerated, or a note if an evidence file is missing."""
    for name, (make, *paths) in tables.items():
        marker = f"<!-- {name} -->"
        if marker not in text:
            continue
        body = MISSING
        if all(path.exists() for path in paths):
            body = "".join(f"{line}\n" for line in make(*(json.loads(path.read_text()) for path in paths)))
        # A table starts on the line after its marker and ends with its last `|` line.
        table_there = re.escape(marker) + rf"\n(?:\|[^\n]*\n|{re.escape(MISSING)})*"
        text = re.sub(table_there, lambda _, new=f"{marker}\n{body}": new, text)
    return text


def says_less(text: str, new: str) -> bool:
    """True if a document's figures differ from `new`, or a stale row is not marked as stale.

    Superfluous marks are allowed: the row was measured with a text that the package did not build for a while.
    """
    old_lines, new_lines = text.splitlines(), new.splitlines()
    if [line.replace(STALE, "") for line in old_lines] != [line.replace(STALE, "") for line in new_lines]:
        return True
    return any(STALE in now and STALE not in was for was, now in zip(old_lines, new_lines, strict=True))


def main() -> int:
    """Render the tables, or say which document differs."""
    differ = 0
    makers = {document: partial(rendered, tables=tables) for document, tables in TABLES.items()}
    for document, make in {**makers, **{chapter: book.rendered for chapter in book.documents()}}.items():
        text = document.read_text()
        new = make(text)
        if "--check" in sys.argv:
            if says_less(text, new):
                print(
                    f"{document.relative_to(ROOT)} does not show what the files say, or a stale row as if it were not"
                )
                differ = 1
        elif new != text:
            document.write_text(new)
    return differ


if __name__ == "__main__":
    sys.exit(main())
