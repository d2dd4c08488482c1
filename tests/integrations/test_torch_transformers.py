"""Models of `transformers` with this library's attention, with the emulator instead of a GPU."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import warploom.torch  # noqa: E402
from tests.errors import refused  # noqa: E402
from warploom.integrations.torch import transformers as ours  # noqa: E402

pytestmark = pytest.mark.full
SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=64, max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=2)  # fmt: skip
ROOM = 24


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """The kernels that are called: the emulator takes the GPU's place."""
    seen: list[str] = []

    def watched(name: str, function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            seen.append(name)
            return function(*given, **named)

        return call

    monkeypatch.setattr(ours, "runs_on", lambda device: True)
    monkeypatch.setattr(ours.calls, "attention", watched("attention", ours.calls.attention))
    monkeypatch.setattr(ours, "attention_decode", watched("decode", ours.attention_decode))
    return seen


def made(family: str = "Llama", **more: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES | more)
    return getattr(transformers, f"{family}ForCausalLM")(config).bfloat16().eval()


def attending(model: Any) -> Any:
    """The model with this library's attention, and nothing else."""
    model = copy.deepcopy(model)
    ours.use(model)
    return model


def far(found: Any, expected: Any) -> float:
    return float((found.double() - expected.double()).abs().max() / expected.double().abs().max())


def close(found: Any, plain: Any, exact: Any) -> bool:
    return far(found, exact) <= max(1.5 * far(plain, exact), 2**-8)


@torch.no_grad()
@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Mistral"])
def test_a_prefill_without_a_mask_is_one_kernel_a_layer(family, calls):
    model = made(family)
    tokens = torch.randint(3, 64, (2, 7))
    found = attending(model)(tokens, use_cache=False).logits
    assert calls == ["attention"] * 2
    assert close(found, model(tokens, use_cache=False).logits, model.float()(tokens, use_cache=False).logits)


@torch.no_grad()
@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("padding", [None, "ones"])
def test_steps_behind_a_cache_are_decode_attention(cache, padding, calls):
    model = made()
    mine, exact = attending(model), copy.deepcopy(model).float()
    tokens = torch.randint(3, 64, (3, 9))

    def steps(one: Any) -> list[Any]:
        kept = transformers.StaticCache(config=one.config, max_cache_len=ROOM) if cache == "static" else None
        logits, length = [], 0
        for new in tokens.split([6, 1, 2], dim=1):
            length += new.shape[1]
            hidden = None if padding is None else torch.ones(3, length, dtype=torch.long)
            positions = torch.arange(length - new.shape[1], length)[None]
            told = one(new, past_key_values=kept, use_cache=True, attention_mask=hidden, position_ids=positions)
            kept, logits = told.past_key_values, [*logits, told.logits]
        return logits

    found = steps(mine)
    assert calls == ["attention"] * 2 + ["decode"] * 4
    for step, plain, true in zip(found, steps(model), steps(exact), strict=True):
        assert close(step, plain, true)


@pytest.mark.sample(0, all=1)
@torch.no_grad()
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("hidden", [None, torch.ones(2, 6, dtype=torch.long)], ids=["no mask", "ones"])
def test_what_generate_adds_to_a_cache_is_decode_attention(cache, hidden, calls):
    model, tokens = made(), torch.randint(3, 64, (2, 6))
    options = {"max_new_tokens": 3, "do_sample": False, "cache_implementation": cache, "attention_mask": hidden}
    found = attending(model).generate(tokens, eos_token_id=63, **options)
    assert calls == ["attention"] * 2 + ["decode"] * 2 * (found.shape[1] - 7) and found.shape[1] > 7
    assert torch.equal(found, model.generate(tokens, eos_token_id=63, **options))


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_steps_that_generate_compiles_are_the_operator_in_one_graph(padded, monkeypatch):
    monkeypatch.setattr(ours, "runs_on", torch.compiler.assume_constant_result(lambda device: device.type == "cpu"))
    graphs: list[list[str]] = []

    def backend(graph: Any, given: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    how = transformers.CompileConfig(backend=backend, mode=None, fullgraph=True)
    how._compile_all_devices = True
    model, tokens, hidden = made(), torch.randint(3, 64, (2, 6)), torch.ones(2, 6, dtype=torch.long)
    hidden[0, :2] = 0 if padded else 1
    options = {"max_new_tokens": 4, "do_sample": False, "attention_mask": hidden, "cache_implementation": "static"}
    found = attending(model).generate(tokens, eos_token_id=63, compile_config=how, **options)
    (nodes,) = graphs
    assert nodes.count("warploom.attention_decode") == (0 if padded else 2)
    assert torch.equal(found, model.generate(tokens, eos_token_id=63, **options))


def compiled_nodes(model: Any, monkeypatch: Any, **options: Any) -> tuple[Any, list[list[str]]]:
    """The compiled model, and the functions that each of its graphs calls; the emulator takes the GPU's place."""
    monkeypatch.setattr(ours, "runs_on", torch.compiler.assume_constant_result(lambda device: device.type == "cpu"))
    graphs: list[list[str]] = []

    def backend(graph: Any, given: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    torch._dynamo.reset()
    return torch.compile(attending(model), backend=backend, **options), graphs


@torch.no_grad()
@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(("family", "dynamic"), [("Llama", False), ("Llama", True), ("Qwen3", False)])
def test_a_compiled_prefill_is_the_operator_in_one_graph(family, dynamic, monkeypatch):
    model = made(family)
    compiled, graphs = compiled_nodes(model, monkeypatch, dynamic=dynamic, fullgraph=True)
    for tokens in (torch.randint(3, 64, (2, 7)), torch.randint(3, 64, (2, 9))):
        found = compiled(tokens).logits
        assert close(found, model(tokens).logits, copy.deepcopy(model).float()(tokens).logits)
    assert [nodes.count("warploom.attention") for nodes in graphs] == [2] * (1 if dynamic else 2)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["padded", pytest.param("window", marks=pytest.mark.slow), "packed"])
def test_a_compiled_prefill_with_a_mask_is_torch_s(kind, monkeypatch):
    model = made("Mistral", sliding_window=4) if kind == "window" else made()
    tokens, hidden = torch.randint(3, 64, (2, 6)), torch.ones(2, 6, dtype=torch.long)
    hidden[0, :2] = 0
    more = {"attention_mask": hidden} if kind == "padded" else {}
    if kind == "packed":
        more = {"position_ids": torch.tensor([[0, 1, 2, 0, 1, 2]]), "use_cache": False}
    compiled, graphs = compiled_nodes(model, monkeypatch)
    assert torch.equal(compiled(tokens, **more).logits, model(tokens, **more).logits)
    assert not any(name.startswith("warploom") for nodes in graphs for name in nodes)


@torch.no_grad()
def test_padded_sequences_are_computed_by_torch(calls):
    model = made()
    tokens, hidden = torch.randint(3, 64, (2, 6)), torch.ones(2, 6, dtype=torch.long)
    hidden[0, :2] = 0
    found = attending(model)(tokens, attention_mask=hidden).logits
    assert not calls
    assert torch.equal(found, model(tokens, attention_mask=hidden).logits)


def test_a_layer_that_wants_gradients_is_torch_s(calls):
    model = made()
    tokens = torch.randint(3, 64, (1, 5))
    found, expected = (each(tokens, labels=tokens).loss for each in (attending(model), model))
    found.backward()
    assert not calls and torch.equal(found, expected)


@torch.no_grad()
def test_a_window_shorter_than_the_cache_is_torch_s(calls):
    model = made("Mistral", sliding_window=4)
    tokens = torch.randint(3, 64, (1, 9))
    found = attending(model)(tokens).logits
    assert not calls
    assert torch.equal(found, model(tokens).logits)


@torch.no_grad()
def test_convert_chooses_it_and_says_so(calls):
    model = made()
    converted = warploom.torch.convert(copy.deepcopy(model))
    assert converted.config._attn_implementation == ours.NAME
    assert model.config._attn_implementation == "sdpa"
    assert warploom.torch.fused(converted)[""] == ("attention",)
    assert ours.used(model) == []
    again = copy.deepcopy(converted)
    tokens = torch.randint(3, 64, (2, 5))
    assert torch.equal(again(tokens).logits, converted(tokens).logits)


def test_a_model_with_another_attention_keeps_it():
    model = made(attn_implementation="eager")
    assert warploom.torch.convert(model).config._attn_implementation == "eager"
    kept = warploom.torch.convert(made(), fuse=False)
    assert kept.config._attn_implementation == "sdpa"


@torch.no_grad()
def test_generate_gives_the_tokens_of_the_plain_model(calls):
    model = made().float()  # of f32 nothing is rounded, and nothing is ours
    half = made()
    tokens = torch.randint(3, 64, (2, 4))
    expected = model.generate(tokens, max_new_tokens=4, do_sample=False)
    assert torch.equal(attending(model).generate(tokens, max_new_tokens=4, do_sample=False), expected)
    assert not calls
    attending(half).generate(tokens, max_new_tokens=4, do_sample=False)
    assert calls.count("attention") == 2 and calls.count("decode") == 2 * 3


@torch.no_grad()
def test_a_mask_that_ends_before_the_keys_hides_what_is_behind_it(calls):
    model = made()
    tokens = torch.randint(3, 64, (2, 9))

    def step(one: Any) -> Any:
        kept = one(tokens[:, :6], use_cache=True).past_key_values
        return one(tokens[:, 6:], past_key_values=kept, attention_mask=torch.ones(2, 3, dtype=torch.long)).logits

    assert close(step(attending(model)), step(model), step(copy.deepcopy(model).float()))
    assert calls == ["attention"] * 2


SPARSE = dict(q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, index_topk=3,
              n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, n_group=1, topk_group=1,
              index_n_heads=2, index_head_dim=32, num_key_value_heads=4)  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("family, more", [("DeepseekV32", SPARSE), ("Falcon", {})])
def test_a_model_that_asks_for_sdpa_by_name_keeps_it(family, more, calls):
    model = made(family, **more)
    tokens = torch.randint(3, 64, (2, 9))
    mine = attending(model)
    assert mine.config._attn_implementation == "sdpa" and not ours.used(mine)
    assert torch.equal(mine(tokens).logits, model(tokens).logits) and not calls


OWN_SCORES = {
    "GptOss": dict(head_dim=16, num_local_experts=2, num_experts_per_tok=1, sliding_window=4),
    "Gemma2": dict(head_dim=16, sliding_window=4, query_pre_attn_scalar=16, attn_logit_softcapping=2.0),
}
"""Models whose scores have sinks, or a softcap: SDPA leaves out the one and refuses the other."""


@torch.no_grad()
@pytest.mark.parametrize("family", ["GptOss", pytest.param("Gemma2", marks=pytest.mark.slow)])
def test_sinks_and_softcaps_are_computed_whatever_the_mask(family, calls):
    """By the kernels where a layer sees all that is behind it; of padded and sliding layers as a model's own text."""
    ours.register()
    eager = made(family, **OWN_SCORES[family], attn_implementation="eager")
    mine, exact = copy.deepcopy(eager), copy.deepcopy(eager).float()
    mine.set_attn_implementation(ours.NAME)
    tokens, hidden = torch.randint(3, 64, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    hidden[0, :2] = 0
    for mask in (None, hidden, hidden.flip(1)):
        found, plain, true = (
            each(tokens, attention_mask=mask, use_cache=False).logits for each in (mine, eager, exact)
        )
        here = slice(None) if mask is None else mask.bool()
        assert close(found[here], plain[here], true[here])
    assert calls == ["attention"]

    def steps(one: Any) -> Any:
        kept = one(tokens[:, :6], use_cache=True).past_key_values
        return one(tokens[:, 6:], past_key_values=kept).logits

    assert close(steps(mine), steps(eager), steps(exact))
    assert calls == ["attention", "attention", "decode"]
    bias = dict(position_bias=torch.zeros(1, 2, 4, 4), softcap=2.0)
    with refused("argument", got="position_bias"):
        Layer()(*(heads(1, 2, 4, 16) for _ in range(3)), **bias)


class Layer(torch.nn.Module):
    """What a model calls its attention with."""

    is_causal = False
    num_key_value_groups = 1

    def forward(self, query: Any, key: Any, value: Any, **more: Any) -> Any:
        return ours.attend(self, query, key, value, None, **more)[0]


def heads(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.bfloat16)


@torch.no_grad()
@pytest.mark.parametrize("query, key", [
    ((3, 2, 1, 16), (1, 2, 5, 16)),
    ((1, 2, 4, 16), (3, 2, 4, 16)),
])  # fmt: skip
def test_shapes_that_only_torch_takes_are_torch_s(query, key, calls):
    q, k, v = heads(*query), heads(*key), heads(*key)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    assert torch.equal(Layer()(q, k, v), expected) and not calls


@pytest.mark.parametrize("shape", [(2, 4, 16), (2, 2, 2, 4, 16)])
def test_other_ranks_are_torch_s(shape, calls):
    assert not ours.computable(heads(*shape), heads(*shape), heads(*shape), None)


@torch.no_grad()
def test_heads_whose_elements_lie_apart_and_a_scale_in_a_tensor_are_torch_s(calls):
    q, k, v = (heads(1, 2, 16, 5).transpose(2, 3) for _ in range(3))
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert torch.equal(Layer()(q, k, v), plain.transpose(1, 2)) and not calls
    q, k, v = (heads(1, 2, 5, 16) for _ in range(3))
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.25)
    assert torch.equal(Layer()(q, k, v, scaling=torch.tensor(0.25)), plain.transpose(1, 2)) and not calls


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
def test_whoever_traces_sees_torch_s_operators(calls):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def given() -> list[Any]:
        return [heads(1, 2, rows, 16) for rows in (1, 6, 6)]

    layer, other = Layer(), given()
    traces = [torch.jit.trace(layer, tuple(given()), check_trace=False)]
    traces += [make_fx(layer, tracing_mode=mode)(*given()) for mode in ("real", "fake")]
    with FakeTensorMode():
        assert layer(*given()).shape == (1, 1, 2, 16)
    mapped = torch.vmap(layer)(*(each[None] for each in other))[0]
    assert not calls
    found = layer(*other)
    assert calls == ["decode"]
    for each in [*(trace(*other) for trace in traces), mapped]:
        assert far(each, found) < 2**-6


@torch.no_grad()
def test_a_pickled_model_without_a_layer_of_ours_runs_in_another_process(tmp_path):
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=64, bos_token_id=1, eos_token_id=1)
    model = attending(transformers.GPT2Model(config).bfloat16().eval())
    tokens = torch.randint(3, 64, (2, 5))
    expected = model(tokens).last_hidden_state
    (tmp_path / "model").write_bytes(pickle.dumps((model, tokens)))
    program = f"""
import pickle, torch
model, tokens = pickle.load(open({str(tmp_path / "model")!r}, "rb"))
with torch.no_grad():
    torch.save(model(tokens).last_hidden_state, {str(tmp_path / "found")!r})
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert torch.equal(torch.load(tmp_path / "found"), expected)


@torch.no_grad()
@pytest.mark.parametrize(
    "family, more, told",
    [
        ("Llama", {}, None), ("Mistral", {"sliding_window": 6}, "sliding_window=6"),
        ("Gemma2", {"head_dim": 16, "attn_implementation": "eager"}, "eager"),
        ("Llama", {"attn_implementation": "eager"}, "eager"),
        ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}, "sliding_window=5"),
        ("Qwen2", {}, None),
    ],
)  # fmt: skip
def test_convert_says_which_attention_stays_torchs_and_why(family, more, told):
    model = made(family, **more)
    before = model.config._attn_implementation
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warploom.torch.convert(model)
    lines = [line for each in caught for line in str(each.message).splitlines() if "attention of" in line]
    assert [told in line for line in lines] == ([] if told is None else [True])
    assert model.config._attn_implementation == (before if told == "eager" else ours.NAME)


@torch.no_grad()
@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen3", "Starcoder2", "Phi3"])
@pytest.mark.parametrize("how", [{}, {"cache_implementation": "static"}, {"prefill_chunk_size": 4}], ids=str)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.sample(0, all=1)
def test_what_is_generated_is_what_the_model_itself_generates(family, how, padded, calls):
    more = {"sliding_window": 6} if family in ("Mistral", "Starcoder2", "Phi3") else {}
    model = made(family, **more)
    for weight in model.parameters():
        if weight.dim() == 2:
            weight.mul_(4)  # scores and logits that differ
    tokens = torch.randint(3, 64, (2, 9))
    hidden = torch.ones_like(tokens)
    if padded:
        tokens[0, :3], hidden[0, :3] = 0, 0
    options = {"max_new_tokens": 4, "do_sample": False, "output_logits": True, "return_dict_in_generate": True, **how}
    mine, plain, exact = (
        each.generate(tokens, attention_mask=hidden, eos_token_id=-1, **options)
        for each in (attending(model), model, copy.deepcopy(model).float())
    )
    for step in range(4):
        known = (mine.sequences == exact.sequences)[:, : 9 + step].all(1)
        known &= (plain.sequences == exact.sequences)[:, : 9 + step].all(1)
        assert known.any()
        assert close(*(each.logits[step][known] for each in (mine, plain, exact)))
