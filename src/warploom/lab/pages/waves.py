"""Tile and wave quantisation, and the HBM traffic of raster orders."""

import marimo

app = marimo.App(width="medium", app_title="Tiles, waves and raster orders")


@app.cell
def _():
    import marimo as mo

    from warploom.lab import roofline, svg

    mo.md(
        "# Tiles, waves and raster orders\nWhat do tiles beyond the edge and a half-empty last wave cost? "
        "Which order of tiles finds most of its operands in L2?"
    )
    return mo, roofline, svg


@app.cell
def _(mo, roofline):
    machine = mo.ui.dropdown(list(roofline.SMS), value="H200", label="GPU")
    m, n, k = (mo.ui.number(1, 1 << 17, value=4096, label=name) for name in "MNK")
    tile_m, tile_n = (
        mo.ui.dropdown(["64", "128", "192", "256"], value=one, label=name)
        for name, one in (("tile M", "128"), ("tile N", "256"))
    )
    resident = mo.ui.slider(1, 4, value=1, label="CTAs per SM", show_value=True)
    order = mo.ui.dropdown(list(roofline.ORDERS), value="grouped 8", label="order")
    mo.vstack(
        [mo.hstack([machine, m, n, k], justify="start"), mo.hstack([tile_m, tile_n, resident, order], justify="start")]
    )
    return k, m, machine, n, order, resident, tile_m, tile_n


@app.cell
def _(m, machine, mo, n, resident, roofline, svg, tile_m, tile_n):
    at_a_time = roofline.SMS[machine.value] * resident.value
    tiles = int(tile_m.value), int(tile_n.value)
    found = roofline.waves(m.value, n.value, *tiles, at_a_time)
    line = [
        (float(rows), max(1e-3, roofline.waves(rows, n.value, *tiles, at_a_time).efficiency))
        for rows in range(64, 16385, 64)
    ]
    mo.vstack(
        [
            mo.md(
                f"{found.rows} x {found.columns} tiles in {found.waves:.2f} waves of {at_a_time}: "
                f"**{found.efficiency:.1%}** of the peak at most ({found.tile_efficiency:.1%} from tiles beyond the "
                f"edge, {found.wave_efficiency:.1%} from the last wave)."
            ),
            mo.Html(
                svg.curves(
                    {"most of the peak": line},
                    {"M": (float(m.value), found.efficiency)},
                    "efficiency by M",
                    x_name="M",
                    y_name="share of the peak",
                )
            ),
        ]
    )
    return at_a_time, found, tiles


@app.cell
def _(at_a_time, found, k, m, machine, mo, n, order, roofline, svg, tiles):
    cache = roofline.L2_BYTES[machine.value] // 2
    traffic = {
        name: roofline.l2_traffic(m.value, n.value, k.value, *tiles, one, at_a_time, cache)
        for name, one in roofline.ORDERS.items()
    }
    asked = found.tiles * sum(tiles) * k.value * 2
    hits = {name: 1 - fetched / asked for name, fetched in traffic.items()}
    rows, columns = min(found.rows, 24), min(found.columns, 32)
    number = {place: at for at, place in enumerate(roofline.ORDERS[order.value](found.rows, found.columns))}
    shown = [[number[row, column] for column in range(columns)] for row in range(rows)]
    mo.vstack(
        [
            mo.md(
                "## Bytes from HBM by order\nA model: all tiles of a wave are at the same k, and half of L2 keeps "
                "the most recently used data."
            ),
            mo.ui.table(
                [
                    {"order": name, "GB": round(traffic[name] / 1e9, 3), "hits in L2": f"{hits[name]:.1%}"}
                    for name in traffic
                ],
                selection=None,
            ),
            mo.md(f"## {order.value}: a colour for each wave"),
            mo.Html(svg.cells([[one // at_a_time for one in row] for row in shown], shown, "tiles by wave", side=24)),
        ]
    )
    return hits, traffic


if __name__ == "__main__":
    app.run()
