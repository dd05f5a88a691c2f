"""Adapters as PEFT saves them, for an engine that serves some."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.edits import edit_json, edit_safetensors
from tests.fuzz.form import FileFormat, Materials, expect
from tests.fuzz.formats.safetensors import safetensors
from tests.fuzz.odd import NUMBERS

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model.l"
_PLAIN: dict[str, Any] = {"peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": ["k"]}
_KNOWN: dict[str, list[Any]] = {
    "peft_type": ["LORA", "LOHA", "IA3", "lora", None, 3],
    "r": [*NUMBERS, None, "2"],
    "lora_alpha": [*NUMBERS, None, "8"],
    "init_lora_weights": [True, False, "gaussian", "pissa", "pissa_niter_4", "olora", "x", None],
    "use_rslora": [True, False, None, "x"],
    "use_dora": [True, False, None],
    "rank_pattern": [{}, {"k": 3}, {"k": "x"}, {"(": 2}, {"k": -1}, None, []],
    "alpha_pattern": [{}, {"k": 3}, {"k": "x"}, {"(a*)*b": 2}, {"k": float("nan")}, None, []],
    "target_modules": ["all-linear", ["q", "k"], "(", None, 3, [3]],
    "modules_to_save": [None, [], ["lm_head"], "x"],
    "layers_to_transform": [None, [0], 0, "x"],
    "bias": ["none", "all", None, 3],
    "fan_in_fan_out": [True, False, None],
    "lora_bias": [True, False],
    "x": [True, {}, [1]],
}


class Adapters(FileFormat):
    """All of a folder, up to the matrices that the engine multiplies by."""

    name = "adapter"

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        pair = {f"{_PREFIX}.k.lora_A.weight": [2, 6], f"{_PREFIX}.k.lora_B.weight": [2, 2]}
        other = {f"{_PREFIX}.o.lora_A.weight": [2, 3], f"{_PREFIX}.o.lora_B.weight": [6, 2]}
        patterns = {**_PLAIN, "use_rslora": True, "rank_pattern": {"k": 2}, "bias": "none"}
        return [
            {_CONFIG: json.dumps(config).encode(), _WEIGHTS: safetensors(tensors)}
            for config in (_PLAIN, patterns)
            for tensors in (
                {name: ("F32", shape) for name, shape in pair.items()},
                {name: ("BF16", shape) for name, shape in {**pair, **other}.items()},
            )
        ]

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        if name == _CONFIG:
            return edit_json(random, data, _KNOWN)
        return edit_safetensors(random, data)

    def check(self, folder: Path) -> None:
        from optc.runtime.adapters.peft import read_peft
        from optc.runtime.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec

        parts = (AdapterPart("l.q.weight", 0, 3), AdapterPart("l.k.weight", 3, 5))
        modules = (
            AdapterModule(6, 5, parts),
            AdapterModule(3, 6, (AdapterPart("l.o.weight", 0, 6),)),
        )
        for weights in read_peft(folder, AdapterSpec(2, 16, modules)):
            if weights is not None:
                finite = np.isfinite(weights.a).all() and np.isfinite(weights.b).all()
                expect(bool(finite), "an adapter that is not finite was taken", weights)
