"""The class of a model that structures were taken out of, where its config can say what is left.

A config has one size for all layers. Where layers keep different ones, or lost an attention or an
MLP alone, no config of the class says it, and the export is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import EngineEntry, PassEntry, Source
from optc.errors import UnsupportedError

#: Structures that a config counts (`PassEntry.removes`).
LAYERS, HEADS, NEURONS = "layers", "heads", "neurons"
#: What a pass that takes out neurons may count beside them: layers that were fitted.
_REFITTED = "refitted"
#: Keys of configs.
_WIDTHS = ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers")
#: Lists with an entry for each layer.
_BY_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")
_LAYER = re.compile(r"(^|\.)(layers|h|blocks)\.(\d+)\.")


def pruned_source(artifact: Artifact, engine: EngineEntry, names: Iterable[str]) -> Source:
    """The compiled model, with the config of the part that is left.

    Args:
        artifact: The artifact.
        engine: Whose weights are exported.
        names: Of its weights.

    Raises:
        UnsupportedError: No config of the class can say it.
    """
    source = artifact.manifest.source
    done = {one.removes: one for one in artifact.manifest.passes if one.removes}
    if not done:
        return source
    # loads packages, for which refusals by the manifest do not wait
    from optc.importer.text_model.stated import decoder_part

    part = decoder_part(source.config)
    changes: dict[str, Any] = {}
    layers = _count(part, _LAYER_COUNTS, next(iter(done.values())).name)
    if LAYERS in done:
        kept = sorted(layer_numbers(names).values())
        if len(kept) != len(engine.spec.layers):
            raise _unequal(done[LAYERS].name, "some layers lost their attention or their MLP alone")
        changes |= {key: len(kept) for key in _LAYER_COUNTS if key in part}
        changes |= {
            key: [part[key][n] for n in kept]
            for key in _BY_LAYER
            if isinstance(part.get(key), list)
        }
        layers = len(kept)
    if HEADS in done:
        changes |= _heads(part, engine, done[HEADS].name)
    if NEURONS in done:
        changes |= _width(part, done[NEURONS], layers)
    config = dict(source.config)
    if part is source.config:
        config |= changes
    else:
        key = next(key for key, value in config.items() if value is part)
        config[key] = {**part, **changes}
    return replace(source, config=config)


def layer_numbers(names: Iterable[str]) -> dict[int, int]:
    """The numbers of layers in names of weights, by the numbers that they have once those between
    are gone."""
    found = {int(match[3]) for name in names if (match := _LAYER.search(name))}
    return dict(enumerate(sorted(found)))


def renumbered(name: str, numbers: Mapping[int, int]) -> str:
    """A weight's name in a model whose layers are numbered without gaps.

    Args:
        name: In the engine.
        numbers: From `layer_numbers`.
    """
    new = {old: index for index, old in numbers.items()}
    return _LAYER.sub(lambda match: f"{match[1]}{match[2]}.{new[int(match[3])]}.", name)


def _heads(part: Mapping[str, Any], engine: EngineEntry, name: str) -> dict[str, int]:
    kept = {layer.kv_heads for layer in engine.spec.layers}
    queries, width = part.get("num_attention_heads"), part.get("hidden_size")
    if len(kept) > 1:
        raise _unequal(name, "layers keep different numbers of heads")
    if not isinstance(queries, int) or not isinstance(width, int):
        raise _unequal(name, "the config states heads in another way")
    left = next(iter(kept))
    shared = queries // int(part.get("num_key_value_heads") or queries)
    size = part.get("head_dim") or width // queries
    return {
        "num_attention_heads": left * shared,
        "num_key_value_heads": left,
        "head_dim": int(size),
    }


def _width(part: Mapping[str, Any], done: PassEntry, layers: int) -> dict[str, int]:
    """All MLPs keep the same share: of equal ones as many neurons."""
    removed = done.details.get(NEURONS, 0)
    keys = [key for key in _WIDTHS if isinstance(part.get(key), int)]
    if done.details.keys() - {NEURONS, _REFITTED} or len(keys) != 1 or removed % layers:
        raise _unequal(done.name, "MLPs keep different numbers of neurons")
    return {keys[0]: part[keys[0]] - removed // layers}


def _count(part: Mapping[str, Any], keys: Iterable[str], name: str) -> int:
    found = next((part[key] for key in keys if isinstance(part.get(key), int)), None)
    if found is None:
        raise _unequal(name, "the config states layers in another way")
    return int(found)


def _unequal(name: str, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"no config of the model's class can say what is left: {reason}",
        where=f"pass {name}",
        hint="prune whole layers (units: layers), or the same number in each layer",
    )
