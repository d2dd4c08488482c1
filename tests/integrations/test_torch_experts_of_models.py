"""Experts of `transformers`' models, multiplied by grouped products, with the emulator instead of a GPU."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import warploom.torch  # noqa: E402
from tests.integrations.test_torch_transformers import SIZES, far  # noqa: E402
from warploom.integrations.torch import transformers_experts as experts  # noqa: E402

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(experts._interface() is None, reason="this transformers has no implementations of experts"),
]
EXPERTS = dict(num_local_experts=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, n_routed_experts=4)


def made(family: str, **more):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES | EXPERTS | {"num_hidden_layers": 1} | more)
    return getattr(transformers, f"{family}ForCausalLM")(config).bfloat16().eval()


def converted(model):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = warploom.torch.convert(copy.deepcopy(model))
    return ours, "\n".join(str(each.message) for each in caught if each.category is warploom.torch.ConversionWarning)


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """The rows of each grouped product: the emulator takes the GPU's place."""
    seen: list[int] = []
    product = experts.grouped_matmul

    def watched(a, b, **named):
        seen.append(a.shape[0])
        return product(a, b, **named)

    monkeypatch.setattr(experts, "runs_on", lambda device: True)
    monkeypatch.setattr(experts, "grouped_matmul", watched)
    return seen


@pytest.mark.sample(0, all=1)
@torch.no_grad()
@pytest.mark.parametrize("family", ["Mixtral", "Qwen3Moe", "Qwen2Moe", "Olmoe", "GraniteMoe"])
def test_experts_are_two_grouped_products_and_give_what_the_model_gives(family, calls):
    model = made(family)
    ours, said = converted(model)
    told = warploom.torch.fused(ours)
    names = [name for name, what in told.items() if what == ("experts",)]
    assert len(names) == 1 and not warploom.torch.unfused(ours) and names[0] not in said
    tokens = torch.randint(3, 64, (2, 5))
    exact = copy.deepcopy(model).float()(tokens).logits
    found = ours(tokens).logits
    assert calls == [20, 20]
    assert far(found, exact) <= max(1.5 * far(model(tokens).logits, exact), 2**-7)


@torch.no_grad()
def test_an_expert_without_a_token_and_all_tokens_of_one_are_fine(calls):
    model = made("Mixtral")
    ours, _ = converted(model)
    mine, theirs = (next(iter(experts.experts_of(each).values())) for each in (ours, model))
    x, weights = torch.randn(3, 64).bfloat16(), torch.rand(3, 2).bfloat16()
    for chosen in ([[0, 2]] * 3, [[3, 0], [1, 3], [3, 2]], [[1, 1]] * 3):
        chosen = torch.tensor(chosen)
        assert far(mine(x, chosen, weights), theirs(x, chosen, weights)) < 2**-6
    assert len(calls) == 6


def test_what_the_kernels_do_not_take_goes_to_the_model_s_own_way(calls):
    ours, _ = converted(made("Mixtral"))
    tokens = torch.randint(3, 64, (1, 4))
    ours(tokens).logits.float().sum().backward()
    assert not calls and next(iter(experts.experts_of(ours).values())).down_proj.grad is not None
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        ours(tokens)
    assert not calls
    ours.set_experts_implementation("eager")
    with torch.no_grad():
        ours(tokens)
    assert not calls and set(warploom.torch.unfused(ours)) == set(experts.experts_of(ours))


def test_experts_that_no_kernel_reads_are_named_with_the_reason():
    ours, said = converted(made("GptOss"))
    (name,) = experts.experts_of(ours)
    assert name in said and name in warploom.torch.unfused(ours) and name not in warploom.torch.fused(ours)
    assert ours.config._experts_implementation == experts.REPLACED


@torch.no_grad()
def test_a_converted_model_of_experts_is_pickled_and_computes(calls):
    ours, _ = converted(made("Mixtral"))
    tokens = torch.randint(3, 64, (1, 4))
    again = pickle.loads(pickle.dumps(ours))
    assert torch.equal(again(tokens).logits, ours(tokens).logits) and len(calls) == 4
    assert all(hasattr(each, "_warploom_registered") for each in (ours, ours.model))  # each alone registers it, too


@torch.no_grad()
@pytest.mark.parametrize(
    "family", ["Gemma", "Gemma2", "Gemma3Text", "Olmo2", "Cohere", "Cohere2", "GptOss", "Granite", "Helium"]
)
def test_norms_of_families_are_one_kernel_and_the_model_gives_what_it_gave(family):
    torch.manual_seed(0)
    sizes = SIZES | EXPERTS | {"num_hidden_layers": 1, "head_dim": 16}
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config).bfloat16().eval()
    for norm in (each for each in model.modules() if "Norm" in type(each).__name__):
        norm.weight.normal_(0.5, 0.2)
    ours, _ = converted(model)
    norms = {name for name, each in ours.named_modules() if "Norm" in type(each).__name__}
    assert norms and all(warploom.torch.fused(ours)[name] == ("norm",) for name in norms)
    tokens = torch.randint(3, 64, (2, 5))
    exact = copy.deepcopy(model).float()(tokens).logits
    assert far(ours(tokens).logits, exact) <= max(1.5 * far(model(tokens).logits, exact), 2**-7)
