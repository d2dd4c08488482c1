"""Coalescing and bank conflicts of a typed access pattern."""

import marimo

app = marimo.App(width="medium", app_title="Coalescing and bank conflicts")


@app.cell
def _():
    import marimo as mo

    from warploom.errors import ArgumentError
    from warploom.lab import patterns, svg

    mo.md(
        "# Coalescing and bank conflicts\nThe byte address of each lane of a warp, and what the access costs. Try "
        "`lane * 4`, `lane * 128`, `lane * 132`, `(lane // 8 * 8 + (lane ^ lane // 8) % 8) * 16`."
    )
    return ArgumentError, mo, patterns, svg


@app.cell
def _(mo, patterns):
    expression = mo.ui.text(value="lane * 132", label="address of `lane`, bytes", full_width=True)
    size = mo.ui.dropdown([str(one) for one in patterns.SIZES], value="4", label="bytes per lane")
    mo.hstack([expression, size], widths=[4, 1])
    return expression, size


@app.cell
def _(ArgumentError, expression, mo, patterns, size, svg):
    try:
        found = patterns.access(patterns.addresses(expression.value), int(size.value))
        rows = [[-1] * 32 for _ in range(4)]
        texts = [[""] * 32 for _ in range(4)]
        for lane, bank in enumerate(found.banks.tolist()):
            depth = next((row for row in range(4) if rows[row][bank] < 0), None)
            if depth is None:
                texts[3][bank] = "+"
            else:
                rows[depth][bank], texts[depth][bank] = lane // 4, lane
        shown = mo.vstack(
            [
                mo.md(
                    f"**Shared memory**: {found.conflicts} extra passes. **Global memory**: {found.sectors} sectors of "
                    f"32 bytes, of which {found.useful:.0%} were requested."
                ),
                mo.md("The lanes that access each bank (columns); lanes that read the same word do not conflict."),
                mo.Html(svg.cells(rows, texts, "lanes by bank", side=22)),
            ]
        )
    except ArgumentError as error:
        found, shown = None, mo.callout(mo.md(f"```\n{error}\n```"), kind="warn")
    shown
    return (found,)


if __name__ == "__main__":
    app.run()
