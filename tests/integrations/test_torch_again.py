"""Repeated calls of a converted model go straight to the driver; whatever changes between two calls counts in the next.

The mock GPU executes (tests/driver/executing.py), so results are compared, not only launches.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")


pytestmark = [pytest.mark.full, pytest.mark.usefixtures("needs_ptxas")]

MODEL = """
import copy, io, os, pickle, torch
from torch import nn
import warploom.torch
from warploom.operators import calls, norm
from tests.driver import executing
from tests.integrations import test_torch_fused
from tests.integrations.test_torch_fused import X, far, made
executing.install()
current = 0x40
torch._C._cuda_getCurrentRawStream = lambda index: current
warnings.simplefilter("ignore")
both = made()

def check(what, x=X):
    "The converted model still computes what the plain one does."
    expected, found = (each(x) for each in both)
    assert far(found.float(), expected.float()) < 2**-6, what

def known():
    "Calls with the shapes of X have come before."
    with torch.no_grad():
        for _ in range(3):
            both[1](X)

def each(change):
    for model in both:
        change(model)

def long_way(*arguments, **options): raise AssertionError("checked again")
known()
"""
IMPORTED = "torch", "warploom.torch", "tests.driver.executing", "tests.integrations.test_torch_fused"


@pytest.mark.slow
def test_weights_that_change_count_in_the_next_call(pretend):
    pretend(
        MODEL
        + """
def doubled(model): model.load_state_dict({name: 2 * value for name, value in model.state_dict().items()})
def moved(model):
    for parameter in model.parameters(): parameter.data = parameter.data.clone()
def replaced(model): model.mixer.two.weight = nn.Parameter(model.mixer.two.weight.detach() * 3)
def shorter(model):
    model.mixer.one.weight = nn.Parameter(model.mixer.one.weight.detach()[:16])
    model.mixer.one.bias = nn.Parameter(model.mixer.one.bias.detach()[:16])
    model.mixer.last.weight = nn.Parameter(model.mixer.last.weight.detach()[:, 16:].contiguous())
with torch.no_grad():
    for change in (doubled, moved, replaced, doubled, shorter):
        each(change)
        check(change.__name__)
        known()
""",
        imported=IMPORTED,
    )


@pytest.mark.slow
def test_copies_of_a_model_compute_by_themselves(pretend):
    pretend(
        MODEL
        + """
def pickled(model): return pickle.loads(pickle.dumps(model))
first = both
with torch.no_grad():
    for copied in (copy.deepcopy, pickled):
        both = tuple(map(copied, first))
        each(lambda model: [parameter.mul_(2) for parameter in model.parameters()])
        check(copied.__name__)
        both = first
        check("the first model, after " + copied.__name__)
""",
        imported=IMPORTED,
    )


@pytest.mark.slow
def test_hooks_of_layers_and_of_all_modules_are_called(pretend):
    pretend(
        MODEL
        + """
from torch.nn.modules.module import register_module_forward_hook
seen = []
def twice(module, given, result):
    if isinstance(module, nn.Linear):
        seen.append(module)
        return 2 * result
def on_layers(model): return [each.register_forward_hook(twice) for each in model.modules()]
with torch.no_grad():
    handles = [*on_layers(both[0]), *on_layers(both[1])]
    check("hooks of layers")
    assert len(seen) == 14
    [handle.remove() for handle in handles]
    handle = register_module_forward_hook(twice)
    check("a hook of all modules")
    assert len(seen) == 28
    handle.remove()
    check("no hook")
""",
        imported=IMPORTED,
    )


def test_a_repeated_call_is_not_checked_again_and_gradients_modes_and_streams_are_those_of_each_call(pretend):
    log = pretend(
        MODEL
        + """
checked, calls.compute, norm.why_not = (calls.compute, norm.why_not), long_way, long_way
with torch.no_grad():
    for _ in range(2):
        check("another input", torch.randn_like(X))
with open(os.environ["FAKE_CUDA_LOG"]) as log:
    assert sum(line.startswith("launch") for line in log) == 5 * 6
calls.compute, norm.why_not = checked

def gradients(model):
    x = X.clone().requires_grad_()
    model(x).float().square().sum().backward()
    return [x.grad, *[parameter.grad for parameter in model.parameters()]]
for found, expected in zip(*map(gradients, reversed(both)), strict=True):
    assert far(found.float(), expected.float()) < 2**-4
with torch.inference_mode():
    check("inference mode")
    check("inference mode again")
with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
    check("autocast", X.float())
with torch.no_grad():
    current = 0x50
    check("another stream")
""",
        imported=IMPORTED,
    )
    last = [line.split(" stream ")[1].split()[0] for line in log if line.startswith("launch")][-6:]
    assert last == ["50"] * 6
