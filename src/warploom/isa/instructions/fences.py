"""Rows of the fences: memory order, and order between the generic, async, alias and tensormap proxies.

PTX ISA 9.7.13.4 describes what each orders. The emulator executes memory in program order, so fences affect only the
sanitizer's clocks.
"""

from __future__ import annotations

from ..effects import Choice, Fences, Order
from .schema import Form

_SECTION = "9.7.13.4"
_SCOPES = "cta cluster gpu sys"
_CLUSTER = {"cluster": ("sm_90", (7, 8))}
_MEMORY = Fences("memory", order=Order(Choice("sem", "acq_rel"), Choice("scope")))
_MEMBAR = Fences("memory", order=Order("sc", Choice("level", means={"gl": "gpu"})))
_SPACE = Choice("space", "all", {"shared::cta": "shared", "shared::cluster": "shared"})
_ALIAS = (Fences("proxy:alias"),)
_ACQUIRE, _RELEASE = Order("acquire", "cluster"), Order("release", "cluster")

FORMS: tuple[Form, ...] = (
    Form(
        "fence.membar", "membar.level", "", {"level": "cta gl sys"}, ptx=(1, 4), needs={"sys": ("sm_50", (2, 0))},
        section=_SECTION, effects=(_MEMBAR,),
    ),
    Form("fence.membar_proxy", "membar.proxy.alias", "", arch="sm_60", ptx=(7, 5), section=_SECTION, effects=_ALIAS),
    Form(
        "fence.scope", "fence{.sem}.scope", "", {"sem": "sc acq_rel acquire release", "scope": _SCOPES},
        arch="sm_70", ptx=(6, 0), needs=_CLUSTER, section=_SECTION, effects=(_MEMORY,),
    ),
    Form(
        "fence.acquire_restricted", "fence.acquire.sync_restrict::shared::cluster.cluster", "",
        arch="sm_90", ptx=(8, 6), section=_SECTION,
        effects=(Fences("memory", order=_ACQUIRE),),
    ),
    Form(
        "fence.release_restricted", "fence.release.sync_restrict::shared::cta.cluster", "",
        arch="sm_90", ptx=(8, 6), section=_SECTION,
        effects=(Fences("memory", order=_RELEASE),),
    ),
    Form(
        "fence.mbarrier_init", "fence.mbarrier_init.release.cluster", "", arch="sm_90", ptx=(8, 0), section=_SECTION,
        effects=(Fences("mbarrier_init", order=_RELEASE),),
    ),
    Form("fence.proxy_alias", "fence.proxy.alias", "", arch="sm_70", ptx=(7, 5), section=_SECTION, effects=_ALIAS),
    Form(
        "fence.proxy_async", "fence.proxy.async{.space}", "", {"space": "global shared::cta shared::cluster"},
        arch="sm_90", ptx=(8, 0), section=_SECTION,
        effects=(Fences("proxy:async", _SPACE),),
    ),
    Form(
        "fence.proxy_async_acquire", "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster", "",
        arch="sm_90", ptx=(8, 6), section=_SECTION,
        effects=(Fences("proxy:async", "shared", "acquire", _ACQUIRE),),
    ),
    Form(
        "fence.proxy_async_release", "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster", "",
        arch="sm_90", ptx=(8, 6), section=_SECTION,
        effects=(Fences("proxy:async", "shared", "release", _RELEASE),),
    ),
    Form(
        "fence.proxy_tensormap_release", "fence.proxy.tensormap::generic.release.scope", "", {"scope": _SCOPES},
        arch="sm_90", ptx=(8, 3), section=_SECTION,
        effects=(Fences("proxy:tensormap", direction="release", order=Order("release", Choice("scope"))),),
    ),
    Form(
        "fence.proxy_tensormap_acquire", "fence.proxy.tensormap::generic.acquire.scope", "[a@generic], size:imm",
        {"scope": _SCOPES}, arch="sm_90", ptx=(8, 3), section=_SECTION,
        effects=(Fences("proxy:tensormap", direction="acquire", order=Order("acquire", Choice("scope")), object="a"),),
        ranges={"size": (range(128, 129), "128")},
        example="fence.proxy.tensormap::generic.acquire.gpu [%rd0], 128;", narrow=True, reaches=(),
    ),
)  # fmt: skip
