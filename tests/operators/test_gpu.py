"""matmul on a GPU: larger problems against float64, every kind of configuration, graphs, and the bits of two runs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import warploom  # noqa: E402
from warploom.isa.dtypes import bf16  # noqa: E402
from warploom.kernels.hopper.description import Fusion  # noqa: E402
from warploom.operators import Problem  # noqa: E402
from warploom.operators.families import candidates  # noqa: E402
from warploom.operators.spec.gpu import gpu_of  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::warploom.errors.CopyWarning")]
F = torch.nn.functional
INSTRUCTION_K = {torch.bfloat16: 16, torch.float16: 16, torch.float32: 8, torch.float8_e4m3fn: 32}


def normal(*shape, dtype=torch.bfloat16, seed=0):
    draw = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return torch.randn(shape, device="cuda", generator=draw).to(dtype)


def assert_close(result, a, b):
    """One unit of the result's type + 2 (K / k_instr) 2^-23 (|A| |B|); 2^-13 instead of 2^-23 for fast fp8 sums."""
    kept = 2.0**-13 if a.element_size() == 1 else 2.0**-23
    if a.dtype is torch.float32:
        a, b = ((x.view(torch.int32) & -8192).view(torch.float32) for x in (a.contiguous(), b.contiguous()))
    exact, magnitude = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    steps = max(a.shape[-1] / INSTRUCTION_K[a.dtype], 1)
    unit = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}[result.dtype]
    allowed = 2 * steps * kept * magnitude
    allowed = allowed + 2 * unit * (exact.abs() + allowed) + 2.0**-24
    worst = ((result.double() - exact).abs() / allowed).max().item()
    assert worst <= 1, f"worst: {worst:.2f} of what is allowed"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn])
@pytest.mark.parametrize("layout", ["tn", "tt", "nn", "nt"])
@pytest.mark.parametrize("m, n, k", [(1, 8192, 8192), (64, 4096, 1000), (1000, 2112, 776), (4096, 2112, 7168)])
def test_large_products_are_within_the_arithmetic_s_bound(dtype, layout, m, n, k):
    a = normal(m, k, dtype=dtype) if layout[0] == "t" else normal(k, m, dtype=dtype).mT
    b = normal(n, k, dtype=dtype).mT if layout[1] == "n" else normal(k, n, dtype=dtype)
    result = warploom.matmul(a, b)
    assert_close(result, a, b)
    assert torch.equal(result, warploom.matmul(a, b)), "two runs give the same bits"


@pytest.mark.parametrize("shape", [(2048, 2112, 1024), (130, 8192, 512), (16, 4096, 4096)])
def test_every_configuration_computes_it(shape):
    m, n, k = shape
    a, b = normal(m, k), normal(n, k).mT
    for config in candidates(Problem.of(m, n, k), gpu_of(0), every=True)[::3]:
        assert_close(warploom.matmul(a, b, config=config), a, b)


@pytest.mark.parametrize("end", ["gelu", "silu, gate", "gate, residual"])
def test_every_configuration_with_an_end_is_built_and_computes_it(end):
    """None spills, none takes more shared memory than there is: what candidates promise, on the sizes of a model."""
    m, n, k = 1024, 4096 + 32, 512
    x, w, bias = normal(m, k), normal(n, k) / 16, normal(n)
    given = {"gate": normal(m, n, seed=1)} if "gate" in end else {}
    given |= {"residual": normal(m, n, seed=2)} if "residual" in end else {}
    activation = "gelu" if end == "gelu" else "silu"
    exact = F.linear(x.double(), w.double(), bias.double())
    exact = F.gelu(exact) if end == "gelu" else F.silu(exact) * given["gate"].double()
    exact = exact + given["residual"].double() if "residual" in given else exact
    fusion = Fusion(
        bias="column", bias_dtype=bf16, activation=activation, gate="gate" in given, addend="residual" in given
    )  # fmt: skip
    found = candidates(Problem.of(m, n, k, fusion=fusion), gpu_of(0), every=True)
    assert len(found) > 20
    for config in found[::5]:
        result = warploom.linear(x, w, bias, activation=activation, config=config, **given)
        assert ((result.double() - exact).abs() <= 2.0**-7 * (1 + exact.abs())).all(), config.name()


@pytest.mark.parametrize("m", [16, 1024])
def test_a_fused_end_is_what_torch_does_in_f32(m):
    x, w, bias, gate, c = normal(m, 1024), normal(2048, 1024), normal(2048), normal(m, 2048), normal(m, 2048, seed=1)
    w = w / 32
    found = warploom.linear(x, w, bias, activation="silu", gate=gate, residual=c)
    exact = F.silu(F.linear(x.double(), w.double(), bias.double())) * gate.double() + c.double()
    assert ((found.double() - exact).abs() <= 2.0**-7 * (1 + exact.abs())).all()


