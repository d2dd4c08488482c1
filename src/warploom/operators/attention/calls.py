"""`attention`: softmax(scale Q Kᵀ + mask) V in one kernel. `reference.attention` defines the result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...errors import ArgumentError, ArgumentTypeError, CopyWarning, CostLimitError
from ...isa.dtypes import f32, s32, u32
from ...kernels.blackwell.attention_config import Config as BlackwellConfig
from ...plural import counted
from ...runtime.arrays import ArrayView, given_back, view
from ...runtime.estimate import allow, spoken
from ...runtime.launch_cache import LaunchCache
from ...runtime.launch_template import Launched
from ...runtime.machine import H200, Machine
from ...runtime.program import Program
from ...runtime.torch_transforms import is_transformed
from ...settings import config as settings
from ..bind import outside, warned
from ..binding import Binding
from ..dispatch_hook import load_torch_plugin, plugin_for, refuse_gradients, wants_gradient
from ..execute import EMULATED_FLOPS, launch
from ..first_run_check import warn_unproven
from ..outputs import check_apart, check_output
from ..spec.gpu import EMULATED, HOPPER, check_gpu, gpu_of
from ..spec.problem import TMA_BYTES
from ..views import copy_into, new_array, restrided
from ..workspace import fill, of_stream
from .function_arguments import naming_captured
from .functional import Functional
from .machine import (
    CALLED,
    CONFIGS,
    EMULATED_SMS,
    AnyConfig,
    Unproven,
    check_first,
    configured,
    emulating,
    machine_for,
    program_of,
)
from .mask_lists import lists_of
from .request import CheckedCall, Request, read
from .scales import arrays_and_numbers, in_f32
from .spills import warn_spills

CACHE = LaunchCache(differentiable=True, patience=8)
"""The launches of `attention`, `attention_varlen` and `attention_decode`. Caches of keys grow at each step, so that a
guard of their shapes pays only with many layers, or for a cache that does not grow."""
ARGUMENT_OF = {
    "Q": "q", "K": "k", "V": "v", "O": "out", "LSE": "lse", "q_ends": "cu_seqlens_q", "k_ends": "cu_seqlens_k",
}  # fmt: skip
"""Maps kernel arguments to the call's arguments, if names differ."""


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool | str = False,
    scale: float | None = None,
    window: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    score_mod: Any = None,
    mask_mod: Any = None,
    block_mask: Any = None,
    layout: str = "bhsd",
    fast_accumulation: bool = False,
    return_lse: bool = False,
    out: Any = None,
    lse: Any = None,
    config: AnyConfig | None = None,
) -> Any:
    """Compute softmax(scale Q Kᵀ + mask) V in one kernel, without storing the scores in global memory.

    CUDA arrays run on their GPU, on the current stream, asynchronously; NumPy arrays and CPU tensors in the emulator.

    Args:
        q: (B, H, S, D): B sequences of S queries, H heads. bf16 or f16; D a multiple of 8 up to 256. q, k and v may all
            be e4m3: then D and E are multiples of 16, P is e4m3, too, and the result is bf16.
        k: (B, G, T, D): T keys, G heads; H is a multiple of G, and each key head serves H / G query heads.
        v: (B, G, T, E); E has the same limits as D and may differ from it.
        causal: True or "bottom-right": the last query sees all keys, each earlier one a key less, as in flash-attn.
            "top-left": query i sees keys 0 to i, as in torch's scaled_dot_product_attention. Both agree if S = T.
        scale: factor of the scores, positive; 1 / sqrt(D) by default.
        window: (left, right): the number of keys that a query sees before and after its own, which for query i is
            i + T - S; None or -1: no limit. A number w means (w, w), or (w, 0) with `causal`.
        softcap: scores s become softcap * tanh(s / softcap) before they are masked (tanh.approx, 2^-11).
        sinks: (H,), f32, bf16 or f16: an extra score per head that takes part in every sum and has no value.
        q_scale, k_scale, v_scale: for e4m3, factors of q, k and v: three numbers, or f32 arrays (B, H), (B, G) and
            (B, G).
        score_mod: a Python function (score, batch, head, query, key) -> score, as in FlexAttention, traced into the
            kernel; `score` is already scaled. It may use torch.where, torch.exp and the like, numbers, and captured
            arrays: `lambda s, b, h, i, j: s - slope[h] * (i - j)`. Captured torch tensors may require gradients.
        mask_mod: a function (batch, head, query, key) -> bool: True if the query sees the key. It skips no tiles, so
            use `causal` and `window` if they express the same mask.
        block_mask: a mask from torch's `create_block_mask`, instead of `mask_mod`, `causal` and `window`: masked tiles
            are not read, and its `mask_mod` is applied in partial tiles. It must be made for the lengths of q and k.
            Blocks may have any size; the size of the kernel's tiles is best (`config.tile_m` x `config.tile_n`).
        layout: of q, k, v and the result: "bhsd", torch's, or "bshd", flash-attn's (B, S, H, D).
        fast_accumulation: for e4m3, let the tensor core add up P V of all tiles, as `use_fast_accum` of
            torch._scaled_mm does: faster, but if the values do not average zero, its 13 bits lose precision with
            thousands of keys. Otherwise each tile's product is added in f32.
        return_lse: also return the log-sum-exp of the scores, (B, H, S) f32.
        out, lse: arrays for the result and the log-sum-exp.
        config: a configuration instead of the chosen one.

    A query that sees no key gets zeros, and -inf as log-sum-exp. P is rounded to the inputs' type; sums are f32.
    NaN and inf in q and k spread to the rows that see them, as in torch. If torch tensors require gradients, result and
    log-sum-exp do, too; their sums have the same order in every run, except those of captured tensors. Second
    derivatives are not available.

    Raises ArgumentError and ArgumentTypeError for invalid arguments (before any launch), CostLimitError for an
    emulation that would take too long, DriverError, CompilationError.
    """
    scales, numbers = arrays_and_numbers(q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
    tensors = {"q": q, "k": k, "v": v} | ({} if sinks is None else {"sinks": sinks}) | scales
    options = {"causal": causal, "scale": scale, "window": window, "softcap": softcap, "layout": layout,
               "fast_accumulation": fast_accumulation}  # fmt: skip
    attend = getattr(plugin_for(tuple(tensors.values()), transforms=True), "attend", None)
    functions = {"score_mod": score_mod, "mask_mod": mask_mod, "block_mask": block_mask}
    plain_call = all(function is None for function in functions.values())
    if attend is not None and not (scales or numbers):  # a gradient, autocast or a tracer
        more = {} if plain_call else functions
        return attend(**tensors, **options, **more, return_lse=return_lse, out=out, lse=lse, config=config)
    static = ("attention", causal, scale, hashed(window), softcap, layout, fast_accumulation, config,
              sinks is not None, *scales, *numbers.items())  # fmt: skip
    reading = partial(read, **options, numbers=numbers)
    if plain_call:
        return compute(tensors, reading, static, out, lse, return_lse, config)
    called = Functional(**functions, layout=layout)
    wanting = {f"`{name}`, which a function captures": x for name, x in called.captured.items()
               if wants_gradient(x) or is_transformed(x)}  # fmt: skip
    if wanting and not (scales or numbers):
        attend = plugin_for(tuple(wanting.values()), transforms=True).attend
        return attend(**tensors, **options, **functions, return_lse=return_lse, out=out, lse=lse, config=config)
    refuse_gradients(wanting)
    reading = partial(reading, **functions, contents=called.contents)
    return compute(tensors, reading, (*static, *called.static), out, lse, return_lse, config, functions=called)


def _compiled(*arrays: Any, **options: Any) -> Any:
    """What torch.compile traces instead of `attention` until the PyTorch plug-in is loaded."""
    return load_torch_plugin() and attention._torchdynamo_inline(*arrays, **options)  # type: ignore[attr-defined]


attention._torchdynamo_inline = _compiled  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Family:
    """A family of attention kernels.

    Attributes:
        config: its configurations.
        run: launches a request.
        called: the configurations' name.
        grows: the dimension of arguments that is `length` in the kernel, and may differ in a call that is otherwise the
            same.
    """

    config: type | tuple[type, ...]
    run: Callable[[Any, ArrayView, ArrayView, Any], Launched | None]
    called: str
    grows: Mapping[str, int] = field(default_factory=dict)
    length: str = ""


def compute(
    tensors: dict[str, Any], reading: Callable[[dict[str, Any]], CheckedCall], static: Any, out: Any, lse: Any,
    return_lse: bool, config: Any, family: Family | None = None, form: Any = None,
    functions: Functional | None = None,
) -> Any:  # fmt: skip
    """Repeat a cached launch, or read, check and launch the call.

    static: the cache key without the tensors; None for a call that is not cached. form: with the tensors' sizes, by
    which `LaunchCache.fresh` will find the call. functions: of scores and masks.
    """
    family = family or Family(CONFIGS, run, CALLED)
    if out is None and "sinks" in tensors:
        tensors = {**tensors, "sinks": in_f32(tensors["sinks"])}
    if (out is None) != (lse is None) and out is None:
        raise ArgumentError("`lse` comes with `out`", expected="both, out alone, or none of them")
    outs = () if out is None or lse is None else (out, lse)
    if static is not None and (outs or out is None):
        try:
            more = () if functions is None else functions.tensors(static, tensors)
            made = None if more is None else CACHE.again(static, (*tensors.values(), *more), outs, form=form)
        except TypeError:  # an unhashable argument: the checks will report it
            made = None
        if made is not None:
            return _given(made[0], made[1], return_lse)
    if config is not None and not isinstance(config, family.config):
        raise ArgumentTypeError("config= is not a configuration of attention", expected=family.called, got=config)
    refuse_gradients(tensors)
    request = reading(tensors)
    model = request.views["q"]
    result = new_array(model, request.shape, request.of.out_dtype) if out is None else out
    logarithms = new_array(model, request.lse_shape, f32) if lse is None else lse
    apart = dict(request.views)
    for name, given, shape, dtype in (
        ("out", out, request.shape, request.of.out_dtype),
        ("lse", lse, request.lse_shape, f32),
    ):
        if given is not None:
            checked = check_output(view(given, name), name, shape, dtype)
            check_apart(checked, name, apart.items())
            apart[name] = checked
    target, sums = outputs(request, result, logarithms)
    launched = family.run(request, target, sums, config)
    if launched is not None and static is not None:
        outs_by_name = {"out": result, "lse": logarithms}
        if functions is not None:
            tensors = functions.launched(static, tensors, request, config, launched)
        CACHE.remember(static, tensors, outs_by_name, [launched], grows=family.grows, length=family.length)
    if out is None:
        result = given_back(result, [model])
    if lse is None:
        logarithms = given_back(logarithms, [model])
    return _given(result, logarithms, return_lse)


def hashed(window: Any) -> Any:
    return tuple(window) if isinstance(window, list) else window


def _given(out: Any, lse: Any, return_lse: bool) -> Any:
    return (out, lse) if return_lse else out


def outputs(request: CheckedCall, out: Any, lse: Any) -> tuple[ArrayView, ArrayView]:
    """Return views of the result, in the kernel's layout, and of the log-sum-exp."""
    given = replace(view(out, "out"), writable=True)
    sums = replace(view(lse, "lse"), writable=True)
    if not sums.contiguous:
        raise ArgumentError(
            "`lse` is not contiguous", expected="rows without gaps", got=sums.strides, code="wrong-layout"
        )
    target = plain(request.seen(given))
    if target.size and not addressable(target):
        raise ArgumentError(
            "TMA cannot store to `out`", expected="a contiguous head dimension, other strides multiples of 16 bytes",
            got=f"strides {given.strides} bytes",
        )  # fmt: skip
    return target, sums


# -- one launch ------------------------------------------------------------------------------------------------------


def run(
    request: Request, target: ArrayView, sums: ArrayView, config: AnyConfig | None = None,
    counter: ArrayView | None = None,
) -> Launched | None:  # fmt: skip
    """Launch, and return what repeats the launch: on a GPU, if nothing was copied, else None.

    counter: the work queue's counter, set to 0; the library's own by default.
    """
    q = request.views["q"]
    if request.of.varlen and 0 in request.views["cu_seqlens_q"].shape:  # no sequences
        return None
    if 0 in (target.size, request.keys):
        without_keys(request, target, sums)
        return None
    if q.device == "cpu":
        refuse_long_emulation(request)
    gpu = machine_for(q, config)
    config = configured(request, config, gpu)
    program = program_of(request.of, config, None if q.device == "cpu" else settings.cache_dir)
    outs: dict[str, ArrayView] = {"out": target, "lse": sums}
    owned: dict[str, ArrayView] = {}
    (owned if counter is None else outs)["counter"] = _counter(q) if counter is None else counter
    if request.block_mask is not None:
        outs |= lists_of(request.block_mask, (config.tile_m, config.tile_n), q, request.keys)
    if not isinstance(config, BlackwellConfig):
        return launch_bound(program, request, outs, owned)
    warn_unproven(Unproven())
    launched = launch_bound(program, request, outs, owned, emulating(gpu))
    check_first(request, config, target, sums)
    return launched


def check_machine(request: CheckedCall) -> None:
    """Raise if there is no kernel for the GPU, or if the emulator would take too long."""
    q = request.views["q"]
    if q.device == "cpu":
        refuse_long_emulation(request)
    check_gpu(EMULATED if q.device == "cpu" else gpu_of(q.index), "attention", HOPPER)


def launch_bound(
    program: Program, request: CheckedCall, outs: dict[str, ArrayView], owned: dict[str, ArrayView],
    machine: Machine | None = None,
) -> Launched | None:  # fmt: skip
    """Launch on the request's arrays, `outs`, and library-owned memory; None if the launch cannot be repeated.

    machine: the emulated machine, a small H200 by default.
    """
    arrays = {name: readable(array, name) for name, array in request.views.items()} | outs | owned
    names = tuple(ARGUMENT_OF.get(spec.name, spec.name) for spec in program.arrays)
    bound = Binding(
        tuple(arrays[name] for name in names), tuple(None if name in owned else name for name in names), request.numbers
    )
    on_cpu = request.views["q"].device == "cpu"
    with naming_captured(request.of):
        launched = launch(program, bound, machine=(machine or H200(sms=EMULATED_SMS)) if on_cpu else None)
    if launched is not None:
        warn_spills(launched.launch.kernel.resources.spill_stores, program)
    copied = any(arrays[name].pointer != given.pointer for name, given in request.views.items())
    return None if copied else launched


def _counter(model: ArrayView) -> ArrayView:
    """Return the stream's work queue counter, which is 0 between launches."""
    return of_stream("attention", (1,), u32, model)


def without_keys(request: CheckedCall, target: ArrayView, sums: ArrayView) -> None:
    """Fill rows that see no key: zeros, and as log-sum-exp -inf or the sink."""
    fill(target, number=0.0)
    fill(sums, number=float("-inf"))
    if "sinks" in request.views and sums.size:
        sinks = readable(request.views["sinks"], "sinks")
        copy_into(sums, restrided(sinks, sums.shape, (0, sinks.strides[0], 0)))


def refuse_long_emulation(request: CheckedCall) -> None:
    seconds, limit = request.flops / EMULATED_FLOPS, settings.emulator.limit_s
    if seconds > limit:
        batch, queries, heads, dim = request.views["q"].shape
        raise CostLimitError(
            f"emulating attention would take about {spoken(seconds)}",
            expected=f"at most {spoken(limit)} (config.emulator.limit_s)",
            got=f"{batch} x {heads} heads x {queries} queries x {dim}, {counted(request.keys, 'key')}",
            hint=f"use smaller arrays or a GPU, or allow it: {allow(seconds)}",
        )


# -- arrays that TMA can address ---------------------------------------------------------------------------------------


VECTORS = {
    "sinks": f32, "cu_seqlens_q": s32, "cu_seqlens_k": s32, "lengths": s32, "table": s32, "q_scale": f32,
    "k_scale": f32, "v_scale": f32,
}  # fmt: skip
"""Arguments that the kernel reads element by element, with their types."""


def plain(array: ArrayView) -> ArrayView:
    """Replace the strides of dimensions of size 1 by ones that TMA accepts."""
    width = array.dtype.bytes
    strides = list(array.strides)
    for axis in range(len(strides) - 1):
        if array.shape[axis] == 1:
            strides[axis] = -(-array.shape[-1] * width // TMA_BYTES) * TMA_BYTES
    if array.shape[-1] == 1:
        strides[-1] = width
    return array if tuple(strides) == array.strides else restrided(array, array.shape, strides)


def addressable(array: ArrayView) -> bool:
    """True if TMA can read or write the array in place (PTX ISA 5.5.2)."""
    outer = all(step > 0 and step % TMA_BYTES == 0 for step in array.strides[:-1])
    return outer and array.strides[-1] == array.dtype.bytes and array.pointer % TMA_BYTES == 0


def readable(array: ArrayView, name: str) -> ArrayView:
    """Return an operand that the kernel can read, copied if necessary."""
    wanted = VECTORS.get(name, array.dtype)
    if name in VECTORS:
        if array.dtype is wanted and array.contiguous:
            return array
    elif name.startswith(("score_", "mask_")):
        return array
    else:
        array = plain(array)
        if addressable(array):
            return array
        if warned().first(("attention", name, array.strides)):
            warnings.warn(
                f"attention copies `{name}`: its rows are not at distances that TMA takes; got {array.describe()}, "
                f"strides {array.strides} bytes. Strides that are multiples of 16 bytes avoid it.",
                CopyWarning,
                stacklevel=outside(),
            )
    copy = replace(view(new_array(array, array.shape, wanted), name), writable=True)
    copy_into(copy, array)
    return copy
