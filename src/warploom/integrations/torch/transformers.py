"""Attention of models of `transformers`: the implementation "warploom", which `convert` chooses in place of "sdpa".

    mask(...)      what `transformers` makes a mask with: SDPA's, with the lengths that it says where it is a prefix
    attend(...)    what its attention layers call: one kernel, grouped heads as they are, the cache as it lies

A causal prefill is `attention`; one to sixteen new tokens behind a cache are `attention_decode`, which reads how long
the sequences are on the GPU, so that a CUDA graph of a step with a static cache follows it. Everything else (padding,
dropout, gradients, biases, a tracer, another GPU) is computed by SDPA as before; with sinks or a softcap, which SDPA
does not know, by `written_out`. A model whose text asks whether its attention is "sdpa", as those with sparse attention
do, keeps that name.
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from ...collective.tile.sizes import MOST_GROUPS
from ...errors import ArgumentError
from ...kernels.hopper.attention_decode_config import MOST_ROWS
from ...operators.attention import calls
from ...operators.attention.decode import attention_decode
from . import transformers_experts as experts
from .attention import fit, runs_on
from .fused import PLAIN, wanted

NAME = "warploom"
REPLACED = "sdpa"
LENGTHS = "_warploom_lengths"
"""The attribute of a mask that holds how many keys each sequence has, the queries' own the last of them."""
OTHERWISE = ("position_bias", "head_mask", "output_attentions")
"""Arguments with which a layer asks for more than the kernels compute."""


def register() -> bool:
    """Make the implementation known to `transformers`, if that is loaded; whether it is known."""
    package = sys.modules.get("transformers")
    if package is None or not hasattr(package, "AttentionMaskInterface"):
        return False
    package.AttentionInterface.register(NAME, attend)
    package.AttentionMaskInterface.register(NAME, mask)
    experts.register()
    return True


class Registered:
    """What a model keeps so that it is registered, too, where the model is loaded from a pickle."""

    def __reduce__(self) -> Any:
        return _registered, ()


def _registered() -> Registered:
    register()
    return Registered()


def use(model: nn.Module) -> dict[str, str]:
    """Let the models of `transformers` in a model attend by this library, where they attend by SDPA, and multiply
    experts by it, where they do so by `grouped_mm`.

    Gives, by a model's name, why its attention or some of its layers' stays torch's; one for each configuration.
    """
    said: dict[int, tuple[str, str]] = {}
    for name, part in _models(model) if register() else ():
        if experts.use(part):
            part._warploom_registered = Registered()
        reason = _unfit(part)
        if not reason and part.config._attn_implementation == REPLACED:
            part.set_attn_implementation({"": NAME})  # only its own, not that of a model inside it
            part._warploom_registered = Registered()
        if reason := reason or _torchs(part.config):
            said.setdefault(id(part.config), (name or type(part).__name__, reason))
    return dict(said.values())


def _unfit(part: Any) -> str:
    """Why the attention of a model cannot be this library's; "" where it can."""
    settable, found = getattr(part, "_can_set_attn_implementation", None), part.config._attn_implementation
    if found not in (REPLACED, NAME):
        return f'its attention is {found!r}: only "{REPLACED}" computes the same as a kernel here'
    if settable is not None and not settable():
        return "its class lets nobody choose its attention"
    return f'its text asks whether its attention is "{REPLACED}"' if _asks_for_sdpa(part) else ""


def _torchs(config: Any) -> str:
    """Which layers of a model attend by SDPA although the model attends by this library; "" where none do."""
    kinds = getattr(config, "layer_types", None) or ("sliding",)
    for kind, attribute in (("sliding", "sliding_window"), ("chunked", "attention_chunk_size")):
        width = getattr(config, attribute, None)
        if isinstance(width, int) and any(each.startswith(kind) for each in kinds):
            return f"its layers with {attribute}={width} attend by SDPA where there are more keys"
    return ""


def used(model: nn.Module) -> list[str]:
    """Names of the models in a model that attend by this library; one for all that share a configuration."""
    found = {id(part.config): name for name, part in reversed(_models(model))
             if part.config._attn_implementation == NAME}  # fmt: skip
    return list(reversed(found.values()))


def _models(model: nn.Module) -> list[tuple[str, Any]]:
    package = sys.modules.get("transformers")
    if package is None:
        return []
    return [(name, part) for name, part in model.named_modules() if isinstance(part, package.PreTrainedModel)]


def _asks_for_sdpa(part: Any) -> bool:
    """Whether a model's text asks if its attention is "sdpa": under another name it would hand it other masks."""
    own = {type(each).__module__ for each in part.modules() if getattr(each, "config", None) is part.config}
    return any(_compares_with_sdpa(name) for name in own)


