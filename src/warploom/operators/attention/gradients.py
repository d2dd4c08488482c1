"""Gradients of attention: checks, and three or four launches on the arrays of an earlier forward call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import ArgumentError, ArgumentTypeError
from ...isa.dtypes import f32
from ...isa.launch import GRID_LIMITS
from ...kernels.hopper.attention_backward_reads import workspace
from ...kernels.hopper.attention_backward_rows import ROWS_PER_CTA
from ...kernels.hopper.attention_config import LOG2_E, QUERY_ROWS, Attention
from ...runtime.arrays import ArrayView, given_back, view
from ...runtime.launch_template import Launched
from ...settings import config as settings
from ..spec.gpu import HOPPER, check_gpu, emulated, gpu_of
from ..views import new_array
from ..workspace import fill
from . import gradient_cache
from .backward import CHOSEN, BackwardChoice, arrays_of, backward_choice, launch_backward, whole_blocks
from .backward_rows import launch_rows
from .calls import plain, readable, refuse_long_emulation
from .captured import captured as traced
from .functional import VISITS, Functional, in_tiles, lengths_of
from .limits import ELEMENTS, check_countable
from .mask_lists import lists_of
from .request import SIXTEEN_BITS, Request, check_types, one_batch, permuted, read, read_varlen

ENDS = {"cu_seqlens_q": "q_ends", "cu_seqlens_k": "k_ends"}
"""Maps the call's names of sequence offsets to the kernels' names."""
WRITTEN = {"q": "dQ", "k": "dK", "v": "dV"}
"""Maps the operands to the kernels' names of their gradients."""


@dataclass(frozen=True)
class Gradients:
    """The gradients, in the caller's framework and layout. `delta`: (B, H, P), row sums of dO O minus dLSE.

    `launches`: the GPU launches in order; None if they alone do not repeat the call. `written`: what they write.
    `captured`: gradients of captured arrays, by the kernels' names of these: f32, as if they were contiguous, then
    up to 3 zeros; empty if there are no scores. `lists`: of a block mask, by the kernels' names, with the queries and
    keys of their `tiles`.
    """

    dq: Any
    dk: Any
    dv: Any
    delta: Any
    launches: list[Launched] | None = None
    written: dict[str, Any] = field(default_factory=dict)
    captured: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, Any] = field(default_factory=dict)
    tiles: tuple[int, int] | None = None


def varlen_gradients(
    tensors: dict[str, Any], out: Any, lse: Any, grad: Any, lse_grad: Any = None, **options: Any
) -> Gradients:
    """Check and launch the gradients of packed sequences."""
    known = gradient_cache.known(tensors, _given(out, lse, grad, lse_grad), CHOSEN, options)
    repeated = known.again()
    if repeated is not None:
        return _repeated(repeated)
    request = differentiable(read_varlen(tensors, longest=None, **options), options["softcap"])
    found = of_request(request, tensors, out, lse, grad, lse_grad=lse_grad)
    known.remember(found.written, found.launches)
    return found


def gradients(
    tensors: dict[str, Any], out: Any, lse: Any, grad: Any, made: dict[str, ArrayView] | None = None,
    lse_grad: Any = None, choice: BackwardChoice | str = CHOSEN, captured: Sequence[str] = (), **options: Any,
) -> Gradients:  # fmt: skip
    """Check and launch the gradients.

    made: arrays for the gradients ("q", "k", "v") and for all of `arrays_of`; new arrays by default.
    choice: as in `of_request`. captured: the kernels' names of captured arrays whose gradients are wanted.
    """
    captured = sorted(captured, key=_number)
    functions = {name: options.pop(name, None) for name in ("score_mod", "mask_mod", "block_mask")}
    if functions["mask_mod"] is None:
        functions["block_mask"] = in_tiles(tensors["q"], functions["block_mask"], whole_blocks(choice))
    called = Functional(**functions, layout=options["layout"])
    seen = *called.static, lengths_of(functions["block_mask"]), *captured
    known = gradient_cache.known(tensors, _given(out, lse, grad, lse_grad), choice, options, seen, called.captured)
    lists = {} if called.mask is None or made is not None else _lists(called, known, tensors)
    repeated = known.beside(lists).again() if made is None and lists is not None else None
    if repeated is not None:
        return _repeated(repeated, captured)
    request = wanting(read(tensors, **options, **functions, contents=called.contents), captured)
    found = of_request(differentiable(request, options["softcap"]), tensors, out, lse, grad, made, lse_grad, choice)
    if made is None:
        if found.launches and found.tiles is not None:
            called.remember(known.static, tensors, found.tiles)
        known.beside(found.lists).remember(found.written, found.launches)
    return found


