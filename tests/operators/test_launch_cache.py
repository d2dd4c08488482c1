"""A repeated call of a known kind goes straight to the driver; one that only looks alike does not."""

from __future__ import annotations

import pytest

from warploom.errors import ArgumentError
from warploom.operators import Gpu, Problem, choose, explain
from warploom.runtime.launch_cache import guard

pytestmark = pytest.mark.usefixtures("needs_ptxas")


def launches(log: list[str]) -> list[str]:
    return [line for line in log if line.startswith("launch")]


def test_a_second_call_only_launches(on_gpu):
    log = on_gpu("""
a, b, out = bf16(256, 128), bf16(192, 128), bf16(256, 192)
for _ in range(3):
    assert warploom.matmul(a, b.T, out=out) is out
    with open(__import__("os").environ["FAKE_CUDA_LOG"], "a") as log: log.write("call\\n")
""")
    first, second, third = "\n".join(log).split("call")[:3]
    assert "load ELF" in first and "launch" in first
    assert [line.split(" ")[0] for line in second.strip().splitlines()] == ["launch"]
    assert second.strip() == third.strip()


def test_new_memory_of_the_same_kind_needs_no_checks_but_its_own_maps(on_gpu):
    log = on_gpu("""
from warploom.operators import calls
a, c, b, out, d = bf16(256, 128), bf16(256, 128), bf16(128, 192), bf16(256, 192), bf16(256, 192)
by = {"config": "hopper_large:tile_n=64,ctas=1"}  # one that stores by TMA
warploom.matmul(a, b, out=out, **by)
calls.compute = None                         # the long way would fail now
assert warploom.matmul(c, b, out=d, **by) is d
assert warploom.matmul(c, b, out=out, **by) is out
made = warploom.matmul(c, b, **by)
assert made.shape == (256, 192) and made.dtype == torch.bfloat16
""")
    lines = launches(log)
    assert len(lines) == 4
    maps = [at for at, line in enumerate(log) if line.startswith("map ")]
    second, third, fourth = [at for at, line in enumerate(log) if line.startswith("launch")][1:]
    assert sum(at < second for at in maps) == 5, "three maps, then those of what moved: `a` and the output"
    assert not any(second < at < third for at in maps), "an output that came before has its map"
    assert sum(third < at < fourth for at in maps) == 1


def test_the_same_addresses_with_other_shapes_strides_or_types_are_another_call(on_gpu):
    on_gpu("""
from warploom.operators import calls
a, b, out = bf16(256, 128), bf16(128, 256), bf16(256, 256)
warploom.matmul(a, b, out=out)
seen = []
real = calls.compute
calls.compute = lambda *arguments: seen.append(1) or real(*arguments)
warploom.matmul(a, b, out=out)
assert not seen
for x, y, z in [
    (a[:128], b, out[:128]),
    (a, b.view(256, 128).T, out),
    (a.view(torch.float16), b.view(torch.float16), out.view(torch.float16)),
    (a, b, out.T),
    (a, b[:, :128], out.view(-1)[: 256 * 128].view(256, 128)),
]:
    before = len(seen)
    warploom.matmul(x, y, out=z)
    assert len(seen) == before + 1
    assert warploom.matmul(x, y, out=z) is z
""")


def test_calls_with_tensors_of_the_same_facts_share_a_guard_that_tells_all_others(on_gpu):
    on_gpu("""
from warploom.operators import calls
sets = [(bf16(256, 128), bf16(128, 192), bf16(256, 192)) for _ in range(3)]
weight = torch.nn.Parameter(sets[2][1].clone(), requires_grad=False)
def call(a, b, out): assert warploom.matmul(a, b, out=out) is out
for _ in range(2):
    for each in sets:
        call(*each)
    call(sets[0][0], weight, sets[0][2])
first, second, third, of_parameter = (hit[0] for hit in CACHE.hits.values())
assert first is second is third and of_parameter is not first
seen = []
real = calls.compute
calls.compute = lambda *arguments: seen.append(1) or real(*arguments)
for each in sets:
    call(*each)
assert not seen
a, b, out = sets[0]
out.t_()                                       # the same objects and addresses, another matrix
with refused("wrong-shape"):
    warploom.matmul(a, b, out=out)
out.t_()
b.requires_grad_()
with pytest.raises(errors.WarploomError):
    warploom.matmul(a, b, out=out)
b.requires_grad_(False)
before = a.data_ptr()
a.set_(bf16(256, 128))                         # the same object, other memory
assert a.data_ptr() != before
call(a, b, out)
CACHE.clear()
call(a, b, out)
assert len(seen) >= 2
""")


