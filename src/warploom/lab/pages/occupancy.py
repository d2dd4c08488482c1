"""How many CTAs fit on an SM, and which resource runs out first."""

import marimo

app = marimo.App(width="medium", app_title="Occupancy")


@app.cell
def _():
    import marimo as mo

    from warploom.lab import roofline, svg
    from warploom.plural import counted

    mo.md("# Occupancy\nHow many CTAs fit on an SM, and which resource runs out first?")
    return counted, mo, roofline, svg


@app.cell
def _(mo, roofline):
    machine = mo.ui.dropdown(list(roofline.SMS), value="H200", label="GPU")
    threads = mo.ui.slider(32, 1024, value=384, step=32, label="threads per CTA", show_value=True)
    registers = mo.ui.slider(16, 255, value=168, label="registers per thread", show_value=True)
    shared = mo.ui.slider(0, 227, value=96, label="shared memory per CTA, KiB", show_value=True)
    mo.vstack([machine, threads, registers, shared])
    return machine, registers, shared, threads


@app.cell
def _(counted, machine, mo, registers, roofline, shared, svg, threads):
    arch = roofline.ARCH[machine.value]
    found = roofline.occupancy(arch, threads.value, registers.value, shared.value << 10)
    each = {"registers": found.registers, "shared memory": found.shared, "warps": found.warps, "CTA slots": found.ctas}
    most = max(each.values())
    rows = {name: [(0.0, float(count), at, f"{count} CTAs")] for at, (name, count) in enumerate(each.items())}
    sweep = [roofline.occupancy(arch, threads.value, count, shared.value << 10).resident for count in range(16, 256)]
    edges = [16 + at for at in range(1, len(sweep)) if sweep[at] != sweep[at - 1]]
    fits = counted(found.resident, "CTA")
    short = f"{found.limit} run{'s' * (not found.limit.endswith('s'))} out first"
    mo.vstack(
        [
            mo.md(
                f"**{fits}**, {found.resident * -(-threads.value // 32)} warps; {short}. "
                + (f"Fewer CTAs fit from {' and again from '.join(map(str, edges))} registers on." if edges else "")
            ),
            mo.Html(svg.bars(rows, float(most), "CTAs that fit by each resource", unit="CTAs")),
        ]
    )
    return (found,)


if __name__ == "__main__":
    app.run()
