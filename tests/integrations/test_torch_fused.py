"""A converted model: its forward is analysed, computed by fewer kernels where possible, and left alone elsewhere."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import warploom.torch  # noqa: E402
from tests.errors import refused  # noqa: E402
from warploom.integrations.torch import fused as torch_fused  # noqa: E402
from warploom.integrations.torch.norms import norm_of  # noqa: E402
from warploom.operators.norm import rms_norm  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
HIDDEN = 32


class Norm(nn.Module):
    """As the language models of Hugging Face write it."""

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)
        self.epsilon = 1e-5

    def forward(self, states):
        kind = states.dtype
        states = states.to(torch.float32)
        square = states.pow(2).mean(-1, keepdim=True)
        states = states * torch.rsqrt(square + self.epsilon)
        return self.weight * states.to(kind)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(HIDDEN, size) for size in (32, 16, 24))
        self.last = nn.Linear(72, HIDDEN)

    def forward(self, x, scale=1.0):
        a = self.one(x)
        b = self.two(x)
        c = self.three(x) * scale
        out = torch.cat([a, b, c], dim=-1)
        out = self.last(out)
        return out, a


class Gated(nn.Module):
    def __init__(self, activation=None):
        super().__init__()
        self.g, self.u, self.d = nn.Linear(HIDDEN, 48), nn.Linear(HIDDEN, 48), nn.Linear(48, HIDDEN)
        self.act = activation or nn.SiLU()

    def forward(self, x):
        return self.d(self.u(x) * self.act(self.g(x)))


class Block(nn.Module):
    def __init__(self, activation=None):
        super().__init__()
        self.norm, self.mixer, self.gated = Norm(HIDDEN), Mixer(), Gated(activation)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        kept = x
        x = self.norm(x)
        x, _ = self.mixer(x, scale=0.5)
        x = kept + x
        kept = x
        x = self.gated(x)
        x = kept + self.dropout(x)
        return x


def made(*arguments):
    torch.manual_seed(0)
    model = Block(*arguments).bfloat16().eval()
    with torch.no_grad():
        return model, warploom.torch.convert(copy.deepcopy(model))


def far(one, other) -> float:
    return ((one - other).abs().max() / other.abs().max()).item()


X = torch.manual_seed(3) and torch.randn(2, 5, HIDDEN).bfloat16()


def test_a_forward_says_itself_what_can_be_fused():
    _, ours = made()
    assert warploom.torch.fused(ours) == {
        "": ("residual",), "norm": ("norm",), "mixer": ("together one, two, three", "adds a residual to its result"),
        "gated": ("gate", "adds a residual to its result"),
    }  # fmt: skip


@torch.no_grad()
def test_a_fused_model_agrees_with_one_of_f32_better_than_bf16_rounds():
    model, ours = made()
    exact = copy.deepcopy(model).float()(X.float())
    assert far(ours(X).float(), exact) < 2**-7
    assert far(ours(X).float(), exact) <= 1.5 * far(model(X).float(), exact)


@torch.no_grad()
def test_layers_of_one_input_are_one_product_and_keep_their_parameters(monkeypatch):
    model, ours = made()
    seen = []
    original = torch_fused.linear
    monkeypatch.setattr(
        torch_fused, "linear", lambda x, w, *a, **k: seen.append(tuple(w.shape)) or original(x, w, *a, **k)
    )
    ours(X)
    assert (72, HIDDEN) in seen and len(seen) == 5
    assert list(ours.state_dict()) == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name])
    ours.mixer.two.weight.data = ours.mixer.two.weight.data.clone()  # no longer behind the first one's
    seen.clear()
    ours(X)
    assert (72, HIDDEN) not in seen


@pytest.mark.sample(2, full=4)
@pytest.mark.parametrize("change", ["hook", "other layer", "training dropout", "f32"])
def test_where_a_kernel_cannot_do_it_the_text_is_done(change):
    model, ours = made()
    x = X
    calls = []
    if change == "hook":
        ours.gated.g.register_forward_hook(lambda module, given, result: calls.append(result) or result * 2)
        model.gated.g.register_forward_hook(lambda module, given, result: result * 2)
    elif change == "other layer":
        for each in (model, ours):
            torch.manual_seed(5)
            each.mixer.two = nn.Sequential(nn.Linear(HIDDEN, 16).bfloat16(), nn.Tanh())
    elif change == "training dropout":
        model.train(), ours.train()
    else:
        model, ours, x = model.float(), ours.float(), X.float()
    with torch.no_grad():
        torch.manual_seed(7)
        expected = model(x)
        torch.manual_seed(7)
        found = ours(x)
    assert far(found.float(), expected.float()) < 2**-6
    assert (change == "hook") == bool(calls)


@pytest.mark.full
def test_gradients_are_those_of_the_text():
    model, ours = made()
    for each in (model, ours):
        each(X.clone()).float().square().sum().backward()
    for (name, one), (_, other) in zip(model.named_parameters(), ours.named_parameters(), strict=True):
        assert far(other.grad.float(), one.grad.float()) < 2**-5, name


@pytest.mark.sample(3, full=7)
@pytest.mark.parametrize("activation, name", [(nn.SiLU(), "silu"), (nn.GELU(), "gelu"), (nn.ReLU(), "relu"),
                                              (nn.GELU(approximate="tanh"), "gelu_tanh"), (nn.Tanh(), None),
                                              (nn.PReLU(), None), (nn.Hardswish(), None)], ids=str)  # fmt: skip
def test_an_activation_is_known_by_its_values(activation, name):
    assert torch_fused.recognised(activation) == name
    model, ours = made(activation)
    with torch.no_grad():
        assert far(ours(X).float(), model(X).float()) < 2**-6


def test_a_converted_model_is_copied_and_pickled_and_keeps_its_classes():
    _, ours = made()
    assert isinstance(ours, Block) and type(ours.mixer).__name__ == "Mixer"
    again = pickle.loads(pickle.dumps(ours))
    with torch.no_grad():
        expected = ours(X)
        for each in (again, copy.deepcopy(ours)):
            assert torch.equal(each(X), expected)
    assert warploom.torch.fused(again) == warploom.torch.fused(ours)
    assert warploom.torch.fused(warploom.torch.convert(again)) == warploom.torch.fused(ours)


def test_fuse_false_only_replaces_layers():
    with torch.no_grad():
        ours = warploom.torch.convert(Block().bfloat16(), fuse=False)
    assert not warploom.torch.fused(ours) and len(warploom.torch.converted(ours)) == 7


class Reassigned(nn.Module):
    """The second layer has another input of the same name, the third is behind a branch."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))

    def forward(self, x):
        a = self.one(x)
        x = x * 2
        b = self.two(x)
        if a.sum() > 1e9:
            b = self.three(x)
        return a + b


