"""Passes of the group `kv_cache`."""

from __future__ import annotations

from optc.ir.pipeline.base import Pass
from optc.passes.kv_cache.allocate_kv import AllocateKV
from optc.passes.kv_cache.balance_keys import BalanceKeys
from optc.passes.kv_cache.hidden_states import HiddenStates
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.kv_cache.latent_kv import LatentKV
from optc.passes.kv_cache.medusa_heads import MedusaHeads
from optc.passes.kv_cache.slots import KVSlots

PASSES: tuple[type[Pass], ...] = (
    LatentKV,
    BalanceKeys,
    AllocateKV,
    KVCache,
    HiddenStates,
    MedusaHeads,
    KVSlots,
)
