"""Bodies of the admin routes; those of adapters are vLLM's."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from optc.serve.bodies.base import Body

#: Of a model or an adapter, as requests call it.
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[\w.:/@+-]+$")]
#: Relative to the admin folder, or below it.
Place = Annotated[str, Field(min_length=1, max_length=4096)]


class LoadModelBody(Body):
    """An artifact to serve."""

    artifact: Place
    name: Name | None = None


class SwapModelBody(Body):
    """A model to go on with the weights of another artifact."""

    name: Name
    artifact: Place


class UnloadModelBody(Body):
    """A model to serve no more."""

    name: Name


class LoadAdapterBody(Body):
    """A LoRA adapter to serve, as PEFT saved it; ``model`` is needed where there are several."""

    lora_name: Name
    lora_path: Place
    model: Name | None = None


class UnloadAdapterBody(Body):
    """An adapter to serve no more."""

    lora_name: Name