@lru_cache(maxsize=1024)
def _compares_with_sdpa(module: str) -> bool:
    """Whether the text of a module compares something with "sdpa"; True where it cannot be read."""
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
    """SDPA's mask of a layer, as `transformers.masking_utils.sdpa_mask`; with LENGTHS where it hides only what is
    behind each query."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    made: Tensor | None = sdpa_mask(**given)
    rows = given.get("q_length")
    if made is None or not isinstance(rows, int) or rows > MOST_ROWS or torch.compiler.is_compiling():
        return made
    if given.get("kv_offset", 0) != 0 or "q_offset" not in given:
        return made
    plain, keys = given.get("mask_function") is causal_mask_function, given["q_offset"] + rows
    if plain and _unpadded(given.get("attention_mask"), keys):
        setattr(made, LENGTHS, _lengths(keys, made))
    return made


def _unpadded(padding: Tensor | None, keys: Tensor | int) -> bool:
    """Whether no token is hidden, where what is behind the padding's end is; during a capture nobody can look."""
    if padding is None:
        return True
    if padding.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return bool(padding.shape[-1] >= keys) and bool(padding.all())


def _lengths(keys: Tensor | int, made: Tensor) -> Tensor:
    """Keys of each sequence, the queries' own among them; of a static cache on the GPU, which counts on there."""
    if isinstance(keys, Tensor):
        return keys.to(made.device, torch.int32).reshape(1).expand(made.shape[0]).contiguous()
    return torch.full((made.shape[0],), keys, dtype=torch.int32, device=made.device)


# -- attention ---------------------------------------------------------------------------------------------------------


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0,
    scaling: float | None = None, is_causal: bool | None = None, **more: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """What a layer of `transformers` calls: query (B, H, S, D), key (B, G, T, D), value (B, G, T, E).

    Gives back (B, S, H, E) and no weights. Raises ArgumentError for biases of positions beside sinks or a softcap.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    asked = [name for name in OTHERWISE if more.get(name) is not None and more.get(name) is not False]
    scores = Scores(scaling, more.get("softcap"), more.get("s_aux"))
    if not asked and dropout == 0.0 and computable(query, key, value, scaling) and not wanted(scores.sinks):
        found = _attend(query, key, value, attention_mask, scores, causal)
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
    result: tuple[Tensor, None] = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **more
    )
    return result


@dataclass(frozen=True)
class Scores:
    """What becomes of scores: their scale, or None; a softcap; one more of each head, (H,), without a value."""

    scaling: Any = None
    softcap: float | None = None
    sinks: Tensor | None = None

    @property
    def plain(self) -> bool:
        """Whether SDPA computes them."""
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
    """Whether the kernels take these tensors, on a GPU that they run on, and nobody watches torch's operators."""
    if torch.compiler.is_compiling() or not runs_on(query.device) or _watched():
        return False
    three = (query, key, value)
    if not all(type(each) in PLAIN for each in three) or not fit(*three):
        return False
    scaled = scaling is None or (isinstance(scaling, (int, float)) and scaling > 0)
    return scaled and not wanted(*three) and query.numel() > 0


def _watched() -> bool:
    """Whether a tracer, a transform or a mode is to see the operators that run: it cannot see a kernel."""
    transformed: bool = torch._C._are_functorch_transforms_active()
    return transformed or torch._C._len_torch_dispatch_stack() > 0 or bool(torch.jit.is_tracing())


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scores: Scores, causal: bool
) -> Tensor | None:
    """The result where a kernel has it; None for masks that are not a prefix."""
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
    if causal and rows > 1:  # of a static cache that was empty, what is behind the last token is not a key yet
        key, value = key[:, :, :rows], value[:, :, :rows]
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    named = "top-left" if causal and rows > 1 else False
    whole: Tensor = calls.attention(q, k, v, causal=named, layout="bshd", **options)
    return whole


def _whole(batch: int, keys: int, device: torch.device) -> Tensor:
    """As many keys for each sequence as there are."""
    if device.type != "cuda":
        return _full(batch, keys, device, 0)
    if torch.cuda.is_current_stream_capturing():  # it belongs to the graph
        return _full.__wrapped__(batch, keys, device, 0)
    return _full(batch, keys, device, torch.cuda.current_stream(device).cuda_stream)


@lru_cache(maxsize=256)
def _full(batch: int, keys: int, device: torch.device, stream: int) -> Tensor:
    """Kept for each stream, since nobody waits for another's."""
    return torch.full((batch,), keys, dtype=torch.int32, device=device)
