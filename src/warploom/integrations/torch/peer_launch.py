"""PyTorch: launch a product that communicates: check its arguments, allocate its memory, choose its kernel.

`distributed` has the public functions and the operators of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ...collective.reduce.peers import FORMS
from ...collective.tile import timeout_record
from ...collective.tile.peer_signals import STATE_WORDS
from ...errors import ArgumentError, ArgumentTypeError
from ...isa import dtypes
from ...kernels.hopper import copied_rows, gemm_all_gather, gemm_all_reduce, gemm_reduce_scatter, ranked_tile
from ...kernels.hopper.description import Config, Product
from ...kernels.hopper.free_tile_config import FreeTileConfig
from ...settings import GATHERS
from ...settings import config as settings
from . import peer_collectives as collectives
from . import peer_launch_cache
from .arguments import traced
from .copy_engines import Transfers
from .peer_epilogue import PLAIN, PeerEpilogue
from .symmetric import Group, MemorySizes, group_of, rows_of_all
from .tracing import constant_result

SIXTEEN_BITS = {torch.bfloat16: dtypes.bf16, torch.float16: dtypes.f16}
EIGHT_BITS = {torch.float8_e4m3fn: dtypes.e4m3, torch.float8_e5m2: dtypes.e5m2}
TYPES = {**SIXTEEN_BITS, **EIGHT_BITS}
_VECTOR_BYTES = 16
_PLAIN = {Tensor, torch.nn.Parameter, type(None)}
"""Argument types without a `__torch_dispatch__` or `__torch_function__` of their own."""


def all_gather_matmul(
    known: Group, a: Tensor, b: Tensor, out: Tensor | None = None, *, end: PeerEpilogue = PLAIN,
    kept: Tensor | None = None,
    by: str | None = None,
) -> Tensor:  # fmt: skip
    """The rows of A of all ranks times this rank's B. kept: (M, K), for the gathered rows; by: one of `GATHERS`;
    None: by the settings, or else chosen."""
    by = settings.peer_gather if by is None else by
    if by is not None:
        known_form(by, GATHERS)
    form, tensors = ("all_gather_matmul", by, end.out_dtype), (a, b, *end.tensors(), kept)
    found, out = peer_launch_cache.again(known, form, tensors, out)
    if found is not None:
        return found
    product, weight = _operands(a, b, end, either=True)
    ranks, (rows, depth), columns = known.ranks, a.shape, b.shape[1]
    by = by or copied_rows.form_of(ranks, rows, columns, depth)
    fusion, replicated = end.fusion(a, b, rows, ranks * rows)
    travel = fusion.scales == "row" and not replicated

    def wanted() -> MemorySizes:
        counters = gemm_all_gather.counters(rows, ranks, config, by) if plan is None else plan.counters
        of_rank = (counters - ranks) // ranks
        return MemorySizes(
            (ranks, rows, depth), a.dtype, counters, STATE_WORDS, _record(config, a.device),
            lambda index: index if index < ranks else (index - ranks) // of_rank, ranks,
            (((ranks, rows), torch.float32),) if travel else (),
        )  # fmt: skip

    call = ("all_gather_matmul", rows, depth, columns, str(a.dtype), product.b_major, *end.name(), by)
    result = result_of(out, (ranks * rows, columns), a, end.out(a))
    if not result.numel():
        known.meet(call, a.device)
        if kept is not None and kept.numel():  # B has no columns
            kept.copy_(rows_of_all(a.detach(), known.name))
        return result
    if by_collectives(known, a):
        collectives.meet(known, call)
        return collectives.all_gather_matmul(known, a, b, end, result, kept, travel=travel)
    sms = sms_of(a.device)
    config = ranked_tile.choose(rows, columns, ranks, sms, slots=by == "tma", b_major=product.b_major)
    plan = None
    if by == "copy":
        plan = copied_rows.choose(ranks, rows, depth * a.element_size(), columns, config, sms)
    exchange = known.exchange(call, a.device, wanted)
    kernel = gemm_all_gather.build(
        ranks, product, config, fusion=fusion, replicated=replicated, keep=kept is not None, by=by
    )
    of_end = end.arguments((ranks, rows) if replicated else (-1,))
    more = [*exchange.more, *of_end]
    if kept is not None:
        more.append(kept.view(ranks, rows, depth))
    given = (a.detach()[None], weight.detach(), *exchange.arguments(), *more, known.rank)
    into = result.detach().view(ranks, rows, columns)
    if plan is None:
        kernel(*given, out=into)
        peer_launch_cache.remember(known, form, tensors, result, (kernel, given, into), exchange)
        return result
    transfers = known.transfers.get((a.device, call))
    if transfers is None:
        transfers = Transfers(known.rank, plan, exchange, a.device, travel=travel)
        known.transfers[a.device, call] = transfers
    sources = a.detach(), of_end[0] if travel else None
    given = (*given, plan.tiles_of_block, plan.k_tiles_of_chunk)
    transfers.begin(*sources)
    kernel(*given, out=into)
    transfers.end(*sources)
    launched, addresses = (kernel, given, into), transfers.addresses(*sources)
    peer_launch_cache.remember(known, form, tensors, result, launched, exchange, transfers, addresses)
    return result


def matmul_reduce_scatter(
    known: Group, a: Tensor, b: Tensor, out: Tensor | None = None, *, end: PeerEpilogue = PLAIN, mean: bool = False
) -> Tensor:
    """This rank's rows of the sum over all ranks of A B, or of the mean."""
    form, tensors = ("matmul_reduce_scatter", end.out_dtype, mean), (a, b, *end.tensors())
    found, out = peer_launch_cache.again(known, form, tensors, out)
    if found is not None:
        return found
    product, weight = _operands(a, b, end, either=True)
    ranks = known.ranks
    if a.shape[0] % ranks:
        raise ArgumentError(
            "the rows of `a` cannot be scattered evenly", expected=f"a multiple of {ranks}, the ranks of the group",
            got=a.shape[0], code="wrong-shape",
        )  # fmt: skip
    rows, columns = a.shape[0] // ranks, b.shape[1]
    fusion, _ = end.fusion(a, b, a.shape[0], a.shape[0])

    def wanted() -> MemorySizes:
        counters = gemm_reduce_scatter.counters(rows, columns, ranks, config)
        return MemorySizes(
            (ranks, rows, columns), end.out(a), counters, STATE_WORDS, _record(config, a.device),
            lambda index: index if index < ranks else None, ranks,
        )  # fmt: skip

    call = ("matmul_reduce_scatter", rows, a.shape[1], columns, str(a.dtype), product.b_major, *end.name(), mean)
    result = result_of(out, (rows, columns), a, end.out(a))
    if not result.numel():
        known.meet(call, a.device)
        return result
    if by_collectives(known, a):
        collectives.meet(known, call)
        return collectives.matmul_reduce_scatter(known, a, b, end, result, mean=mean)
    config = ranked_tile.choose(rows, columns, ranks, sms_of(a.device), staged=True, b_major=product.b_major)
    exchange = known.exchange(call, a.device, wanted)
    kernel = gemm_reduce_scatter.build(ranks, product, config, fusion, mean=mean)
    more = end.arguments((ranks, rows))
    given = (a.detach(), weight.detach(), *exchange.arguments(), *more, known.rank)
    into = result.detach()
    kernel(*given, out=into)
    peer_launch_cache.remember(known, form, tensors, result, (kernel, given, into), exchange)
    return result