def test_an_output_that_is_made_does_not_get_the_strides_of_one_that_was_given(on_gpu):
    log = on_gpu("""
a, b, wide = bf16(640, 128), bf16(192, 128), bf16(640, 512)
large = "cooperative_128x96x6_g8"  # it stores by TMA
warploom.matmul(a, b.T, out=wide[:, :192], config=large)
assert warploom.matmul(a, b.T, config=large).is_contiguous()
""")
    stores = [line.split("stride ")[1].split()[0] for line in log if line.startswith("map ") and "dims 192 640" in line]
    assert list(dict.fromkeys(stores)) == [str(512 * 2), str(192 * 2)]  # a tile of 96 columns has boxes of two widths


def test_every_stream_gets_its_own_launch_and_a_capture_finds_the_kernel_loaded(on_gpu):
    log = on_gpu("""
import ctypes
a, b, out = bf16(256, 128), bf16(128, 192), bf16(256, 192)
for stream in (0x40, 0x50, 0x40):
    warploom.matmul(a, b, out=out)
ctypes.CDLL(None).setenv(b"FAKE_CUDA_CAPTURING", b"1", 1)
stream = 0x70
warploom.matmul(a, b, out=out)
warploom.matmul(bf16(256, 128), b, out=out)
""")
    assert [line.split(" stream ")[1].split()[0] for line in launches(log)] == ["40", "50", "40", "70", "70"]
    assert log.count("load ELF") == 1


def test_a_kernel_with_memory_of_ours_is_remembered_for_its_stream_only(on_gpu):
    log = on_gpu("""
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.operators import calls
x, w, out = bf16(8, 2048), bf16(256, 2048), bf16(8, 256)
by_last = SmallMConfig(tokens=8, split_k=4, split_by="last")
seen = []
compute = calls.compute
calls.compute = lambda *arguments: seen.append(1) or compute(*arguments)
def call(): warploom.linear(x, w, out=out, config=by_last)
call(), call(), call()
assert len(seen) == 1
stream = 0x50
call(), call()
assert len(seen) == 2
""")
    assert [line.split(" stream ")[1].split()[0] for line in launches(log)] == ["40"] * 3 + ["50"] * 2


OWN_MEMORY = """
import ctypes, gc, weakref
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.operators import workspace
made, new_array = [], workspace.new_array
def recorded(*arguments):
    array = new_array(*arguments)
    made.append(weakref.ref(array))
    return array
workspace.new_array = recorded
by_last = SmallMConfig(tokens=8, split_k=4, split_by="last")
def capture(number): ctypes.CDLL(None).setenv(b"FAKE_CUDA_CAPTURING", str(number).encode(), 1)
def product(n):
    x, w, out = bf16(8, 2048), bf16(n, 2048), bf16(8, n)
    return lambda: warploom.linear(x, w, out=out, config=by_last)
small, large = product(256), product(1024)
"""


def test_memory_that_a_remembered_launch_writes_to_stays_when_a_larger_product_needs_more(on_gpu):
    on_gpu(
        OWN_MEMORY
        + """
small(), large(), small()
gc.collect()
assert len(made) == 4 and all(array() is not None for array in made)
for n in (1088, 1152, 1216):
    product(n)()
assert len(made) == 6, "it grows by doubling"
"""
    )


def test_a_captured_graph_shares_its_memory_with_no_other_call(on_gpu):
    on_gpu(
        OWN_MEMORY
        + """
small(), small()
assert len(made) == 2
capture(1)
small(), small()
assert len(made) == 4, "the sums and the counters of the first graph"
capture(2)
small(), small()
assert len(made) == 6, "of the second"
capture(0)
small()
assert len(made) == 6
"""
    )


def test_an_output_that_overlaps_an_operand_is_refused_also_the_second_time(on_gpu):
    on_gpu("""
a, b = bf16(256, 256), bf16(256, 256)
out = torch.empty_like(a)
warploom.matmul(a, b, out=out)
for wrong in (a, b):
    with refused("overlap"):
        warploom.matmul(a, b, out=wrong)
""")