class Late(nn.Module):
    """What is returned is no longer what the layer gave."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        y = self.layer(x)
        y.mul_(2)
        return y


@pytest.mark.parametrize("kind", [Reassigned, Late])
@torch.no_grad()
def test_a_text_that_means_something_else_is_left_alone(kind):
    model = kind().bfloat16()
    ours = warploom.torch.convert(copy.deepcopy(model))
    assert not warploom.torch.fused(ours)
    assert far(ours(X).float(), model(X).float()) < 2**-6


def test_a_norm_of_another_text_is_not_taken_for_one():
    class Centred(Norm):
        def forward(self, states):
            kind = states.dtype
            states = states.to(torch.float32)
            square = (states - states.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)
            states = states * torch.rsqrt(square + self.epsilon)
            return self.weight * states.to(kind)

    assert norm_of(Norm).eps == "epsilon" and norm_of(Norm).round_first and norm_of(Centred) is None


class OffsetNorm(nn.Module):
    """As the Gemma models have it: in a method, the factor kept as what is added to 1, rounded once."""

    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.randn(width) / 4)

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(x.float())
        output = output * (1.0 + self.weight.float())
        return output.type_as(x)


class OnceRounded(OffsetNorm):
    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.eps)
        return (self.weight * hidden_states).to(input_dtype)


class CentredNorm(OffsetNorm):
    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        mean = hidden_states.mean(-1, keepdim=True)
        variance = (hidden_states - mean).pow(2).mean(-1, keepdim=True)
        hidden_states = (hidden_states - mean) * torch.rsqrt(variance + self.eps)
        hidden_states = self.weight.to(torch.float32) * hidden_states
        return hidden_states.to(input_dtype)


class OtherMethod(OffsetNorm):
    """The same forward as `OffsetNorm`; the method is another one."""

    def _norm(self, x):
        return x * torch.rsqrt(x.abs().mean(-1, keepdim=True) + self.eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [OffsetNorm, OnceRounded, CentredNorm])
@torch.no_grad()
def test_norms_of_other_texts_are_one_kernel_and_give_the_same_values(kind, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(kind(520)).to(dtype)
    ours = warploom.torch.convert(copy.deepcopy(model))
    assert warploom.torch.fused(ours) == {"0": ("norm",)}
    x = (3 * torch.randn(2, 5, 520) + 1).to(dtype)
    found, right = ours(x), model(x)
    exact = copy.deepcopy(model).double()
    assert (found != right).float().mean() < 0.01  # what lies between two numbers may go either way
    assert far(found.double(), right.double()) <= torch.finfo(dtype).eps
    assert far(ours(x[..., :].transpose(0, 1)), right.transpose(0, 1)) <= torch.finfo(dtype).eps
    assert exact(x.double()).shape == found.shape


@torch.no_grad()
def test_a_method_of_another_text_is_not_taken_for_the_known_one():
    assert norm_of(OffsetNorm).unit_offset and norm_of(CentredNorm).centred
    assert norm_of(OtherMethod) is None


@torch.no_grad()
def test_a_weight_of_another_shape_than_a_row_does_what_the_text_says():
    ours = warploom.torch.convert(nn.Sequential(CentredNorm(16)).bfloat16())
    ours[0].weight = nn.Parameter(torch.randn(4, 16).bfloat16())  # of each head
    x = torch.randn(3, 4, 16).bfloat16()
    plain = CentredNorm(16)
    plain.weight = ours[0].weight
    assert torch.equal(ours(x), plain(x))


class Multiplied(nn.Module):
    """Two parts whose results are multiplied by a number before they are added, as the Granite models have it."""

    def __init__(self, factor, bias=False):
        super().__init__()
        self.first = Last(bias)
        self.residual_multiplier = factor

    def forward(self, x):
        residual = x
        hidden = self.first(x)
        hidden = residual + hidden * self.residual_multiplier
        return hidden


class Last(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.layer = nn.Linear(HIDDEN, HIDDEN, bias=bias)

    def forward(self, x):
        x = self.layer(x)
        return x


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("factor", [0.22, 1, torch.tensor(0.5)])
def test_a_factor_of_what_is_added_to_a_residual_is_applied_in_the_product(factor, bias, monkeypatch):
    torch.manual_seed(0)
    model = Multiplied(factor, bias).bfloat16()
    ours = warploom.torch.convert(copy.deepcopy(model))
    assert warploom.torch.fused(ours) == {"": ("residual",), "first": ("adds a residual to its result",)}
    calls = []
    linear = torch_fused.linear
    watched = lambda *given, **named: calls.append(named) or linear(*given, **named)  # noqa: E731
    monkeypatch.setattr(torch_fused, "linear", watched)
    x = torch.randn(3, HIDDEN).bfloat16()
    exact = copy.deepcopy(model).float()(x.float())
    with torch.no_grad():
        assert far(ours(x).float(), exact) <= max(1.5 * far(model(x).float(), exact), 2**-8)
    fused = not isinstance(factor, torch.Tensor) and (factor == 1 or not bias)
    assert [named.get("alpha", 1.0) for named in calls] == ([float(factor)] if fused else [])
    ours(x).float().sum().backward()
    assert ours.first.layer.weight.grad is not None and len(calls) == fused


class NormBetween(nn.Module):
    """A part's result is normalised before it is added to the residual, as in the Gemma 2 and OLMo 2 models."""

    def __init__(self, kind=OffsetNorm):
        super().__init__()
        self.part, self.after = Last(False), kind(HIDDEN)

    def forward(self, x):
        residual = x
        hidden = self.part(x)
        hidden = self.after(hidden)
        hidden = residual + hidden
        return hidden