def matmul_all_reduce(
    known: Group, a: Tensor, b: Tensor, out: Tensor | None = None, config: FreeTileConfig | None = None,
    end: PeerEpilogue = PLAIN, by: str | None = None,
) -> Tensor:  # fmt: skip
    """The sum over all ranks of A B, on every rank. end: scales, if any; no bias. by: one of `FORMS`; None: chosen by
    the sizes."""
    if by is not None:
        known_form(by, FORMS)
    if config is not None and not isinstance(config, FreeTileConfig):
        raise ArgumentTypeError("`config` is not a tile of few rows", expected="a FreeTileConfig", got=config)
    form, tensors = ("matmul_all_reduce", config, by, end.out_dtype), (a, b, *end.tensors())
    found, out = peer_launch_cache.again(known, form, tensors, out)
    if found is not None:
        return found
    product, weight = _operands(a, b, end)
    fusion, _ = end.fusion(a, b, a.shape[0], a.shape[0])
    assert end.bias is None
    (rows, depth), columns, ranks = a.shape, weight.shape[0], known.ranks
    result = result_of(out, (rows, columns), a, end.out(a))
    if not result.numel():
        known.meet(("matmul_all_reduce", rows, depth, columns), a.device)
        return result
    if by_collectives(known, a):
        types, tile = str((a.dtype, b.dtype)), "" if config is None else config.name()
        collectives.meet(known, ("matmul_all_reduce", rows, depth, columns, types, tile, by, *end.name()))
        return collectives.matmul_all_reduce(known, a, b, end, result)
    config = config or gemm_all_reduce.choose(rows, columns, depth, sms_of(a.device), product, fusion.scales, ranks)
    shape = by or gemm_all_reduce.form_of(rows, columns, ranks, config)

    def wanted() -> MemorySizes:
        memory = gemm_all_reduce.memory(rows, columns, ranks, config, shape)
        return MemorySizes((memory.slots,), torch.int32, 0, memory.launches, memory.record, lambda index: index % ranks)

    call = ("matmul_all_reduce", rows, depth, columns, str((a.dtype, b.dtype)), config.name(), shape, *end.name())
    exchange = known.exchange(call, a.device, wanted)
    kernel = gemm_all_reduce.build(ranks, product, config, form=shape, scales=fusion.scales)
    own = exchange.data, exchange.state, exchange.record
    given = (a.detach(), weight.detach(), *own, *end.arguments((-1,)), known.rank)
    into = result.detach()
    kernel(*given, out=into)
    peer_launch_cache.remember(known, form, tensors, result, (kernel, given, into), exchange)
    return result


