"""Refusals by a model's config.json and a recipe alone, before anything is imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.engines import EngineTarget, engine_name
from optc.errors import InputError, UnsupportedError
from optc.importer.json_file import read_object
from optc.importer.text_model.rope import lengthened
from optc.importer.text_model.stated import decoder_part
from optc.system.hardware.machine import this_machine


def check_config(source: Path, max_context: int | None, self_draft: int | str | None) -> None:
    """Check what is asked for against config.json, as far as that states it; the importer, which
    knows every family's own names, has the last word.

    Raises:
        InputError: The model's context is shorter than ``max_context``, or it has no more than
            ``self_draft`` layers.
    """
    config = _config(source)
    context, layers = (
        _number(config, key) for key in ("max_position_embeddings", "num_hidden_layers")
    )
    if max_context is not None and context is not None:
        part = decoder_part(config)
        rope = part.get("rope_parameters") or part.get("rope_scaling")
        original = part.get("original_max_position_embeddings")
        check_context(max_context, lengthened(context, rope, original))
    if isinstance(self_draft, int) and layers is not None:
        check_layers(self_draft, layers)


def check_context(wanted: int, model_context: int) -> None:
    """Refuse a context that is longer than the model's own, or holds no token behind another."""
    if wanted < 2:
        raise InputError(
            f"{wanted} tokens leave no room for an answer", where="--max-context", hint="at least 2"
        )
    if wanted > model_context:
        raise InputError(
            f"{wanted} tokens exceed the model's own context of {model_context}",
            where="--max-context",
            hint=f"at most {model_context}",
        )


def check_layers(count: int, layers: int) -> None:
    """Refuse to draft with none or with all of a model's layers."""
    most = layers - 1
    if not 1 <= count <= most:
        raise InputError(
            f"{count} of {layers} layers",
            where="--self-draft",
            hint=f"1 to {most}" if most else "a model of one layer has no first layers",
        )


def check_additions(recipe: Recipe, engines: Sequence[EngineTarget]) -> None:
    """Check that all engines have code for LoRA adapters and Medusa heads, where they are wanted.

    Raises:
        UnsupportedError: One has not; says why.
    """
    wanted = [(one.adds, one.added_by) for one in recipe.pipeline.passes if one.adds]
    if not wanted:
        return
    import onnx_ir as ir

    from optc.ir.functions import DOMAIN

    for operator, option in wanted:
        for engine in engines:
            found = engine.steps.supports(ir.Node(DOMAIN, operator, []), engine.target)
            if found.how == "unsupported":
                raise UnsupportedError(
                    f"{engine_name(engine.backend, engine.target)}: {found.reason}",
                    where=option,
                    hint="leave it or that engine out",
                )


def check_measurable(recipe: Recipe, engines: Sequence[EngineTarget]) -> None:
    """Check that this machine runs every engine, and so can measure its gates.

    Raises:
        InputError: It does not run one, and some gate has a bound.
    """
    judged = [name for name, bound in recipe.gates.items() if bound is not None]
    for engine in engines:
        reason = this_machine().misfit(engine.target)
        if reason and judged:
            raise InputError(
                f"the gates of {engine_name(engine.backend, engine.target)} cannot be measured "
                f"here: {reason}",
                where="gates",
                hint="--allow-unmeasured lets such engines through, --no-gates measures nothing",
            )


def _config(source: Path) -> dict[str, Any]:
    """A model's config.json; empty where the importer will say what is wrong with it."""
    try:
        return read_object(source / "config.json")
    except InputError:
        return {}


def _number(config: dict[str, Any], key: str) -> int | None:
    """A number of the text model, which multimodal configs hold apart."""
    value = decoder_part(config).get(key)
    return value if isinstance(value, int) else None