@pytest.mark.parametrize("kind", [Norm, OffsetNorm, CentredNorm])
@torch.no_grad()
def test_a_residual_is_added_by_the_norm_in_front_of_it_and_rounded_as_apart_from_it(kind, monkeypatch):
    torch.manual_seed(0)
    ours = warploom.torch.convert(NormBetween(kind).bfloat16())
    assert warploom.torch.fused(ours)[""] == ("residual",)
    x = torch.randn(2, 5, HIDDEN).bfloat16()
    apart = x + ours.after(ours.part(x))  # the library's norm, and torch's addition
    calls = []
    watched = lambda *given, **named: calls.append(named["residual"]) or rms_norm(*given, **named)  # noqa: E731
    monkeypatch.setattr(torch_fused, "rms_norm", watched)
    assert torch.equal(ours(x), apart) and len(calls) == 1 and calls[0] is x
    for other in (x.transpose(0, 1), x[..., None, :].expand(2, 5, 3, HIDDEN)):  # not contiguous: torch adds
        calls.clear()
        found = ours(other)
        assert torch.equal(found, other + ours.after(ours.part(other))) and not [
            each for each in calls if each is not None
        ]


@torch.no_grad()
def test_a_hook_of_all_modules_sees_each_part_s_own_result():
    ours = warploom.torch.convert(NormBetween().bfloat16())
    x, seen = torch.randn(2, HIDDEN).bfloat16(), {}
    hook = nn.modules.module.register_module_forward_hook(lambda module, _, result: seen.update({module: result}))
    try:
        found = ours(x)
    finally:
        hook.remove()
    assert torch.equal(found, x + seen[ours.after]) and torch.equal(found, ours(x))


