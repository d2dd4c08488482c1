"""The walkthrough's Hopper GEMM, C = A @ B in bf16 with f32 accumulation; see `warploom.kernels.walkthrough`.

python examples/walkthrough_gemm.py
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from warploom.kernels.walkthrough import build_gemm_m64n64

SIZES = ((64, 64, 16, 16), (64, 128, 96, 16), (128, 64, 128, 64))
"""M, N, K, tile_k."""


def example() -> Iterator[tuple]:
    """One k-tile; K = 96 and M != N; four wgmmas per stage."""
    rng = np.random.default_rng(0)
    for m, n, k, tile_k in SIZES:
        a = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
        b = rng.standard_normal((k, n)).astype(ml_dtypes.bfloat16)

        def check(c, a=a, b=b):
            reference = a.astype(np.float64) @ b.astype(np.float64)
            assert np.linalg.norm(c - reference) / np.linalg.norm(reference) < 2e-6

        yield build_gemm_m64n64(m, n, k, tile_k=tile_k), (a, b), check


def main() -> None:
    for kernel_, (a, b), check in example():
        check(kernel_(a, b))
        print(f"{kernel_.name} {a.shape[0]} x {b.shape[1]} x {a.shape[1]}: relative error below 2e-6")
    print(kernel_.protocol())


if __name__ == "__main__":
    main()
