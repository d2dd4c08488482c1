"""The sweep of communicating products, without GPUs: its variants are other kernels, and its means are of what ran."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks import tensor_parallel_sweep as sweep  # noqa: E402

KIND = "all-gather"


@pytest.mark.full
@pytest.mark.parametrize("world", [2, 4])
def test_every_variant_of_the_kernel_can_be_built_and_is_another_one(world: int):
    """Copies by copy engines differ by their plan alone."""
    texts = {}
    for name, variant in sweep.VARIANTS[KIND].items():
        config = sweep.config_of(KIND, variant, 2048, 8192, world, sweep.SMS)
        with sweep.changed(variant):
            texts[name] = sweep.BUILDS[KIND](world, config=config, by=variant.by, **variant.build).ptx()
    pushed = [text for name, text in texts.items() if sweep.VARIANTS[KIND][name].by != "copy"]
    assert len(set(pushed)) == len(pushed) and len(set(texts.values())) == len(pushed) + 1


def test_means_are_over_the_products_in_which_nothing_failed():
    def row(push: float, tma: float, *failed: str) -> dict:
        return {"failed": dict.fromkeys(failed, "?"), "forms": {"push": {"ratio": push}, "tma": {"ratio": tma}}}

    assert sweep.means([row(1, 2), row(4, 8), row(100, 1, "copy")]) == {"push": 2, "tma": 4}
    assert sweep.means([]) == {}