def test_a_residual_that_wants_a_gradient_or_has_another_type_is_added_by_torch(monkeypatch):
    torch.manual_seed(0)
    ours = warploom.torch.convert(NormBetween().bfloat16())
    monkeypatch.setattr(torch_fused, "rms_norm", None)
    x = torch.randn(2, HIDDEN).bfloat16().requires_grad_()
    ours(x).float().sum().backward()
    assert x.grad is not None and ours.after.weight.grad is not None
    with torch.no_grad():
        wide = torch.randn(2, HIDDEN)
        found = torch_fused.norm(ours.after, x.detach(), residual_=wide)
        assert found.dtype == torch.float32


# -- the norm --------------------------------------------------------------------------------------------------------


@pytest.mark.sample(4, full=8)
@pytest.mark.parametrize("round_first", [True, False])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 8), (9, 520), (2, 3, 4096), (1, 16384)], ids=str)
def test_a_norm_is_exact_to_the_rounding_and_clean(shape, kind, round_first):
    torch.manual_seed(0)
    x, weight = torch.randn(shape).to(kind), torch.randn(shape[-1]).to(kind)
    with warploom.config.override(emulator={"check": True}):
        found = rms_norm(x, weight, 1e-5, round_first=round_first)
    wide = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-5).sqrt()
    expected = weight.double() * (wide.to(kind).double() if round_first else wide)
    step = torch.finfo(kind).eps * expected.abs().clamp(min=torch.finfo(kind).tiny)
    assert ((found.double() - expected).abs() <= step * (1.1 if round_first else 0.51)).all()


@pytest.mark.parametrize("unit_offset", [False, True])
@pytest.mark.parametrize("shape", [(9, 520), (2, 3, 4096)], ids=str)
def test_a_residual_is_added_to_what_the_norm_rounds(shape, unit_offset):
    torch.manual_seed(0)
    x, weight, residual = (torch.randn(each).bfloat16() for each in (shape, shape[-1], shape))
    with warploom.config.override(emulator={"check": True}):
        plain = rms_norm(x, weight, 1e-5, unit_offset=unit_offset)
        assert torch.equal(rms_norm(x, weight, 1e-5, unit_offset=unit_offset, residual=residual), residual + plain)
    with refused("overlap"):
        rms_norm(x, weight, 1e-5, unit_offset=unit_offset, residual=residual, out=residual)


@pytest.mark.parametrize("residual, code", [(torch.ones(2, 16), "wrong-type"), (torch.ones(2, 8).half(), "wrong-shape"),
                                            (torch.ones(16).half(), "wrong-shape")])  # fmt: skip
def test_a_residual_unlike_the_rows_of_a_norm_is_refused(residual, code):
    with refused(code):
        rms_norm(torch.ones(2, 16).half(), torch.ones(16).half(), residual=residual)


@pytest.mark.parametrize("x, weight", [(torch.ones(2, 12), torch.ones(12)),
                                       (torch.ones(2, 12).half(), torch.ones(12).half()),
                                       (torch.ones(2, 16).half(), torch.ones(8).half()),
                                       (torch.ones(2, 16392).half(), torch.ones(16392).half())])  # fmt: skip
def test_a_norm_that_has_no_kernel_is_refused(x, weight):
    with pytest.raises((warploom.errors.ArgumentError, warploom.errors.ArgumentTypeError)):
        rms_norm(x, weight)


def test_a_norm_into_memory_with_gaps_is_refused():
    x, weight = torch.ones(2, 16).half(), torch.ones(16).half()
    with refused("wrong-layout"):
        rms_norm(x, weight, out=torch.empty(2, 32).half()[:, :16])


# -- transformers ----------------------------------------------------------------------------------------------------

SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=64, max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=2)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("family, together", [("Llama", True), ("Qwen2", True), ("Qwen3", True), ("Mistral", True),
                                              ("Phi3", False), ("Granite", True), ("Gemma", True)])  # fmt: skip
@torch.no_grad()
def test_the_decoders_of_transformers_are_fused(family, together):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES)
    model = getattr(transformers, f"{family}ForCausalLM")(config).bfloat16().eval()
    ours = warploom.torch.convert(copy.deepcopy(model))
    told = warploom.torch.fused(ours)
    assert told["model.layers.0"] == ("residual",) and told["model.norm"] == ("norm",)
    assert told["model.layers.0.mlp"] == ("gate", "adds a residual to its result")
    assert ("together q_proj, k_proj, v_proj" in told["model.layers.0.self_attn"]) == together
    assert "rotary" in told["model.layers.0.self_attn"]
    tokens = torch.randint(1, 64, (2, 5))
    exact = copy.deepcopy(model).float()(tokens).logits
    assert far(ours(tokens).logits.float(), exact) <= max(1.5 * far(model(tokens).logits.float(), exact), 2**-8)
