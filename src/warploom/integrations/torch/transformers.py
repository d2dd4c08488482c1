"""Attention for models of `transformers`: the implementation "warploom", which `convert` selects instead of "sdpa".

    mask(...)      makes masks for `transformers`: SDPA's, with sequence lengths if the mask is a prefix
    attend(...)    is called by its attention layers: one kernel, with grouped heads and the cache used in place

A causal prefill is `attention`; one to sixteen new tokens after a cache are `attention_decode`, which reads the
sequence lengths on the GPU, so that a CUDA graph of a step with a static cache stays valid. In a graph of
`torch.compile`, a prefill without padding is the operator `warploom::attention`, and steps are the operator
`warploom::attention_decode` if their mask was made outside the graph, as `generate` does with a static cache. SDPA
computes everything else as before (padding, dropout, gradients, biases, a tracer, another GPU); `written_out` does with
sinks or a softcap, which SDPA does not support. A model whose code tests whether its attention is "sdpa", as those with
sparse attention do, keeps that name.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...collective.tile.sizes import MOST_GROUPS
from ...errors import ArgumentError
from ...kernels.hopper.attention_decode_config import MOST_ROWS
from ...operators.attention import calls
from ...operators.attention.decode import attention_decode
from . import transformers_experts as experts
from .attention import fit, runs_on
from .decode_operator import traced_decode
from .fused import PLAIN, wanted

NAME = "warploom"
REPLACED = "sdpa"
LENGTHS = "_warploom_lengths"
"""The attribute of a mask that holds the number of keys of each sequence, with the queries' own at the end."""
OTHERWISE = ("position_bias", "head_mask", "output_attentions")
"""Arguments with which a layer requests more than the kernels compute."""


def register() -> bool:
    """Register the implementation with `transformers`, if that is loaded. True if it is registered."""
    package = sys.modules.get("transformers")
    if package is None or not hasattr(package, "AttentionMaskInterface"):
        return False
    package.AttentionInterface.register(NAME, attend)
    package.AttentionMaskInterface.register(NAME, mask)
    experts.register()
    return True


class Registered:
    """Kept by a model so that loading it from a pickle registers the implementation, too."""

    def __reduce__(self) -> Any:
        return _registered, ()


def _registered() -> Registered:
    register()
    return Registered()


def use(model: nn.Module) -> dict[str, str]:
    """Let the models of `transformers` in a model use this library's attention if they use SDPA, and its grouped
    products for experts if they use `grouped_mm`.

    Returns, by a model's name, why its attention or some of its layers' stays torch's; one for each configuration.
    """
    said: dict[int, tuple[str, str]] = {}
    for name, part in _models(model) if register() else ():
        if experts.use(part):
            part._warploom_registered = Registered()
        reason = _unfit(part)
        if not reason and part.config._attn_implementation == REPLACED:
            part.set_attn_implementation({"": NAME})  # only its own, not that of a nested model
            part._warploom_registered = Registered()
        if reason := reason or _torchs(part.config):
            said.setdefault(id(part.config), (name or type(part).__name__, reason))
    return dict(said.values())


def _unfit(part: Any) -> str:
    """Why a model's attention cannot be this library's; "" if it can."""
    settable, found = getattr(part, "_can_set_attn_implementation", None), part.config._attn_implementation
    if found not in (REPLACED, NAME):
        return f'its attention is {found!r}: only "{REPLACED}" computes the same as a kernel here'
    if settable is not None and not settable():
        return "its class does not support a choice of attention"
    return f'its code tests whether its attention is "{REPLACED}"' if _asks_for_sdpa(part) else ""


def _torchs(config: Any) -> str:
    """The layers of a model that use SDPA although the model uses this library; "" if there are none."""
    kinds = getattr(config, "layer_types", None) or ("sliding",)
    for kind, attribute in (("sliding", "sliding_window"), ("chunked", "attention_chunk_size")):
        width = getattr(config, attribute, None)
        if isinstance(width, int) and any(each.startswith(kind) for each in kinds):
            return f"its layers with {attribute}={width} use SDPA if there are more keys"
    return ""


def used(model: nn.Module) -> list[str]:
    """Names of the models in a model that use this library's attention; one for all that share a configuration."""
    found = {id(part.config): name for name, part in reversed(_models(model))
             if part.config._attn_implementation == NAME}  # fmt: skip
    return list(reversed(found.values()))


def _models(model: nn.Module) -> list[tuple[str, Any]]:
    package = sys.modules.get("transformers")
    if package is None:
        return []
    return [(name, part) for name, part in model.named_modules() if isinstance(part, package.PreTrainedModel)]


