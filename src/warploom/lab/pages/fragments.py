"""The thread that holds each element of a matrix: the owner maps of every shape."""

import marimo

app = marimo.App(width="medium", app_title="Fragment owners")


@app.cell
def _():
    import marimo as mo

    from warploom.isa import fragments
    from warploom.lab import svg

    mo.md("# Who holds which element?\nA number is the thread; a colour its group of four lanes. B is drawn as n x k.")
    return fragments, mo, svg


@app.cell
def _(fragments, mo):
    maps = {
        **{
            f"mma.sync m{m}n8k{k} A, {bits} bits": (fragments.mma_a, (m, k, bits))
            for m, k, bits in (
                (16, 8, 16),
                (16, 16, 16),
                (16, 4, 32),
                (16, 8, 32),
                (16, 16, 8),
                (16, 32, 8),
                (8, 4, 64),
                (16, 4, 64),
                (16, 8, 64),
                (16, 16, 64),
                (8, 16, 8),
                (8, 32, 4),
                (16, 32, 4),
                (16, 64, 4),
            )
        },
        **{
            f"mma.sync n8k{k} B, {bits} bits": (fragments.mma_b, (k, bits))
            for k, bits in ((8, 16), (16, 16), (4, 32), (8, 32), (16, 8), (32, 8), (4, 64), (32, 4), (64, 4))
        },
        **{
            f"mma.sync m{m}n8 C and D, {bits} bits": (fragments.mma_c, (m, bits))
            for m, bits in ((16, 32), (16, 16), (8, 32), (8, 64), (16, 64))
        },
        "mma.sync m8n8k4 A, row": (fragments.volta_a, ("row",)),
        "mma.sync m8n8k4 A, col": (fragments.volta_a, ("col",)),
        "mma.sync m8n8k4 C, f32": (fragments.volta_c, (32,)),
        "mma.sync m8n8k4 C, f16": (fragments.volta_c, (16,)),
        "ldmatrix, stmatrix": (fragments.matrix_b16, (False,)),
        "ldmatrix.trans": (fragments.matrix_b16, (True,)),
        **{f"warpgroup A in registers, {bits} bits": (fragments.warpgroup_a, (bits,)) for bits in (8, 16, 32)},
        **{f"warpgroup D, 64 x {n}": (fragments.warpgroup_d, (n,)) for n in range(8, 65, 8)},
    }
    which = mo.ui.dropdown(list(maps), value="mma.sync m16n8k16 A, 16 bits", label="operand")
    which
    return maps, which


@app.cell
def _(maps, mo, svg, which):
    function, arguments = maps[which.value]
    fragment = function(*arguments)
    threads = fragment.owner // fragment.per_register % fragment.threads
    registers = fragment.owner // fragment.per_register // fragment.threads
    said = [
        [
            f"row {row}, column {column}: thread {thread}, register {registers[row][column]}"
            for column, thread in enumerate(of_row)
        ]
        for row, of_row in enumerate(threads.tolist())
    ]
    mo.vstack(
        [
            mo.md(
                f"{fragment.shape[0]} x {fragment.shape[1]} of {fragment.bits} bits, {fragment.threads} threads with "
                f"{fragment.registers} registers each"
            ),
            mo.Html(svg.cells((threads // 4).tolist(), threads.tolist(), which.value, side=24, said=said)),
        ]
    )
    return (fragment,)


if __name__ == "__main__":
    app.run()
