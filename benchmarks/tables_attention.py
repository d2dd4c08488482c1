"""The tables of attention next to cuDNN, from the rows of attention.json."""

from __future__ import annotations

from benchmarks.tables_rows import Result, mark

TRITON = "triton-attention"


def table(result: Result) -> list[str]:
    """One line for each case: ours and cuDNN's TFLOP/s alone, the ratio alone and interleaved, errors."""
    lines = [
        "| head_dim, length | TFLOP/s | cuDNN | times as fast, alone | interleaved | error | cuDNN's |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        rows = {(row["provider"], row["protocol"]): row for row in result["rows"] if row["case"] == case}
        alone, sliced = rows.get(("warploom", "alone")), rows.get(("warploom", "interleaved"))
        if alone is None:
            continue
        theirs = [row for (provider, protocol), row in rows.items() if "cudnn" in provider and protocol == "alone"]
        best = max(theirs, key=lambda row: row["tflops"]["median"], default=None)
        ratios = [row["ratio_to"].get("cudnn") if row else None for row in (alone, sliced)]
        cells = [
            case + mark([alone]), alone["tflops"]["median"], best["tflops"]["median"] if best else "",
            *(f"{ratio:.2f}" if ratio else "" for ratio in ratios),
            f"{alone['relative_error']:.1e}", f"{best['relative_error']:.1e}" if best else "",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def trained(result: Result) -> list[str]:
    """Layers of trained models next to cuDNN, and what distinguishes their scores from those of random data."""
    lines = [
        "| head_dim, length | TFLOP/s | cuDNN | times as fast | error | cuDNN's | largest score | on key 0 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        found = {row["provider"]: row for row in result["rows"] if row["case"] == case}
        ours, theirs = found["warploom"], found["cudnn"]
        cells = [
            case + mark([ours]), ours["tflops"]["median"], theirs["tflops"]["median"],
            f"{ours['ratio_to']['cudnn']:.2f}", f"{ours['relative_error']:.1e}", f"{theirs['relative_error']:.1e}",
            f"{ours['largest_score']:.0f}", f"{ours['weight_of_first_key']['mean']:.0%}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def backward(result: Result) -> list[str]:
    """The gradients alone: our TFLOP/s and cuDNN's, where it has any, and errors."""
    lines = ["| head_dim, length | TFLOP/s | cuDNN | times as fast | error | cuDNN's |", "|---|---|---|---|---|---|"]
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        found = {row["provider"]: row for row in result["rows"] if row["case"] == case}
        ours, theirs = found["warploom"], found.get("cudnn")
        cells = [case + mark([ours]), ours["tflops"]["median"], "", "", f"{ours['relative_error']:.1e}", ""]
        if theirs is not None:
            ratio, error = f"{ours['ratio_to']['cudnn']:.2f}", f"{theirs['relative_error']:.1e}"
            cells[2:] = [theirs["tflops"]["median"], ratio, cells[4], error]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def gradients(result: Result) -> list[str]:
    """Gradients of `attention_varlen`, of a function of scores and of a softcap next to those of attention."""
    columns = ("warploom", "warploom varlen", "warploom score_mod", "warploom softcap")
    lines = [
        "| head_dim, length | plain | varlen | score_mod | softcap | largest error |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        found = {row["provider"]: row for row in result["rows"] if row["case"] == case}
        rows = [found[name] for name in columns]
        error = max(row["relative_error"] for row in rows)
        cells = [case + mark(rows), *(row["tflops"]["median"] for row in rows), f"{error:.1e}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def peers(result: Result) -> list[str]:
    """Windows, packed sequences and documents next to torch's FlashAttention-2 and FlexAttention."""
    lines = ["| head_dim, length | TFLOP/s | FlashAttention-2 | FlexAttention | error |", "|---|---|---|---|---|"]
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        found = {row["provider"]: row for row in result["rows"] if row["case"] == case}
        ours = found["warploom"]
        others = [found[name]["tflops"]["median"] if name in found else "" for name in ("flash", "flex")]
        cells = [case + mark([ours]), ours["tflops"]["median"], *others, f"{ours['relative_error']:.1e}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def beside_triton(result: Result) -> list[str]:
    """Ours and Triton's TFLOP/s, alone, and how many times as fast as Triton's ours is."""
    lines = ["| head_dim, length | TFLOP/s | Triton | times as fast |", "|---|---|---|---|"]
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        found = {row["provider"]: row for row in result["rows"] if row["case"] == case}
        if TRITON not in found:
            continue
        ours = found["warploom"]
        cells = [case + mark([ours]), *(found[name]["tflops"]["median"] for name in ("warploom", TRITON)),
                 f"{ours['ratio_to'][TRITON]:.2f}"]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def functions(result: Result) -> list[str]:
    """Functions of scores and masks, forward and backward, next to FlexAttention: TFLOP/s and the largest error."""
    columns = ("warploom", "warploom causal", "flex")
    lines = [
        "| head_dim, length | block mask | causal=True | FlexAttention | largest error |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        found = {row["provider"]: row for row in result["rows"] if row["case"] == case}
        error = max(row["relative_error"] for name, row in found.items() if name != "flex")
        speeds = [found[name]["tflops"]["median"] if name in found else "" for name in columns]
        lines.append(f"| {' | '.join(map(str, [case, *speeds, f'{error:.1e}']))} |")
    return lines


def eight_bits(result: Result) -> list[str]:
    """e4m3 next to our own bf16, each alone, where the power limit holds for both."""
    lines = ["| head_dim, length | TFLOP/s | bf16 | times as fast | error |", "|---|---|---|---|---|"]
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        found = {row["provider"]: row for row in result["rows"] if (row["case"], row["protocol"]) == (case, "alone")}
        ours, wide = found["warploom"], found["own-bf16"]
        cells = [case + mark([ours]), round(ours["tflops"]["median"]), round(wide["tflops"]["median"]),
                 f"{ours['ratio_to']['own-bf16']:.2f}", f"{ours['relative_error']:.1e}"]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def eight_bit_sums(result: Result) -> list[str]:
    """The error of O by the number of keys accumulated in the tensor core."""
    columns = list(result["rows"][0]["errors"])
    heads = [name if not name.isdecimal() else f"{name} keys" if name != "0" else "all keys" for name in columns]
    lines = [f"| mean of V | keys | {' | '.join(heads)} |", f"|---|---|{'---|' * len(columns)}"]
    for row in result["rows"]:
        errors = [f"{row['errors'][name]:.1e}" for name in columns]
        lines.append(f"| {row['mean']:g} | {row['keys']:,} | {' | '.join(errors)} |")
    return lines


def decode(result: Result) -> list[str]:
    """Microseconds per step, and the rate of reading the cache as a share of 4.71 TB/s."""
    lines = [
        "| sequences x keys | us | of 4.71 TB/s | cuDNN, us | times as fast | error |",
        "|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        found = {row["provider"]: row for row in result["rows"] if row["case"] == case}
        ours, theirs = found["warploom"], found.get("cudnn")
        cells = [
            case + mark([ours]), ours["us"]["median"], f"{ours['of_ceiling']:.1%}",
            theirs["us"]["median"] if theirs else "", f"{ours['ratio_to']['cudnn']:.2f}" if theirs else "",
            f"{ours['relative_error']:.1e}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines
