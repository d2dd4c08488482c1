"""Small figures as SVG texts, for the pages of `warploom lab`: cells, bars over time, curves."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

COLOURS = (
    "#7aa6d8", "#f2b56b", "#8cc9a1", "#d79ac0", "#b7a6e0", "#e58b88", "#a3c465", "#6fc0c7", "#d6c069", "#9fb2c8",
    "#c99f7d", "#8f9bd4", "#e3a4b8", "#7fb88a", "#c2b1a2", "#a9d0e8",
)  # fmt: skip
INK, SOFT = "#334155", "#94a3b8"


def picture(width: float, height: float, parts: Sequence[str], title: str) -> str:
    """The SVG text. title: for screen readers."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" aria-label="{html.escape(title)}" '
        f'style="max-width:100%;height:auto;font:11px system-ui,sans-serif">{"".join(parts)}</svg>'
    )


def rectangle(x: float, y: float, width: float, height: float, colour: str, said: str = "") -> str:
    """A filled rectangle; `said` is its tooltip."""
    title = f"<title>{html.escape(said)}</title>" if said else ""
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.5):.2f}" height="{height:.2f}" fill="{colour}" '
        f'stroke="#fff" stroke-width=".5">{title}</rect>'
    )


def label(x: float, y: float, text: object, anchor: str = "middle", colour: str = INK, size: float = 11) -> str:
    """A line of text, vertically centred at y."""
    return (
        f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}" dominant-baseline="central" fill="{colour}" '
        f'font-size="{size:g}">{html.escape(str(text))}</text>'
    )


def cells(
    groups: Sequence[Sequence[int]], texts: Sequence[Sequence[object]], title: str, *, side: float = 26,
    said: Sequence[Sequence[str]] | None = None, rows: Sequence[object] = (), columns: Sequence[object] = (),
) -> str:  # fmt: skip
    """A grid: cells coloured by group (below 0: none), with a text and a tooltip each.

    rows, columns: their names; numbers from 0 by default.
    """
    across = columns or range(len(groups[0]) if groups else 0)
    parts = []
    for row, (of_row, words) in enumerate(zip(groups, texts, strict=True)):
        parts.append(label(22, row * side + side / 2 + 16, rows[row] if rows else row, "end", SOFT, 9))
        for column, (group, word) in enumerate(zip(of_row, words, strict=True)):
            x, y = 28 + column * side, 16 + row * side
            colour = COLOURS[group % len(COLOURS)] if group >= 0 else "#e2e8f0"
            parts.append(rectangle(x, y, side, side, colour, said[row][column] if said else ""))
            parts.append(label(x + side / 2, y + side / 2, word, size=min(11, side * 0.42)))
    parts += [label(28 + at * side + side / 2, 8, name, colour=SOFT, size=9) for at, name in enumerate(across)]
    return picture(34 + len(across) * side, 20 + len(groups) * side, parts, title)


def key(names: Sequence[str], first: int = 0) -> str:
    """A legend of the colours, starting with group `first`; a group below 0 has no colour."""
    parts, x = [], 4.0
    for number, name in enumerate(names, first):
        parts.append(rectangle(x, 4, 12, 12, COLOURS[number % len(COLOURS)] if number >= 0 else "#e2e8f0"))
        parts.append(label(x + 17, 10.5, name, "start"))
        x += 34 + 6.5 * len(name)
    return picture(x, 20, parts, "key: " + ", ".join(names))


def bars(
    rows: Mapping[str, Sequence[tuple[float, float, int, str]]], end: float, title: str, *, unit: str = "",
    width: float = 760, height: float = 18,
) -> str:  # fmt: skip
    """Bars over time, a row for each name: (start, end, group, tooltip)."""
    left, right = 120.0, 40.0  # half of the last number stands right of its place
    scale = (width - left - right) / max(end, 1e-9)
    parts = []
    for number, (name, found) in enumerate(rows.items()):
        y = 4 + number * (height + 3)
        parts.append(label(left - 8, y + height / 2, name, "end"))
        for start, stop, group, said in found:
            colour = COLOURS[group % len(COLOURS)] if group >= 0 else "#e2e8f0"
            parts.append(rectangle(left + start * scale, y, (stop - start) * scale, height, colour, said))
    bottom = 4 + len(rows) * (height + 3) + 8
    parts += [
        label(
            left + share * end * scale,
            bottom,
            f"{share * end:,.0f} {unit}" if end >= 100 else f"{share * end:.3g} {unit}",
            colour=SOFT,
            size=9,
        )
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    return picture(width, bottom + 10, parts, title)


def curves(
    lines: Mapping[str, Sequence[tuple[float, float]]], points: Mapping[str, tuple[float, float]], title: str, *,
    x_name: str, y_name: str, width: float = 640, height: float = 340,
) -> str:  # fmt: skip
    """Curves and named points on logarithmic axes."""
    everything = [point for line in lines.values() for point in line] + list(points.values())
    axes = [[point[axis] for point in everything] for axis in (0, 1)]
    lows, highs = ([math.log10(pick(axis)) for axis in axes] for pick in (min, max))
    left, bottom, top, right = 64.0, height - 40, 14.0, width - 130

    def place(x: float, y: float) -> tuple[float, float]:
        shares = [
            (math.log10(value) - low) / max(high - low, 1e-9)
            for value, low, high in zip((x, y), lows, highs, strict=True)
        ]
        return left + shares[0] * (right - left), bottom - shares[1] * (bottom - top)

    parts, taken = [], list[float]()
    for axis in (0, 1):
        for power in range(math.ceil(lows[axis]), math.floor(highs[axis]) + 1):
            at = place(10.0**power, 10.0 ** lows[1]) if axis == 0 else place(10.0 ** lows[0], 10.0**power)
            line = f"M{at[0]:.1f} {bottom}V{top}" if axis == 0 else f"M{left} {at[1]:.1f}H{right}"
            parts.append(f'<path d="{line}" stroke="#e2e8f0"/>')
            where = (at[0], bottom + 12) if axis == 0 else (left - 6, at[1])
            parts.append(label(*where, f"{10.0**power:g}", "middle" if axis == 0 else "end", SOFT, 10))
    for number, (name, curve) in enumerate(lines.items()):
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in (place(*point) for point in curve))
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        height_of = place(*curve[-1])[1]
        while any(abs(height_of - other) < 12 for other in taken):
            height_of += 12
        taken.append(height_of)
        parts.append(label(right + 8, height_of, name, "start", colour, 11))
    for name, point in points.items():
        x, y = place(*point)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#d6336c"/>')
        parts.append(label(x - 7, y - 9, name, "end", "#d6336c", 11))
    parts.append(label((left + right) / 2, height - 10, x_name, colour=INK))
    parts.append(
        f'<text transform="rotate(-90 12 {(bottom + top) / 2})" x="12" y="{(bottom + top) / 2}" text-anchor="middle" '
        f'fill="{INK}">{html.escape(y_name)}</text>'
    )
    return picture(width, height, parts, title)