def _asks_for_sdpa(part: Any) -> bool:
    """True if a model's code tests whether its attention is "sdpa": under another name it would get other masks."""
    own = {type(each).__module__ for each in part.modules() if getattr(each, "config", None) is part.config}
    return any(_compares_with_sdpa(name) for name in own)


@lru_cache(maxsize=1024)
def _compares_with_sdpa(module: str) -> bool:
    """True if the code of a module compares something with "sdpa", or cannot be read."""
    try:
        text = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return True
    if REPLACED not in text:
        return False
    compared = (node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Compare, ast.match_case)))
    return any(isinstance(one, ast.Constant) and one.value == REPLACED for node in compared for one in ast.walk(node))


# -- masks -------------------------------------------------------------------------------------------------------------


def mask(**given: Any) -> Tensor | None:
    """SDPA's mask for a layer, like `transformers.masking_utils.sdpa_mask`; with LENGTHS if it hides only the keys
    after each query. None for a whole causal sequence, also in a graph of torch.compile."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    if torch.compiler.is_dynamo_compiling() and _whole_sequence(given, causal_mask_function):
        return None
    made: Tensor | None = sdpa_mask(**given)
    rows = given.get("q_length")
    if made is None or not isinstance(rows, int) or rows > MOST_ROWS or torch.compiler.is_compiling():
        return made
    if given.get("kv_offset", 0) != 0 or "q_offset" not in given:
        return made
    plain, keys = given.get("mask_function") is causal_mask_function, given["q_offset"] + rows
    if plain and _unpadded(given.get("attention_mask"), keys):
        made = made.contiguous()  # as `generate` makes it with a static cache; a copy would not have the attribute
        setattr(made, LENGTHS, _lengths(keys, made))
    return made


def _whole_sequence(given: dict[str, Any], causal: Any) -> bool:
    """True if each token sees all tokens before it and nothing else, known without the values of a tensor.

    Below torch 2.14 `transformers` makes the mask of such a sequence in a graph, which no fast kernel reads.
    """
    offsets = (given.get("q_offset"), given.get("kv_offset", 0))  # no q_offset: old versions have positions instead
    if given.get("mask_function") is not causal or given.get("attention_mask") is not None:
        return False
    if not given.get("allow_is_causal_skip", True):
        return False
    if any(each is None or isinstance(each, Tensor) or each != 0 for each in offsets):
        return False
    rows, window = given["q_length"], given.get("local_size")
    return bool(1 < rows == given["kv_length"]) and (window is None or bool(rows < window))


def _unpadded(padding: Tensor | None, keys: Tensor | int) -> bool:
    """True if no token is hidden, counting those after the padding's end as visible; unknown during a capture."""
    if padding is None:
        return True
    if padding.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return bool(padding.shape[-1] >= keys) and bool(padding.all())


def _lengths(keys: Tensor | int, made: Tensor) -> Tensor:
    """Number of keys of each sequence, including the queries' own; a static cache counts them on the GPU."""
    if isinstance(keys, Tensor):
        return keys.to(made.device, torch.int32).reshape(1).expand(made.shape[0]).contiguous()
    return torch.full((made.shape[0],), keys, dtype=torch.int32, device=made.device)


# -- attention ---------------------------------------------------------------------------------------------------------


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0,
    scaling: float | None = None, is_causal: bool | None = None, **more: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """The attention function for a layer: query (B, H, S, D), key (B, G, T, D), value (B, G, T, E).

    Returns (B, S, H, E) and no weights. Raises ArgumentError for position biases together with sinks or a softcap.
    """
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    asked = [name for name in OTHERWISE if more.get(name) is not None and more.get(name) is not False]
    scores = Scores(scaling, more.get("softcap"), more.get("s_aux"))
    traced = torch.compiler.is_compiling()
    own = not asked and dropout == 0.0
    if own and computable(query, key, value, scaling) and not wanted(scores.sinks):
        found = (_traced if traced else _attend)(query, key, value, attention_mask, scores, causal)
        if found is not None:
            return found, None
    if not scores.plain:
        if asked:
            raise ArgumentError(
                "attention of transformers with sinks or a softcap takes nothing else", expected="none of these",
                got=", ".join(asked), hint='attn_implementation="eager" may compute it',
            )  # fmt: skip
        drop = dropout if module.training else 0.0
        return written_out(query, key, value, attention_mask, scores, causal, drop), None
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    result: tuple[Tensor, None] = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **more
    )
    return result


class Scores(NamedTuple):
    """Modifications of scores: their scale, or None; a softcap; sinks (H,), an extra score per head without a value."""

    scaling: Any = None
    softcap: float | None = None
    sinks: Tensor | None = None

    @property
    def plain(self) -> bool:
        """True if SDPA supports them."""
        return self.softcap is None and self.sinks is None


