"""The states of each stage of a ring over time, in a launch timed by the emulator's clock."""

import marimo

app = marimo.App(width="medium", app_title="Pipeline states")


@app.cell
def _():
    import marimo as mo
    import numpy as np

    from warploom.kernels import ladder
    from warploom.lab import stages, svg

    mo.md("# The states of a pipeline's stages\nempty → acquired → filled → read, over the time of one CTA of a rung.")
    return ladder, mo, np, stages, svg


@app.cell
def _(ladder, mo):
    rungs = [rung.name for rung in ladder.RUNGS if 9 <= rung.number <= 21]
    rung = mo.ui.dropdown(rungs, value="warp_specialised", label="rung of the ladder")
    depth = mo.ui.dropdown(["512", "1024", "2048"], value="1024", label="K")
    mo.hstack([rung, depth], justify="start")
    return depth, rung


@app.cell
def _(depth, ladder, mo, np, rung, stages, svg):
    chosen = ladder.find(rung.value)
    operand = np.zeros((512, int(depth.value)), chosen.dtype.numpy)
    timeline = chosen.build().predict(operand, operand, timeline=True).timeline
    spans = stages.spans(timeline)
    rows = {
        f"stage {stage}": [
            (one.start, one.end, stages.STATES.index(one.state) - 1, f"{one.state}, {one.end - one.start:.0f} clocks")
            for one in spans
            if one.stage == stage
        ]
        for stage in sorted({one.stage for one in spans})
    }
    mo.vstack(
        [
            mo.Html(svg.bars(rows, timeline.end, "states of stages", unit="clocks", height=24)),
            mo.Html(svg.key(stages.STATES, first=-1)),
            mo.ui.table(
                [dict(zip(("step", "CUTLASS", "warploom", "made by"), one, strict=True)) for one in stages.NAMES],
                selection=None,
            ),
        ]
    )
    return (spans,)


if __name__ == "__main__":
    app.run()
