"""The thread that holds each element of a matrix: the owner maps of every shape."""

import marimo

app = marimo.App(width="medium", app_title="Fragment owners")


@app.cell
def _():
    import marimo as mo

    from warploom.isa import fragments
    from warploom.lab import svg

    mo.md(
        "# Who holds which element?\nA number is the thread; a colour its group of four lanes. B is drawn as n x k. "
        "Metadata of sparse products: the thread that holds the bits of each group of elements along k."
    )
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
        "mma.sync m8n8k4 B, row": (fragments.volta_b, ("row",)),
        "mma.sync m8n8k4 B, col": (fragments.volta_b, ("col",)),
        "mma.sync m8n8k4 C, f32": (fragments.volta_c, (32,)),
        "mma.sync m8n8k4 C, f16": (fragments.volta_c, (16,)),
        "ldmatrix, stmatrix": (fragments.matrix_b16, (False,)),
        "ldmatrix.trans": (fragments.matrix_b16, (True,)),
        "ldmatrix m8n16, 8 bits": (fragments.matrix_b8, ()),
        "ldmatrix.trans m16n16, 8 bits": (fragments.matrix_b8_transposed, ()),
        "stmatrix.trans m16n8, 8 bits": (fragments.matrix_b8_stored, ()),
        **{f"warpgroup A in registers, {bits} bits": (fragments.warpgroup_a, (bits,)) for bits in (8, 16, 32)},
        **{
            f"warpgroup D, 64 x {n}, {bits} bits": (fragments.warpgroup_d, (n, bits))
            for bits in (32, 16)
            for n in range(8, 257, 8)
        },
        **{
            f"mma.sp m16n8k{k} metadata, {bits} bits": (fragments.mma_metadata, (k, bits, 0))
            for k, bits in ((8, 32), (16, 32), (16, 16), (32, 16), (32, 8), (64, 8), (64, 4), (128, 4))
        },
        **{
            f"warpgroup, sparse: metadata, {bits} bits": (fragments.warpgroup_metadata, (bits, 0))
            for bits in (8, 16, 32)
        },
    }
    which = mo.ui.dropdown(list(maps), value="mma.sync m16n8k16 A, 16 bits", label="operand")
    which
    return maps, which


@app.cell
def _(maps, mo, svg, which):
    function, arguments = maps[which.value]
    fragment = function(*arguments)
    if isinstance(fragment, tuple):  # metadata: threads and shifts
        threads, shifts = fragment
        places = [[f"bits {shift} to {shift + 3}" for shift in of_row] for of_row in shifts.tolist()]
        words = f"4 bits for each of {threads.shape[1]} groups along k in {threads.shape[0]} rows"
    else:
        threads = fragment.owner // fragment.per_register % fragment.threads
        registers = fragment.owner // fragment.per_register // fragment.threads
        places = [[f"register {register}" for register in of_row] for of_row in registers.tolist()]
        words = (
            f"{fragment.shape[0]} x {fragment.shape[1]} of {fragment.bits} bits, {fragment.threads} threads with "
            f"{fragment.registers} registers each"
        )
    said = [
        [f"row {row}, column {column}: thread {thread}, {places[row][column]}" for column, thread in enumerate(of_row)]
        for row, of_row in enumerate(threads.tolist())
    ]
    mo.vstack(
        [
            mo.md(words),
            mo.Html(svg.cells((threads // 4).tolist(), threads.tolist(), which.value, side=24, said=said)),
        ]
    )
    return (fragment,)


if __name__ == "__main__":
    app.run()