def _lists(called: Functional, known: gradient_cache.Known, tensors: dict[str, Any]) -> dict[str, Any] | None:
    """The lists of a block mask, if a call like this one came before; else None."""
    try:
        return called.lists(known.static, tensors, VISITS)
    except TypeError:  # an unhashable option: the checks will report it
        return None


def wanting(request: Request, captured: Sequence[str]) -> Request:
    """Return the request with the captured arrays whose gradients are wanted."""
    function = request.of.score_mod
    if function is None or not captured:
        return request
    function = replace(function, wanted=tuple(map(_number, captured)))
    for size in function.gradients().values():
        check_countable("elements in a captured array with a gradient", size, "capture parts of it", ELEMENTS)
    return replace(request, of=replace(request.of, score_mod=function))


def _number(captured: str) -> int:
    """The number of a captured array by the kernel's name of it, "score_2"."""
    return int(captured.rpartition("_")[2])


def _given(out: Any, lse: Any, grad: Any, lse_grad: Any) -> tuple[Any, ...]:
    """What follows a call's tensors, in the order of `gradient_cache.GIVEN`."""
    return out, lse, grad, *(() if lse_grad is None else (lse_grad,))


def _repeated(written: tuple[Any, ...], captured: Sequence[str] = ()) -> Gradients:
    """The gradients of a repeated call, from what its launches wrote."""
    dq, dk, dv, _, delta, *rest = written
    sums = rest[len(rest) - len(captured) :]
    return Gradients(dq, dk, dv, delta, captured=dict(zip(captured, sums, strict=True)))


def differentiable(request: Request, softcap: float | None) -> Request:
    """Return the request with its softcap as a score function, which is differentiated while it is traced."""
    if softcap is None:
        return request
    cap = float(softcap)
    function = traced(lambda score, batch, head, query, key: (score / cap).tanh() * cap, "score_mod").function
    numbers = request.numbers | {"scale": LOG2_E, "inner": request.numbers["inner"] * cap}
    return replace(request, of=replace(request.of, softcap=False, score_mod=function), numbers=numbers)


def of_request(
    request: Request, tensors: dict[str, Any], out: Any, lse: Any, grad: Any,
    made: dict[str, ArrayView] | None = None, lse_grad: Any = None, choice: BackwardChoice | str = CHOSEN,
) -> Gradients:  # fmt: skip
    """Compute the gradients of a checked call, from its results and their gradients.

    choice: the configuration; `CHOSEN` and `UNORDERED`: the choice.
    """
    given = check_results(request, tensors, out, lse, grad, lse_grad)
    result, wanted, *_ = given
    of, model = replace(request.of, sinks=False), request.views["q"]  # sinks are in lse already
    ends = {name: readable(request.views[name], name) for name in ENDS if of.varlen}
    count = ends["cu_seqlens_q"].shape[0] if ends else 0
    if isinstance(choice, str):
        choice = backward_choice(of, choice == CHOSEN)
    if made is None:
        made = _make(request, of, tensors, choice, count)
    seen = {name: _plain_gradient(request, made[name], name) for name in ("q", "k", "v")}
    nothing = 0 in (result.size, request.keys)
    if nothing or of.varlen:  # no kernel writes rows after the last sequence
        for array in seen.values():
            fill(array, number=0.0)
    if nothing or (ends and 0 in ends["cu_seqlens_q"].shape):
        return Gradients(made["q"], made["k"], made["v"], None)
    on_cpu = model.device == "cpu"
    check_differentiable("cpu" if on_cpu else "cuda", model.index)
    if on_cpu:
        refuse_long_emulation(request)
    space = {name: _writable(array, name) for name, array in made.items() if name not in WRITTEN}
    folded = folds(request, count, choice.config.padded(request.lse_shape[2], count))
    cleared = {name: array for name, array in space.items() if choice.clears(name)}
    packed = choice.config.tile_m if ends else 0
    launched = [launch_rows(request, given, space, ends.get("cu_seqlens_q"), packed, folded, cleared)]
    operands = {name: readable(request.views[name], name) for name in ("q", "k", "v")}
    arrays = {
        "Q": operands["q"], "K": operands["k"], "V": operands["v"], "dO": readable(request.seen(wanted), "grad"),
        "dQ": seen["q"], "dK": seen["k"], "dV": seen["v"], **space,
        **{ENDS[name]: array for name, array in ends.items()},
        **{name: array for name, array in request.views.items() if name.startswith(("score_", "mask_"))},
    }  # fmt: skip
    tiles, lists = (choice.config.tile_m, choice.config.tile_n), {}
    if request.block_mask is not None:
        lists = lists_of(request.block_mask, tiles, model, request.keys, VISITS[0])
    arrays |= lists
    numbers = {name: value for name, value in request.numbers.items() if name != "section"}
    numbers["factor"] = request.numbers.get("inner", request.numbers["scale"] / LOG2_E)
    folder = None if on_cpu else settings.cache_dir
    launched += launch_backward(of, choice, arrays, numbers, folded, folder)
    copied = any(operands[name].pointer != request.views[name].pointer for name in operands)
    copied = copied or arrays["dO"].pointer != wanted.pointer or not all(x.contiguous for x in given)
    launches = [each for each in launched if each is not None]
    copied = copied or any(ends[name].pointer != request.views[name].pointer for name in ends)
    repeatable = not copied and launches
    written = {WRITTEN.get(name, name): array for name, array in made.items()}
    dq, dk, dv = (given_back(made[name], [request.views["q"]]) for name in ("q", "k", "v"))
    sums = {name.removeprefix("d"): array for name, array in made.items() if name in workspace(of)}
    return Gradients(
        dq, dk, dv, _owner(space["delta"]), launches if repeatable else None, written, sums,
        {name: _owner(array) for name, array in lists.items()}, tiles if lists else None,
    )  # fmt: skip


