"""Data parallel, split-K and stream-K side by side."""

import marimo

app = marimo.App(width="medium", app_title="Schedules")


@app.cell
def _():
    import marimo as mo

    from warploom.lab import schedules, svg

    mo.md(
        "# Data parallel, split-K, stream-K\nA bar is k-tiles of one output tile, with a colour for each tile. Loads, "
        "epilogues and reductions take no time here; stream-K and split-K also pay for partial sums."
    )
    return mo, schedules, svg


@app.cell
def _(mo):
    tiles = mo.ui.slider(1, 64, value=10, label="output tiles", show_value=True)
    k_tiles = mo.ui.slider(1, 128, value=32, label="k-tiles of each", show_value=True)
    ctas = mo.ui.slider(1, 24, value=8, label="CTAs at a time", show_value=True)
    parts = mo.ui.slider(1, 8, value=4, label="splits of split-K", show_value=True)
    mo.hstack([tiles, k_tiles, ctas, parts], justify="start", wrap=True)
    return ctas, k_tiles, parts, tiles


@app.cell
def _(ctas, k_tiles, mo, parts, schedules, svg, tiles):
    size = tiles.value, k_tiles.value, ctas.value
    found = [schedules.data_parallel(*size), schedules.split_k(*size, parts.value), schedules.stream_k(*size)]
    end = max(one.time for one in found)
    pictures = [
        part
        for one in found
        for part in (
            mo.md(f"**{one.name}**: {one.time} k-tiles long, CTAs busy {one.busy:.0%}, {one.partial} partial results"),
            mo.Html(
                svg.bars(
                    {
                        f"CTA {at}": [
                            (
                                piece.start,
                                piece.end,
                                piece.tile,
                                f"tile {piece.tile}, k-tiles {piece.first} to {piece.last - 1}",
                            )
                            for piece in pieces
                        ]
                        for at, pieces in enumerate(one.ctas)
                    },
                    end,
                    one.name,
                    height=11,
                )
            ),
        )
    ]
    mo.vstack(pictures)
    return (found,)


if __name__ == "__main__":
    app.run()
