"""`rotary_embedding`: queries and keys of one product rotated in one kernel, whole heads or their first elements."""

import pytest

torch = pytest.importorskip("torch")

import warploom  # noqa: E402
from tests.errors import refused  # noqa: E402
from warploom.operators.rotary import rotary_embedding  # noqa: E402


def rotated(x, cos, sin):
    """In f64, with the definition's rotate_half."""
    turned = cos.shape[-1]
    x, cos, sin = x.double(), cos.double().unsqueeze(2), sin.double().unsqueeze(2)
    first, rest = x[..., :turned], x[..., turned:]
    half = torch.cat([-first[..., turned // 2 :], first[..., : turned // 2]], -1)
    return torch.cat([first * cos + half * sin, rest], -1)


@pytest.mark.parametrize("batch, rows, heads, key_heads, dim, turned, angles, kind", [
    (1, 1, 4, 2, 128, 128, 1, torch.bfloat16),
    (3, 5, 3, 1, 64, 64, 1, torch.float16),
    (3, 1, 4, 4, 80, 32, 3, torch.bfloat16),
    (2, 3, 70, 8, 128, 64, 2, torch.bfloat16),  # more pieces than threads
], ids=str)  # fmt: skip
def test_queries_and_keys_of_one_product_are_rotated_to_the_rounding_and_clean(
    batch, rows, heads, key_heads, dim, turned, angles, kind
):
    torch.manual_seed(0)
    packed = torch.randn(batch, rows, (heads + 2 * key_heads) * dim).to(kind)
    widths = heads * dim, key_heads * dim, key_heads * dim
    q, k, _ = (each.view(batch, rows, -1, dim) for each in packed.split(widths, -1))
    cos, sin = (torch.randn(angles, rows, turned).to(kind) for _ in range(2))
    with warploom.config.override(emulator={"check": True}):
        found = rotary_embedding(q, k, cos, sin)
    for given, new in zip((q, k), found, strict=True):
        expected = rotated(given, cos, sin)
        size = rotated(given.abs(), cos.abs(), -sin.abs()).abs().maximum(expected.abs()) + 1e-4
        assert new.is_contiguous() and ((new.double() - expected).abs() <= 0.51 * torch.finfo(kind).eps * size).all()
        assert torch.equal(new[..., turned:], given[..., turned:])


@pytest.mark.parametrize("change, code", [
    (lambda q, k, cos, sin: (q.float(), k, cos, sin), "argument-type"),
    (lambda q, k, cos, sin: (q, k[:, :1], cos, sin), "wrong-shape"),
    (lambda q, k, cos, sin: (q, k, cos, sin[..., :16]), "wrong-shape"),
    (lambda q, k, cos, sin: (q[..., :24], k[..., :24], cos, sin), "argument"),
    (lambda q, k, cos, sin: (q[:, :, ::2], k, cos, sin), "wrong-layout"),
])  # fmt: skip
def test_what_the_kernel_does_not_support_is_refused(change, code):
    given = [torch.ones(shape).half() for shape in ((2, 3, 4, 32), (2, 3, 2, 32), (1, 3, 32), (1, 3, 32))]
    with refused(code):
        rotary_embedding(*change(*given))