def _make(
    request: Request, of: Attention, tensors: dict[str, Any], choice: BackwardChoice, sequences: int
) -> dict[str, Any]:  # fmt: skip
    """Make the arrays that the kernels write: the gradients, what each query needs, and the workspace."""
    model = request.views["q"]
    made = {name: new_array(model, view(tensors[name], name).shape, of.dtype) for name in ("q", "k", "v")}
    if 0 in (request.lse_shape[2], request.keys):
        return made
    shapes = arrays_of(of, choice, request.lse_shape, request.keys, sequences)
    return made | {name: new_array(model, *each) for name, each in shapes.items()}


def folds(request: Request, sequences: int, padded: int) -> bool:
    """True if heads and batches go along the grid's x, as y and z are too small. Raises ArgumentError if x is, too."""
    batch, heads, _ = request.lse_shape
    along_x, *others = GRID_LIMITS
    if max(batch, heads) <= min(others):
        return False
    blocks = max(padded // ROWS_PER_CTA, -(-request.keys // QUERY_ROWS) + sequences)
    check_countable("rows of all heads and batches", batch * heads * blocks, "divide the batch", along_x)
    return True


def check_differentiable(device: str, index: int | None) -> None:
    """Raise ArgumentError if the device's GPU, or the emulated GPU, has no backward kernels."""
    on_gpu = device == "cuda"
    check_gpu(gpu_of(index or 0) if on_gpu else emulated(), "attention's gradient", HOPPER)


def _plain_gradient(request: Request, array: Any, name: str) -> ArrayView:
    """Return the gradient of an operand in the kernels' layout."""
    given = _writable(array, name)
    return plain(one_batch(given) if request.layout == "thd" else permuted(given, request.layout))


def check_results(
    request: Request, tensors: dict[str, Any], out: Any, lse: Any, grad: Any, lse_grad: Any = None
) -> tuple[ArrayView, ...]:
    """Return views of out, grad, lse and, if given, lse_grad. Raises ArgumentError, ArgumentTypeError if they do not
    match the call."""
    check_types({name: view(tensors[name], name) for name in ("q", "k", "v")}, SIXTEEN_BITS)
    dtype = request.of.dtype
    result, wanted = view(out, "out"), view(grad, "grad")
    sums = {"lse": view(lse, "lse")} | ({} if lse_grad is None else {"lse_grad": view(lse_grad, "lse_grad")})
    for name, array in (("out", result), ("grad", wanted)):
        if array.shape != request.shape:
            raise ArgumentError(
                f"`{name}` has the wrong shape", expected=request.shape, got=array.describe(), code="wrong-shape"
            )
        if array.dtype is not dtype:
            raise ArgumentTypeError(
                f"`{name}` has the wrong type", expected=dtype, got=array.describe(), code="wrong-type"
            )
    for name, array in sums.items():
        if array.shape != request.lse_shape or array.dtype is not f32:
            raise ArgumentError(f"`{name}` has the wrong shape or type", expected=f"{request.lse_shape} f32",
                                got=array.describe(), code="wrong-shape")  # fmt: skip
    if len({(each.device, each.index) for each in (request.views["q"], result, wanted, *sums.values())}) > 1:
        raise ArgumentError(
            "the arguments of attention's gradient are on different devices", expected="one device", code="wrong-device"
        )
    return result, wanted, *sums.values()


def _owner(array: ArrayView) -> Any:
    """Return the caller's array that it views."""
    return array.owner if array.host is None else array.host


def _writable(array: Any, name: str) -> ArrayView:
    return replace(view(array, name), writable=True)