LAUNCHES: dict[str, Callable[..., Tensor]] = {
    "all_gather_matmul": all_gather_matmul,
    "matmul_reduce_scatter": matmul_reduce_scatter,
    "matmul_all_reduce": matmul_all_reduce,
}
"""The launching functions by operation."""


# -- arguments -----------------------------------------------------------------------------------------------------


def ranks_of(group: Any) -> Group:
    """The ranks of a group."""
    process_group = dist.group.WORLD if group is None else group
    if isinstance(process_group, dist.ProcessGroup):  # the fast path: the group is alive and registered under its name
        known = group_of(process_group.group_name) if process_group in _members() else None
        if known is not None and known.process_group is process_group:
            return known
    if not dist.is_initialized():
        raise ArgumentError(
            "torch.distributed is not initialised", expected="init_process_group(...) before the call",
            hint="start the program with torchrun", code="peer-group",
        )  # fmt: skip
    known = group_of(_registered_name(dist.group.WORLD if group is None else group))
    if not known.lives():  # the process group was destroyed, and another one took its name
        group_of.cache_clear()
        return ranks_of(group)
    return known


@constant_result
def name_of(group: Any) -> str:
    """The name of a process group, as operators take it."""
    return ranks_of(group).name


def _registered_name(group: Any) -> str:
    """The name of a process group given as itself, by name, or as a mesh of one dimension. Raises ArgumentError."""
    if isinstance(group, DeviceMesh) and group.ndim == 1:
        group = group.get_group()
    if isinstance(group, int) and group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ArgumentError(
            "this rank is not in the group", expected="a call on the group's ranks alone",
            got=f"rank {dist.get_rank()} of all", code="peer-group",
        )  # fmt: skip
    if isinstance(group, dist.ProcessGroup) and group in _members():
        return group.group_name
    if isinstance(group, str) and group in _registered():
        return group
    raise ArgumentError(
        "this is not a process group, or one that was destroyed", code="peer-group", got=group,
        expected="a process group, the name of one (`group.group_name`), or a device mesh of one dimension",
    )  # fmt: skip


def _registered() -> set[str]:
    """The names of all process groups of which this process is a member."""
    return {each.group_name for each in _members()}


def _members() -> Mapping[Any, Any]:
    """The process groups of which this process is a member."""
    groups: Mapping[Any, Any] = dist.distributed_c10d._world.pg_map
    return groups


def by_collectives(known: Group, a: Tensor) -> bool:
    """True if the group's collectives compute the product (`collectives`) and no kernel is launched."""
    return known.ranks == 1 or a.device.type == "cpu"


def said(value: Any) -> str:
    """Describe an argument in a message, without its elements."""
    kind, shape = type(value).__name__, getattr(value, "shape", None)
    return kind if shape is None else f"{kind} of shape {tuple(shape)}"


def by_operator(*values: Any) -> bool:
    """True if a call must go through the operator: it is traced, or a tensor has a class of its own (fake, or still in
    flight from another rank). Raises ArgumentTypeError for DTensors."""
    if torch.compiler.is_compiling():
        return True
    if {type(each) for each in values} <= _PLAIN:
        return False
    tensors = [each for each in values if isinstance(each, Tensor)]
    if any(type(each).__module__ == "torch.distributed.tensor" for each in tensors):
        raise ArgumentTypeError(
            "products across GPUs take each rank's own tensors", expected="torch.Tensor", got="a DTensor",
            hint="x.to_local(), or the styles of warploom.torch.distributed in a plan for parallelize_module",
            code="mixed-tensors",
        )  # fmt: skip
    return any(traced(each) for each in tensors)


