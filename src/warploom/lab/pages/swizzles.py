"""Swizzles and matrix descriptors: address to element and back, in every mode, for sm_90 and sm_100."""

import marimo

app = marimo.App(width="medium", app_title="Swizzles and descriptors")


@app.cell
def _():
    import marimo as mo

    from warploom.errors import WarploomError
    from warploom.isa import descriptors, tcgen05_descriptor
    from warploom.isa.dtypes import bf16, e4m3, f32
    from warploom.isa.swizzle import Swizzle
    from warploom.lab import svg

    mo.md("# Swizzles and descriptors\nWhere is element (row, k) of an operand, and what do the 64 bits say?")
    return Swizzle, WarploomError, bf16, descriptors, e4m3, f32, mo, svg, tcgen05_descriptor


@app.cell
def _(Swizzle, mo):
    unit = mo.ui.dropdown(["sm_90, warpgroup", "sm_100, tcgen05"], value="sm_90, warpgroup", label="matrix unit")
    swizzle = mo.ui.dropdown(
        [one.value for one in Swizzle if one.tcgen05_code is not None], value="128B", label="swizzle"
    )
    major = mo.ui.dropdown(["K", "MN"], value="K", label="contiguous along")
    dtype = mo.ui.dropdown(["bf16", "e4m3", "f32"], value="bf16", label="type")
    start = mo.ui.number(0, 0x3FFF0, step=16, value=1024, label="start")
    leading = mo.ui.number(0, 0x3FFF0, step=16, value=1024, label="leading offset")
    stride = mo.ui.number(0, 0x3FFF0, step=16, value=1024, label="stride offset")
    mo.vstack(
        [
            mo.hstack([unit, swizzle, major, dtype], justify="start"),
            mo.hstack([start, leading, stride], justify="start"),
        ]
    )
    return dtype, leading, major, start, stride, swizzle, unit


@app.cell
def _(
    Swizzle,
    WarploomError,
    bf16,
    descriptors,
    dtype,
    e4m3,
    f32,
    leading,
    major,
    mo,
    start,
    stride,
    svg,
    swizzle,
    tcgen05_descriptor,
    unit,
):
    home = descriptors if unit.value.startswith("sm_90") else tcgen05_descriptor
    kind = {"bf16": bf16, "e4m3": e4m3, "f32": f32}[dtype.value]
    try:
        described = home.Descriptor(start.value, leading.value, stride.value, Swizzle(swizzle.value))
        bits = described.encode()
        where = home.operand_addresses(described, kind, 16, 32 // kind.bytes, major.value)
        fields = {
            "start / 16": (0, 13),
            "leading / 16": (16, 29),
            "stride / 16": (32, 45),
            **({"version": (46, 48)} if home is tcgen05_descriptor else {}),
            "base offset": (49, 51),
            "swizzle": (61, 63) if home is tcgen05_descriptor else (62, 63),
        }
        names = list(fields)
        owner = [
            next((at for at, name in enumerate(names) if fields[name][0] <= bit <= fields[name][1]), -1)
            for bit in range(64)
        ]
        halves = [range(63, 31, -1), range(31, -1, -1)]
        shown = mo.vstack(
            [
                mo.md(
                    f"`{bits:#018x}`: "
                    + ", ".join(
                        f"{name} = {bits >> low & (1 << high - low + 1) - 1}" for name, (low, high) in fields.items()
                    )
                ),
                mo.Html(svg.key(names)),
                *(
                    mo.Html(
                        svg.cells(
                            [[owner[bit] for bit in half]],
                            [[bits >> bit & 1 for bit in half]],
                            f"descriptor bits {half[0]} to {half[-1]}",
                            side=20,
                            rows=[""],
                            columns=half,
                        )
                    )
                    for half in halves
                ),
                mo.md("Address of each element (rows down, k across), relative to the start; a colour for four banks."),
                mo.Html(
                    svg.cells(
                        (where % 128 // 16).tolist(),
                        (where - start.value).tolist(),
                        "addresses of elements",
                        side=34,
                        said=[
                            [f"row {row}, k {at}: address {one}, bank {one // 4 % 32}" for at, one in enumerate(of_row)]
                            for row, of_row in enumerate(where.tolist())
                        ],
                    )
                ),
            ]
        )
    except WarploomError as error:
        bits, where, shown = None, None, mo.callout(mo.md(f"```\n{error}\n```"), kind="warn")
    shown
    return bits, where


@app.cell
def _(mo, start, swizzle, Swizzle):
    address = mo.ui.number(0, 0x3FFFF, value=start.value, label="an address before the swizzle")
    mode = Swizzle(swizzle.value)
    address
    return address, mode


@app.cell
def _(address, mo, mode):
    moved = mode.apply(address.value)
    flipped = [str(bit) for bit in range(18) if (moved ^ address.value) >> bit & 1]
    mo.md(
        f"{mode.value} moves byte {address.value} (`{address.value:#x}`) to **{moved}** (`{moved:#x}`) and back: "
        + (f"its bits {', '.join(flipped)} flip." if flipped else "all its bits stay the same.")
    )
    return (moved,)


if __name__ == "__main__":
    app.run()
