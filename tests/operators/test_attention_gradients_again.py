"""Repeated gradients of attention only launch, and whatever changes between two calls counts in the next.

The mock driver says what each launch gets. That of a call that is known is compared with that of the same call after
all is forgotten: the kernel, its grid, numbers, tensor maps, and which tensors it reads and writes.
"""

from __future__ import annotations

from functools import partial

import pytest

pytestmark = pytest.mark.usefixtures("needs_ptxas")
SLOW = pytest.mark.slow

CALLS = r"""
import ctypes, re
from warploom.driver import compile as compiler
from warploom.driver.module import Modules
from warploom.operators.attention import gradient_cache, gradients
from tests.driver import executing
executing.install()
current = 0x40
torch._C._cuda_getCurrentRawStream = lambda index: current
warnings.simplefilter("ignore")
torch.manual_seed(0)
of_request, options, tensors, launches = gradients.of_request, {}, {}, []

def record(self, config, function, parameters):
    "Instead of running it: what the launch is given."
    text, entry = self.texts[function]
    (listed,) = re.findall(r"\.entry " + entry + r"\((.*?)\)\n", text, re.S)
    values = []
    for at, each in enumerate(listed.split(",")):
        width, size = re.search(r"\.[bufs](\d+)\s+\w+(?:\[(\d+)\])?", each).groups()
        raw = ctypes.string_at(parameters[at], int(width) // 8 * int(size or 1))
        values.append((int.from_bytes(raw[:8], "little"), raw[8:]) if len(raw) >= 8 else raw)
    launches.append((entry, tuple(config.grid), tuple(config.block), config.stream, values))
executing.Executor.run = record

def recorded(call):
    "The results, and the launches, with the arrays that a call makes in the order in which they are named."
    launches.clear()
    found, new = call(), {}
    held = [(each.data_ptr(), each.data_ptr() + each.nbytes) for each in (*tensors.values(), *read)]
    def of(value):
        if not isinstance(value, tuple) or any(start <= value[0] < end for start, end in held):
            return value
        return f"new {new.setdefault(value[0], len(new))}", value[1]
    return found, [(*launch, [of(value) for value in values]) for *launch, values in launches]

def given(**new):
    "The call has other tensors, or other options, from now on."
    for name, value in new.items():
        (tensors if isinstance(value, torch.Tensor) else options)[name] = value

def check(what, remembered=True):
    "The next call, and the one after it, launch what is launched if nothing is known."
    known = [recorded(call)]
    gradients.of_request = long_way if remembered else of_request
    known.append(recorded(call))
    gradients.of_request = of_request
    gradient_cache.CACHE.clear()
    expected = recorded(call)
    assert len(expected[1]) >= 3
    for found, launched in known:
        assert launched == expected[1], what
        assert [(x.shape, x.dtype, x.stride()) for x in found] == [(x.shape, x.dtype, x.stride()) for x in expected[0]]
    call()

def long_way(*_, **__): raise AssertionError("checked again")
"""
PACKED = """
def call(): return warploom.attention_varlen_backward(**tensors, **options)
def ends(*values, dtype=torch.int32): return torch.tensor([0, *values], dtype=dtype)
rows, read = 80, []
given(q=bf16(rows, 2, 16), k=bf16(rows, 1, 16), v=bf16(rows, 1, 16), out=bf16(rows, 2, 16), grad=bf16(rows, 2, 16))
given(cu_seqlens_q=ends(30, 70), cu_seqlens_k=ends(30, 70), lse=torch.rand(1, 2, rows), causal=True)
check("the first shapes")
"""
DENSE = """
from torch.nn.attention.flex_attention import create_block_mask
from warploom.operators.attention import mask_lists
def call(): return warploom.attention_backward(**tensors, **options)
def masked(limit): return create_block_mask(lambda b, h, i, j: j < limit, None, None, 40, 40, "cpu", BLOCK_SIZE=16)
read, factors, both = [], [0.5], bf16(1, 2, 40, 16)
given(q=bf16(1, 2, 40, 16), k=bf16(1, 1, 40, 16), v=bf16(1, 1, 40, 16), out=both, grad=both, lse=torch.rand(1, 2, 40))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the kernels are kept that several tests launch."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def run(on_gpu, built):
    return partial(on_gpu, WARPLOOM_CACHE_DIR=built)


SAME_KERNELS = {
    "other ends": "given(cu_seqlens_q=ends(20, 60))",
    "more sequences": "given(cu_seqlens_q=ends(5, 40, 80), cu_seqlens_k=ends(5, 40, 80))",
    "strides": "given(k=bf16(rows, 1, 32)[..., 16:])",
    "more keys": "given(k=bf16(rows + 8, 1, 16), v=bf16(rows + 8, 1, 16))",
    "another place": "given(cu_seqlens_k=torch.cat([torch.zeros(1, dtype=torch.int32), ends(5, 40, 80)])[1:])",
    "sinks": "given(sinks=torch.rand(2))",
    "scale": "given(scale=0.5)",
    "a stream": "current = 0x50",
}


def test_what_changes_in_packed_sequences_counts_in_the_next_call(run) -> None:
    run(CALLS + PACKED + "".join(f"{change}; check({name!r})\n" for name, change in SAME_KERNELS.items()))


@pytest.mark.parametrize("change", [
    "given(softcap=5.0); check('softcap'); given(softcap=2.0)",
    "given(lse_grad=torch.rand(1, 2, rows))",
    "given(**{name: tensors[name].half() for name in ('q', 'k', 'v', 'out', 'grad')})",
    "given(window=(8, 0)); check('window'); given(window=[3, 0])",
])  # fmt: skip
@SLOW
def test_so_does_what_needs_another_kernel(run, change: str) -> None:
    run(CALLS + PACKED + f"{change}; check('changed')")


def test_rows_that_no_kernel_writes_are_zeros_in_each_call_and_ends_are_read_by_the_kernels(run) -> None:
    run(CALLS + PACKED + """
