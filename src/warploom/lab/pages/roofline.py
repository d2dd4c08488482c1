"""Roofline and speed of light by type, generation and power."""

import marimo

app = marimo.App(width="medium", app_title="Roofline and speed of light")


@app.cell
def _():
    import marimo as mo

    from warploom.lab import power_limit, roofline, svg

    mo.md("# Roofline and speed of light\nHow fast can D = A B be at all, and what decides it?")
    return power_limit, mo, roofline, svg


@app.cell
def _(mo, roofline):
    machine = mo.ui.dropdown(list(roofline.SMS), value="H200", label="GPU")
    m, n, k = (mo.ui.number(1, 1 << 20, value=4096, label=name) for name in "MNK")
    cap = mo.ui.slider(200, 1000, value=700, step=50, label="power cap, W (H200)", show_value=True)
    zeros = mo.ui.checkbox(label="operands are zeros")
    return cap, k, m, machine, n, zeros


@app.cell
def _(machine, mo, roofline):
    dtype = mo.ui.dropdown(list(roofline.FLOP_PER_CLOCK[roofline.ARCH[machine.value]]), value="bf16", label="type")
    return (dtype,)


@app.cell
def _(cap, dtype, k, m, machine, mo, n, zeros):
    mo.vstack([mo.hstack([machine, dtype, m, n, k], justify="start"), mo.hstack([cap, zeros], justify="start")])
    return


@app.cell
def _(power_limit, cap, dtype, k, m, machine, mo, n, roofline, svg, zeros):
    size = {"f32": 4, "tf32": 4, "bf16": 2, "f16": 2}.get(dtype.value, 1)
    roofs = {
        name: roofline.Roofline.of(name, dtype.value)
        for name in roofline.SMS
        if dtype.value in roofline.FLOP_PER_CLOCK[roofline.ARCH[name]]
    }
    found = roofs[machine.value]
    intensity = roofline.intensity(m.value, n.value, k.value, size)
    attainable = found.attainable(intensity)
    limit = (
        power_limit.limit(m.value, n.value, k.value, dtype.value, size, cap.value, zeros.value)
        if machine.value == "H200" and dtype.value != "f32"
        else None
    )
    steps = sorted([*(2.0**power for power in range(-1, 14)), *(roof.ridge for roof in roofs.values())])
    unit = "FMA units" if dtype.value == "f32" else "tensor cores"
    lines = {name: [(x, roof.attainable(x) / 1e12) for x in steps] for name, roof in roofs.items()}
    words = (
        f"**{attainable / 1e12:.0f} TFLOP/s** at {intensity:.1f} FLOP per byte; the ridge point is at "
        f"{found.ridge:.0f}: limited by {f'the {unit}' if intensity >= found.ridge else 'HBM'}, at the "
        "highest clock."
    )
    if limit is not None:
        words += (
            f"\n\nUnder {cap.value} W: **{limit.tflops:.0f} TFLOP/s** at {limit.clock_mhz:.0f} MHz and "
            f"{limit.watts:.0f} W, by {limit.bound}. Energies are those of the model (docs/predicting.md)."
        )
    mo.vstack(
        [
            mo.md(words),
            mo.Html(
                svg.curves(
                    lines,
                    {"this product": (intensity, attainable / 1e12)},
                    "rooflines",
                    x_name="FLOP for each byte of HBM",
                    y_name="TFLOP/s",
                )
            ),
        ]
    )
    return attainable, intensity, limit


if __name__ == "__main__":
    app.run()