def check_device(name: str, tensor: Tensor) -> None:
    """Raise ArgumentError if a tensor is on neither a GPU nor the CPU."""
    if tensor.device.type not in ("cuda", "cpu"):
        raise ArgumentError(
            f"`{name}` is on another device", expected="a CUDA tensor of this rank's GPU, or one of the CPU",
            got=str(tensor.device), code="wrong-device",
        )  # fmt: skip


def _operands(a: Tensor, b: Tensor, end: PeerEpilogue = PLAIN, *, either: bool = False) -> tuple[Product, Tensor]:
    """The product, and B as the contiguous (N, K) weight whose transpose it is; either: B may also be contiguous
    itself, if it has 16 bits."""
    for name, tensor in (("a", a), ("b", b)):
        if not isinstance(tensor, Tensor) or tensor.ndim != 2:
            raise ArgumentTypeError(
                f"`{name}` is not a matrix", expected="a tensor of two dimensions", got=said(tensor)
            )
        check_device(name, tensor)
    if b.device != a.device:
        raise ArgumentError(
            "`a` and `b` are on different devices", expected=str(a.device), got=str(b.device), code="wrong-device"
        )
    known = EIGHT_BITS if end.scale_a is not None else SIXTEEN_BITS
    same = a.dtype is b.dtype or (a.dtype in EIGHT_BITS and not a.dtype is b.dtype is torch.float8_e5m2)
    if a.dtype not in known or b.dtype not in known or not same:
        raise ArgumentTypeError(
            "no kernel multiplies these types across GPUs",
            expected="e4m3 or e5m2 with scales" if end.scale_a is not None else "bf16 or f16, both the same",
            got=(a.dtype, b.dtype),
        )  # fmt: skip
    out = end.out(a)
    if out not in SIXTEEN_BITS:
        raise ArgumentTypeError("a product across GPUs has a 16-bit result", expected="out_dtype bf16 or f16", got=out)
    if a.shape[1] != b.shape[0]:
        raise ArgumentError(
            "the inner sizes of `a` and `b` differ", expected=f"b of shape ({a.shape[1]}, N)", got=tuple(b.shape),
            code="wrong-shape",
        )  # fmt: skip
    if not a.shape[1]:
        raise ArgumentError("a product with K = 0 cannot run across GPUs", expected="k of 1 or more", got=0,
                            code="wrong-shape")  # fmt: skip
    straight = either and a.element_size() == 2 and b.is_contiguous() and not b.mT.is_contiguous()
    weight = b if straight else b.mT
    vector = _VECTOR_BYTES // a.element_size()
    for name, tensor in (("a", a), ("b" if straight else "b.T", weight)):
        if not tensor.is_contiguous() or tensor.shape[1] % vector:
            raise ArgumentError(
                f"`{name}` is not contiguous in rows of whole 16 bytes", code="wrong-layout",
                expected=f"rows of a multiple of {vector} elements, stride 1",
                got=f"shape {tuple(tensor.shape)}, strides {tensor.stride()}",
            )  # fmt: skip
    if b.shape[1] % (_VECTOR_BYTES // 2):
        raise ArgumentError(
            "N is not a multiple of 16 bytes", expected=f"a multiple of {_VECTOR_BYTES // 2}", got=b.shape[1],
            code="wrong-layout",
        )  # fmt: skip
    return Product(TYPES[a.dtype], TYPES[b.dtype], TYPES[out], b_major="MN" if straight else "K"), weight


def result_of(out: Tensor | None, shape: tuple[int, int], like: Tensor, dtype: torch.dtype) -> Tensor:
    """`out`, checked, or a new tensor. Raises ArgumentError, ArgumentTypeError."""
    if out is None:
        return like.new_empty(shape, dtype=dtype)
    if not isinstance(out, Tensor):
        raise ArgumentTypeError("`out` is not a tensor", expected=f"a tensor of {shape}", got=out)
    fits = tuple(out.shape) == shape and out.dtype is dtype and out.is_contiguous() and out.device == like.device
    if not fits:
        raise ArgumentError(
            "`out` does not fit", expected=f"contiguous {shape} of {dtype} on {like.device}", code="wrong-shape",
            got=f"{tuple(out.shape)} {out.dtype} on {out.device}",
        )  # fmt: skip
    return out


def known_form(form: str, known: tuple[str, ...]) -> str:
    """The form of a product that the call or the settings request. Raises ArgumentError."""
    if form not in known:
        raise ArgumentError("`by` is unknown", expected=known, got=form, code="unknown-name")
    return form


def _record(config: Config, device: torch.device) -> int:
    """The words in the wait record of a kernel that runs on all multiprocessors."""
    return timeout_record.words(sms_of(device) * -(-config.threads // 32))


def sms_of(device: torch.device) -> int:
    """The number of multiprocessors of a GPU."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