first = recorded(call)[1]
tensors["cu_seqlens_q"].copy_(ends(10, 64))             # nothing of the host depends on it
gradients.of_request = long_way
for each in [torch.full((rows, heads, 16), 7.0).bfloat16() for heads in (2, 1, 1) * 3]:
    del each                                            # memory that is used next
found, launched = recorded(call)
assert launched == first and not any(each.any() for each in found)
""")  # fmt: skip


def test_ends_of_64_bits_are_copied_in_each_call(run) -> None:
    run(CALLS + PACKED + "given(cu_seqlens_q=ends(30, 70, dtype=torch.int64)); check('64 bits', remembered=False)")


def test_what_changes_in_functions_masks_and_sinks_counts_in_the_next_call(run) -> None:
    run(CALLS + DENSE + """
slope, mask = torch.tensor([0.1, 0.3]), masked(20)
def alibi(s, b, h, i, j): return s * factors[0] - slope[h] * (i - j).abs()
read += [slope, mask_lists.kinds_for(mask, current)]
given(score_mod=alibi, block_mask=mask)
check("the first")
slope.copy_(torch.tensor([0.7, 0.01])); check("written")
read.append(torch.tensor([0.7, 0.01])); slope = read[-1]; check("replaced")
mask = masked(5); read.append(mask_lists.kinds_for(mask, current)); given(block_mask=mask); check("another mask")
before = mask_lists.kinds_for(mask, current)
mask.kv_num_blocks.zero_(); call()
assert mask_lists.kinds_for(mask, current) is not before and not mask_lists.kinds_for(mask, current).any()
given(sinks=torch.rand(2)); check("sinks")
given(sinks=torch.rand(2).bfloat16()); check("sinks of 16 bits")
""")  # fmt: skip


def test_a_mask_for_other_lengths_is_refused_where_a_call_is_known(run) -> None:
    run(CALLS + DENSE + """
mask = masked(20)
given(block_mask=mask)
call(), call()
for name, value in (("seq_lengths", (33, 40)), ("BLOCK_SIZE", 16)):
    before = getattr(mask, name)
    setattr(mask, name, value)
    with refused("wrong-shape"):
        call()
    setattr(mask, name, before)
""")  # fmt: skip


@pytest.mark.full
def test_a_step_of_training_with_sinks_of_16_bits_and_heads_put_together_only_launches(run) -> None:
    run(CALLS + """
from warploom.operators.attention import calls
q, k, v, sinks = (x.requires_grad_() for x in (bf16(2, 2, 40, 16), bf16(2, 1, 40, 16), bf16(2, 1, 40, 16), bf16(2)))
slope, factors, first_way = torch.rand(2), [1.0], (calls.run, of_request)
def alibi(s, b, h, i, j): return s * factors[0] - slope[h] * (i - j).abs()
for functions in ({}, {"score_mod": alibi}):
    calls.run, gradients.of_request = first_way
    for step in range(3):
        launches.clear()
        out = warploom.attention(q, k, v, sinks=sinks, **functions)
        out.transpose(1, 2).flatten(2).float().square().sum().backward()
        assert len(launches) == 4 and sinks.grad is not None, len(launches)
        calls.run = gradients.of_request = long_way
""")  # fmt: skip