def test_a_graph_replays_what_was_captured_on_new_values():
    x, w, out = normal(16, 4096), normal(4096, 4096), torch.empty(16, 4096, device="cuda", dtype=torch.bfloat16)
    warploom.linear(x, w, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        warploom.linear(x, w, out=out)
        made = warploom.linear(out, w)
    x.copy_(normal(16, 4096, seed=7))
    graph.replay()
    torch.cuda.synchronize()
    assert_close(out, x, w.mT)
    assert_close(made, out, w.mT)


def test_memory_that_moves_between_calls_is_followed():
    w = normal(2048, 1024)
    kept = []
    for seed in range(20):
        x = normal(256, 1024, seed=seed)
        kept.append(torch.empty(1 << (10 + seed % 7), device="cuda"))
        assert_close(warploom.linear(x, w), x, w.mT)


def test_streams_do_not_share_the_workspace_of_a_split_product():
    w = normal(256, 8192)
    streams = [torch.cuda.Stream() for _ in range(4)]
    given = [normal(8, 8192, seed=seed) for seed in range(4)]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for x, stream in zip(given, streams, strict=True):
            with torch.cuda.stream(stream):
                results.append((x, warploom.linear(x, w)))
    torch.cuda.synchronize()
    for x, result in results:
        assert_close(result, x, w.mT)


def test_compiled_by_inductor_it_is_one_graph_with_the_same_result():
    x, w, bias = normal(256, 1024), normal(512, 1024), normal(512)
    model = torch.compile(lambda x: warploom.linear(x * 2, w, bias, activation="relu") + 1, fullgraph=True)
    exact = F.relu(F.linear(2 * x.float(), w.float(), bias.float())) + 1
    assert ((model(x).float() - exact).abs() <= 2.0**-6 * (1 + exact.abs())).all()


def test_gradients_on_the_gpu():
    x, w = normal(512, 1024).requires_grad_(), normal(256, 1024).requires_grad_()
    warploom.linear(x, w).backward(normal(512, 256))
    grad = normal(512, 256)
    assert_close(x.grad, grad, w.detach())
    assert_close(w.grad, grad.mT, x.detach())


@pytest.mark.parametrize("kind", ["tensor", "row"])
@pytest.mark.parametrize("m", [16, 1024])
def test_scaled_products_are_torch_s(kind, m):
    x, w = normal(m, 4096, dtype=torch.float32), normal(2048, 4096, dtype=torch.float32)
    (qx, sx), (qw, sw) = warploom.quantize(x, kind), warploom.quantize(w, kind)
    ours = warploom.matmul(qx, qw.T, scale_a=sx.reshape(-1, 1), scale_b=sw.reshape(1, -1))
    scales = (sx, sw) if kind == "tensor" else (sx.reshape(-1, 1), sw.reshape(1, -1))
    theirs = torch._scaled_mm(qx, qw.T, *scales, out_dtype=torch.bfloat16, use_fast_accum=True)
    assert (ours.float() - theirs.float()).abs().max() <= 2.0**-7 * theirs.float().abs().max()


def test_grouped_products_on_the_gpu():
    sizes = [0, 300, 17, 512, 1]
    a, w = normal(sum(sizes), 1024), normal(len(sizes), 768, 1024)
    ends = torch.tensor(sizes).cumsum(0).to(torch.int32).cuda()
    result = warploom.grouped_matmul(a, w.mT, offsets=ends)
    begin = 0
    for g, size in enumerate(sizes):
        if size:
            assert_close(result[begin : begin + size], a[begin : begin + size], w[g].mT)
        begin += size


@pytest.mark.parametrize("sizes", [[512] * 4, [64] * 8, [0, 300, 17, 200, 1]])
def test_scaled_groups_on_the_gpu(sizes):
    n, k = 768, 1024
    x, w = normal(sum(sizes), k, dtype=torch.float32), normal(len(sizes), n, k, dtype=torch.float32)
    (qx, sx), (qw, sw) = warploom.quantize(x, "row"), warploom.quantize(w, "row")
    ends = torch.tensor(sizes).cumsum(0).to(torch.int32).cuda()
    out = torch.full((sum(sizes), n), float("nan"), device="cuda", dtype=torch.bfloat16)
    begin = 0
    for _ in range(2):  # the second call takes the short way
        warploom.grouped_matmul(qx, qw.mT, offsets=ends, out=out, scale_a=sx, scale_b=sw.mT)
    for g, size in enumerate(sizes):
        rows = slice(begin, begin + size)
        exact = (qx[rows].double() * sx[rows].double()) @ (qw[g].double() * sw[g].double()).mT
        error = (out[rows].double() - exact).norm() / exact.norm() if size else 0
        assert error <= 2.0**-9 + k / 32 * 2.0**-13
        begin += size