def test_fused_calls_and_linear_are_remembered_too(on_gpu):
    log = on_gpu("""
from warploom.operators import calls
x, w, bias = bf16(16, 256), bf16(512, 256), bf16(512)
old, gate = bf16(16, 512), bf16(16, 512)
def call():
    warploom.linear(x, w)
    warploom.linear(x, w, bias)
    warploom.linear(x, w, bias, activation="silu")
    warploom.matmul(x, w.T, alpha=2.0)
    warploom.linear(x, w, residual=old, gate=gate)
call()
calls.compute = None
call()
""")
    assert len(launches(log)) == 10


def test_a_call_with_arguments_that_came_before_is_found_by_them_at_once(on_gpu):
    log = on_gpu("""
x, w, bias, factor = bf16(16, 256), bf16(512, 256), bf16(512), bf16(16, 512)
out = bf16(16, 512)
def call(**more):
    assert warploom.linear(x, w, bias, activation="silu", out=out, **more) is out
    return warploom.linear(x, w, gate=factor, **more)
call(), call()                       # the second time puts them into the table
CACHE.again = None              # what is asked otherwise would fail now
call()
""")
    assert len(launches(log)) == 6


def test_shapes_of_the_same_size_in_bytes_are_told_apart_by_the_guard(on_gpu):
    log = on_gpu("""
from warploom.operators import calls
x, w = bf16(16, 256), bf16(512, 256)
def call():
    assert warploom.linear(x, w).shape == (16, 512)
    assert warploom.linear(x.view(8, 512), w.view(256, 512)).shape == (8, 256)
    assert warploom.linear(x.view(1, 16, 256), w).shape == (1, 16, 512)
call(), call()
calls.compute = CACHE.again = None      # only the forms are asked now
call()
""")
    assert len(launches(log)) == 9


def test_other_arguments_at_the_same_addresses_are_another_call(on_gpu):
    on_gpu("""
from warploom.operators import calls
x, w, line, out = bf16(16, 256), bf16(16, 256), bf16(16), bf16(16, 16)
def call(**options): return warploom.linear(x, w, out=out, **options)
for _ in range(3):
    call(alpha=2.0, bias=line)
seen = []
compute = calls.compute
calls.compute = lambda *arguments: seen.append(arguments[3]) or compute(*arguments)
for options in (dict(alpha=3.0, bias=line), dict(beta=2.0, c=out.clone(), bias=line), dict(alpha=2.0),
                dict(alpha=2.0, bias=line.view(16, 1)), dict(alpha=2.0, bias=line.view(torch.float16)),
                dict(alpha=2.0, bias=line, activation="relu")):
    before = len(seen)
    call(**options), call(**options), call(**options)
    assert len(seen) == before + 1, options
call(alpha=2.0, bias=line)
assert len(seen) == 6
with pytest.raises(errors.ArgumentError, match="bias"):
    call(alpha=2.0, bias=line.view(2, 8))
""")


def test_what_wants_a_gradient_never_takes_the_short_way(on_gpu):
    on_gpu("""
import warploom.torch
x, w = bf16(16, 256), bf16(512, 256)
y = warploom.linear(x, w)
w.requires_grad_()
seen = []
warploom.torch.linear  # loaded
from warploom.integrations import torch as plug
plug.dispatch = lambda *a: seen.append(a) or "asked"
assert warploom.linear(x, w) == "asked" and seen
with torch.no_grad():
    assert warploom.linear(x, w).shape == (16, 512)
with pytest.raises(AssertionError):
    assert warploom.linear(x, w, out=y) == "not asked"
""")


def test_the_batch_is_one_launch_for_each_matrix_and_remembered_as_one(on_gpu):
    log = on_gpu("""
from warploom.operators import calls
a, b, out = bf16(3, 256, 128), bf16(3, 128, 192), bf16(3, 256, 192)
warploom.matmul(a, b, out=out)
calls.compute = None
warploom.matmul(a, b, out=out)
warploom.matmul(a, b, out=out)
""")
    assert len(launches(log)) == 9