def written_out(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scores: Scores, causal: bool, dropout: float
) -> Tensor:
    """Attention with sinks and a softcap by torch's operators, whatever the mask: (B, S, H, E)."""
    rows, keys = query.shape[2], key.shape[2]
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    s = (query @ key.mT).float() * (query.shape[-1] ** -0.5 if scores.scaling is None else scores.scaling)
    if scores.softcap is not None:
        s = torch.tanh(s / scores.softcap) * scores.softcap
    if mask is None and causal and rows > 1:
        mask = torch.ones(rows, keys, dtype=torch.bool, device=s.device).tril()
    if mask is not None:
        s = s.masked_fill(~mask, torch.finfo(s.dtype).min) if mask.dtype is torch.bool else s + mask
    if scores.sinks is not None:
        s = torch.cat([s, scores.sinks.float().reshape(1, -1, 1, 1).expand(*s.shape[:3], 1)], -1)
    p = torch.softmax(s, -1)[..., :keys].to(value.dtype)
    return (nn.functional.dropout(p, dropout) @ value).transpose(1, 2).contiguous()


def computable(query: Tensor, key: Tensor, value: Tensor, scaling: Any) -> bool:
    """True if the kernels accept these tensors, on a supported GPU, and nothing but `torch.compile` observes torch's
    operators."""
    if not runs_on(query.device) or (not torch.compiler.is_compiling() and _watched()):
        return False
    three = (query, key, value)
    if not all(type(each) in PLAIN for each in three) or not fit(*three):
        return False
    scaled = scaling is None or (isinstance(scaling, (int, float)) and scaling > 0)
    return scaled and not wanted(*three) and query.numel() > 0


def _watched() -> bool:
    """True if a tracer, a transform or a mode must see the operators that run: it cannot see a kernel."""
    transformed: bool = torch._C._are_functorch_transforms_active()
    return transformed or torch._C._len_torch_dispatch_stack() > 0 or bool(torch.jit.is_tracing())


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scores: Scores, causal: bool
) -> Tensor | None:
    """The result if a kernel can compute it; None for masks that are not a prefix."""
    batch, _, rows, _ = query.shape
    options = {"scale": scores.scaling, "softcap": scores.softcap, "sinks": scores.sinks}
    lengths = getattr(mask, LENGTHS, None)
    if lengths is not None and mask is not None and mask.shape != (batch, 1, rows, key.shape[2]):
        return None
    if mask is None and rows == 1:
        lengths = _whole(batch, key.shape[2], key.device)
    if lengths is not None and batch <= MOST_GROUPS:
        q, k, v = (each.transpose(1, 2) for each in (query, key, value))
        found: Tensor = attention_decode(q, k, v, lengths, layout="bshd", **options)
        return found
    if mask is not None:
        return None
    if causal and rows > 1:  # in a static cache that was empty, what follows the last token is not a key yet
        key, value = key[:, :, :rows], value[:, :, :rows]
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    named = "top-left" if causal and rows > 1 else False
    whole: Tensor = calls.attention(q, k, v, causal=named, layout="bshd", **options)
    return whole


def _traced(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scores: Scores, causal: bool
) -> Tensor | None:
    """In a graph: a sequence without a mask is an operator, and so are steps whose mask was made outside, as `generate`
    does with a static cache."""
    batch, _, rows, _ = query.shape
    if mask is None:
        inside = torch.compiler.is_dynamo_compiling() and rows > 1
        return _attend(query, key, value, None, scores, causal) if inside else None
    lengths = getattr(mask, LENGTHS, None)
    if lengths is None or mask.shape != (batch, 1, rows, key.shape[2]) or batch > MOST_GROUPS:
        return None
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    options = {"sinks": scores.sinks, "scale": scores.scaling, "softcap": scores.softcap}
    found: Tensor = traced_decode(q, k, v, lengths, layout="bshd", **options)
    return found


def _whole(batch: int, keys: int, device: torch.device) -> Tensor:
    """All keys are valid, for each sequence."""
    if device.type != "cuda":
        return _full(batch, keys, device, 0)
    if torch.cuda.is_current_stream_capturing():  # it belongs to the graph
        return _full.__wrapped__(batch, keys, device, 0)
    return _full(batch, keys, device, torch._C._cuda_getCurrentRawStream(device.index))


@lru_cache(maxsize=256)
def _full(batch: int, keys: int, device: torch.device, stream: int) -> Tensor:
    """Cached for each stream, since streams are not synchronised."""
    return torch.full((batch,), keys, dtype=torch.int32, device=device)
