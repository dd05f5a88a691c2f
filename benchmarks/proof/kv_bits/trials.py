"""The simulated types of keys and values, and their cost in quality."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.proof.kv_bits.codes import Array, Codes, Float32, Int8, IntegerGroups, Rounding
from benchmarks.proof.kv_bits.simulated import KVType, SimulatedKV, balance_of
from benchmarks.proof.numpy_llama import log_softmax, read_tensors
from benchmarks.quality_per_byte.evaluate import HELD_OUT_WINDOWS, windows_of
from optc.proof.gates.copy_probe import probes

#: Of the calibration text, by which keys are balanced.
BALANCED_WINDOWS = 32
#: The positions whose mean is given beside that of all.
LAST = 128
#: Contexts whose bytes are given.
CONTEXTS = (512, 4096)
#: Sizes of groups, and tokens that are kept.
GROUPS, LATEST = (16, 32, 64), (32, 64, 128)


def types() -> dict[str, KVType]:
    """By name."""
    return {"int8": KVType(Int8(), Int8()), **_by_token(), **_by_channel(), **_windowed()}


def _turned(kv: KVType) -> KVType:
    return replace(kv, turned_keys=True, turned_values=True)


def _balanced(keys: Rounding, values: Rounding) -> KVType:
    return KVType(keys, values, balanced=True)


def _int4() -> KVType:
    return _balanced(IntegerGroups(), IntegerGroups())


def _int2(group: int = 32) -> KVType:
    """Keys by channel, values by token, as KIVI has them."""
    return KVType(Codes(2, "channel", group), Codes(2, "token", group))


def _by_token() -> dict[str, KVType]:
    """Functions of one token alone."""
    int4, int3, int2 = (IntegerGroups(bits) for bits in (4, 3, 2))
    least = Codes(2, "token", 16)
    return {
        "int4": _int4(),
        "int4, values rotated": replace(_int4(), turned_values=True),
        "int4, rotated": _turned(_int4()),
        "int4 keys, int3 values, rotated": _turned(_balanced(int4, int3)),
        "int3, rotated": _turned(_balanced(int3, int3)),
        "int4 keys, int2 values, rotated": _turned(_balanced(int4, int2)),
        "int2 keys, int4 values, rotated": _turned(_balanced(int2, int4)),
        "int2 by token, groups of 16, rotated": _turned(_balanced(least, least)),
    }


def _by_channel() -> dict[str, KVType]:
    """Groups of keys over tokens; those that are not whole yet are int8."""
    found = {}
    for group in GROUPS:
        found[f"int2, groups of {group}"] = _int2(group)
        found[f"int2, groups of {group}, rotated"] = _turned(_int2(group))
    return {**found, "int3, groups of 32, rotated": _turned(KVType(Codes(3, "channel"), Codes(3)))}


def _windowed() -> dict[str, KVType]:
    """The latest tokens in more bits."""
    name, turned = "int2, groups of 32", _turned(_int2())
    found = {
        f"{name}, rotated, latest {latest} in int8": replace(turned, window=latest)
        for latest in LATEST
    }
    kept, most = f"latest {LATEST[-1]} in int8", replace(turned, window=LATEST[-1])
    int3 = _balanced(IntegerGroups(3), IntegerGroups(3))
    return found | {
        f"{name}, {kept}": replace(_int2(), window=LATEST[-1]),
        f"{name}, rotated, latest {LATEST[-1]} in float32": replace(most, kept=Float32()),
        f"{name}, rotated, {kept}, first 4 too": replace(most, sinks=4),
        f"int2 keys, groups of 32, int4 values, rotated, {kept}": replace(
            most, values=IntegerGroups()
        ),
        f"int3, rotated, {kept}": replace(_turned(int3), window=LATEST[-1]),
        f"int4, latest {LATEST[0]} in int8": replace(_int4(), window=LATEST[0]),
        f"int4, {kept}": replace(_int4(), window=LATEST[-1]),
    }


class Judge:
    """Compares a type with float32 on windows of held-out text, and on copies.

    Args:
        model: Hugging Face folder.
        text: Held-out text.
        calibration: What keys are balanced by.
        windows: How many are judged, of 512 tokens.
        balanced: How many keys are balanced by.
    """

    def __init__(
        self,
        model: Path,
        text: Path,
        calibration: Path,
        windows: int = HELD_OUT_WINDOWS,
        balanced: int = BALANCED_WINDOWS,
    ) -> None:
        self._model, self._tensors = model, read_tensors(model)
        whole = windows_of(model, text, windows)
        self._copies, self._copied = probes(whole)
        self._windows = whole[:, :-1]
        seen = windows_of(model, calibration, balanced)[:, :-1]
        self._balance = balance_of(model, self._tensors, seen)
        original = self._llama(KVType(kept=Float32()))
        self._known = [
            log_softmax(original.logits(one)).astype(np.float32) for one in self._windows
        ]
        self._known_copies = self._copy_rows(original)

    def figures(self, kv: KVType) -> dict[str, Any]:
        """The type's cost in quality, the number of windows, and its bytes."""
        llama = self._llama(kv)
        kl, same = [], []
        for known, window in zip(self._known, self._windows, strict=True):
            found = log_softmax(llama.logits(window))
            kl.append((np.exp(known) * (known - found)).sum(axis=-1))
            same.append(known.argmax(axis=-1) == found.argmax(axis=-1))
        by_row = np.array(kl)
        config = llama.config
        values = config["num_key_value_heads"] * config["head_dim"] * config["num_hidden_layers"]
        figures = {
            "kl_mean": by_row.mean(),
            f"kl_mean_last_{LAST}": by_row[:, -LAST:].mean(),
            "kl_p99": np.quantile(by_row, 0.99),
            "top1_agreement": np.mean(same),
            **self._copy_figures(llama),
        }
        return {
            "windows": len(self._windows),
            "bits_per_value": round(kv.bits_per_value, 3),
            "bytes": {str(n): round(kv.bytes_of(n, values)) for n in CONTEXTS},
            **{name: float(f"{value:.4g}") for name, value in figures.items()},
        }

    def _llama(self, kv: KVType) -> SimulatedKV:
        return SimulatedKV(self._model, kv, self._tensors, self._balance)

    def _copy_figures(self, llama: SimulatedKV) -> dict[str, float]:
        """Mean divergence of second copies, and what they cost more: less than nothing where
        rounding turns a model to old tokens more than it was trained to."""
        found = self._copy_rows(llama)
        pairs = list(zip(self._known_copies, found, strict=True))
        kl = [(np.exp(known) * (known - now)).sum(axis=-1).mean() for known, now in pairs]
        places = self._copies[:, -self._copied + 1 :, None].astype(np.int64)
        added = [
            np.take_along_axis(known - now, ids, axis=1).mean()
            for (known, now), ids in zip(pairs, places, strict=True)
        ]
        return {"copy_kl_mean": float(np.mean(kl)), "copy_nll_added": float(np.mean(added))}

    def _copy_rows(self, llama: SimulatedKV) -> list[Array]:
        """Log-probabilities of the tokens of second copies but their first."""
        return [log_softmax(llama.logits(ids[:-1]))[-self._copied + 1 :] for ids in self._copies]