def test_a_grouped_call_that_came_before_only_launches(on_gpu):
    log = on_gpu("""
from warploom.operators import grouped
a, w, ends, out = bf16(96, 128), bf16(3, 64, 128), torch.tensor([9, 9, 96], dtype=torch.int32), bf16(96, 64)
def call(): assert warploom.grouped_matmul(a, w.mT, offsets=ends, out=out) is out
call()
grouped.read = None                         # the long way would fail now
call()
""")
    first, second = launches(log)
    assert first == second


@pytest.mark.parametrize(
    "name, arch, sms", [("Tesla V100", "sm_70", 80), ("NVIDIA B300", "sm_103a", 148), ("RTX PRO 6000", "sm_120a", 188)]
)
def test_gpus_before_ampere_and_after_blackwell_are_refused_in_a_sentence(on_gpu, name: str, arch: str, sms: int):
    log = on_gpu(
        f"name, arch, sms = {name!r}, {arch!r}, {sms}"
        """
from warploom.operators import Gpu, execute, grouped
execute.gpu_of = grouped.gpu_of = lambda index: Gpu(name, arch, sms, "13000")
a, b = bf16(256, 128), bf16(192, 128)
ends = torch.tensor([100, 256], dtype=torch.int32)
for call in (
    lambda: warploom.matmul(a, b.T),
    lambda: warploom.linear(a, b),
    lambda: warploom.linear(a, b, config="ping_pong_128x64x4_2b_g8"),
    lambda: warploom.grouped_matmul(a, bf16(2, 192, 128).mT, offsets=ends),
):
    with pytest.raises(errors.ArgumentError) as caught:
        call()
    assert caught.value.got == f"{name}, {arch}"
"""
    )
    assert not launches(log)


@pytest.mark.parametrize("arch", ["sm_75", "sm_103a", "sm_120a"])
def test_a_kernel_of_hopper_is_chosen_for_no_other_gpu(arch: str):
    pretended = Gpu("another GPU", arch, 100)
    for ask in (choose, explain):
        with pytest.raises(ArgumentError) as caught:
            ask(Problem.of(512, 512, 512), pretended)
        assert caught.value.got == f"another GPU, {arch}"


@pytest.mark.parametrize("own", [False, True], ids=["torch's guard", "our guard"])
def test_a_launch_kept_without_gradients_is_not_taken_where_one_is_wanted(own, monkeypatch):
    torch = pytest.importorskip("torch")
    if own:
        monkeypatch.setattr(torch._C._dynamo.guards, "TensorGuards", None)
    x, weight = torch.zeros(8, 16), torch.zeros(4, 16, requires_grad=True)
    with torch.no_grad():
        passes = guard(x, weight)
        assert passes(x, weight)
    assert not passes(x, weight)
    with torch.no_grad():
        assert passes(x, weight)


def test_a_repeated_norm_only_launches_and_another_shape_at_its_address_is_checked(on_gpu):
    log = on_gpu("""
from warploom.operators import norm
x, weight = bf16(6, 256), bf16(256)
kept = [norm.rms_norm(x.view(2, 3, 256), weight, 1e-5) for _ in range(3)]
norm.why_not = None                          # the long way would fail now
kept.append(norm.rms_norm(x.view(2, 3, 256), weight, 1e-5))
assert [each.shape for each in kept] == [(2, 3, 256)] * 4 and len({each.data_ptr() for each in kept}) == 4
for other in (lambda: norm.rms_norm(x.view(3, 2, 256), weight, 1e-5), lambda: norm.rms_norm(x, weight, 1e-4)):
    try:
        other()
        raise SystemExit("taken for the same call")
    except TypeError:
        pass
""")
    assert len(launches(log)) == 4


def test_a_norm_that_adds_a_residual_is_another_call_than_one_that_does_not(on_gpu):
    log = on_gpu("""
from warploom.operators import norm
x, weight, more = bf16(6, 256), bf16(256), bf16(6, 256)
for _ in range(2):
    norm.rms_norm(x, weight, 1e-5), norm.rms_norm(x, weight, 1e-5, residual=more)
norm.why_not = None                          # the long way would fail now
norm.rms_norm(x, weight, 1e-5), norm.rms_norm(x, weight, 1e-5, residual=more)
assert norm.norm_again(x, weight, 1e-5, False, False, False, more.t()) is None
""")
    assert len(launches(log)) == 6
