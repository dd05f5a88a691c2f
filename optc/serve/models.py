"""`ModelTable`: which models a server has, by the names that requests use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.receipts.origin import origin_of
from optc.receipts.receipt import NOWHERE, Origin
from optc.runtime.engine import Engine
from optc.runtime.text.tokenizer import Tokenizer
from optc.serve.api_errors import APIError

#: Who made a model, for clients that ask.
OWNER = "optc"


@dataclass(frozen=True)
class AdapterSource:
    """A LoRA adapter to serve.

    Attributes:
        name: What requests call it, as a model.
        folder: As PEFT saved it.
    """

    name: str
    folder: Path


@dataclass(frozen=True)
class ModelSource:
    """A model to serve.

    Attributes:
        name: What requests call it.
        load: Gives its engine; called once, on a thread.
        adapters: Its adapters.
    """

    name: str
    load: Callable[[], Engine]
    adapters: tuple[AdapterSource, ...] = ()


@dataclass(frozen=True)
class ServedModel:
    """A model that requests may name: an engine, or an adapter of one.

    Attributes:
        name: What requests call it.
        base: Name of the model that its engine is of.
        engine: That computes it.
        adapter: Name of the adapter; None is the model itself.
        created: When it was loaded, in seconds since 1970.
        fingerprint: Of what computes it, for ``system_fingerprint``; None is unknown.
        origin: What its answers follow from, for receipts.
    """

    name: str
    base: str
    engine: Engine
    adapter: str | None = None
    created: int = 0
    fingerprint: str | None = None
    origin: Origin = NOWHERE

    def to_json(self) -> dict[str, Any]:
        """An entry of ``/v1/models``."""
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": OWNER,
            "root": self.base,
            "parent": self.base if self.adapter is not None else None,
            "max_model_len": self.engine.max_context,
        }


class ModelTable:
    """The models of a server.

    Args:
        sources: What to load, the default first.

    Raises:
        InputError: Two have the same name, or there are none.
    """

    def __init__(self, sources: Sequence[ModelSource]) -> None:
        names = [name for one in sources for name in (one.name, *(a.name for a in one.adapters))]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not names:
            raise InputError(
                f"two models are called {twice[0]!r}" if twice else "there is no model to serve",
                where="optc serve",
                hint="--model-name NAME, once for each artifact, names them",
            )
        self._sources = tuple(sources)
        self._models: dict[str, ServedModel] = {}
        self.engines: dict[str, Engine] = {}

    @property
    def loaded(self) -> bool:
        """All models are there."""
        return len(self.engines) == len(self._sources)

    @property
    def models(self) -> Mapping[str, ServedModel]:
        """Those that are there, by name, the default first."""
        return self._models

    def load(self) -> None:
        """Load all models, one after the other.

        Raises:
            OptcError: One cannot be loaded; the others are closed.
        """
        try:
            for source in self._sources:
                self._load(source)
        except BaseException:
            self.close()
            raise

    def find(self, name: str | None) -> ServedModel:
        """The model of a name; without one the only one.

        Raises:
            APIError: There is none of that name, or several and no name.
        """
        if name is None and len(self._models) == 1:
            return next(iter(self._models.values()))
        if not name:
            raise APIError(400, f"name a model: {self._names()}", "model")
        found = self._models.get(name)
        if found is None:
            message = f"the model {name[:256]!r} does not exist; there are: {self._names()}"
            raise APIError(404, message, "model", "model_not_found")
        return found

    def close(self) -> None:
        """Close all engines."""
        for engine in self.engines.values():
            engine.close()

    def _load(self, source: ModelSource) -> None:
        engine = source.load()
        self.engines[source.name] = engine
        created, origin = int(time.time()), origin_of(engine)
        print_of = _fingerprint(origin)
        base = ServedModel(source.name, source.name, engine, None, created, print_of, origin)
        self._models[source.name] = base
        for one in source.adapters:
            engine.load_adapter(one.name, one.folder)
            self._models[one.name] = ServedModel(
                one.name, source.name, engine, one.name, created, print_of, origin
            )

    def _names(self) -> str:
        return ", ".join(self._models)


def check_model(model: ServedModel) -> Tokenizer:
    """The tokenizer of a model that holds conversations.

    Raises:
        APIError: It has no chat template.
    """
    tokenizer = model.engine.tokenizer
    if tokenizer is None or not tokenizer.chat_template:
        message = f"the model {model.name!r} has no chat template; use /v1/completions"
        raise APIError(400, message, "model")
    return tokenizer


def _fingerprint(origin: Origin) -> str | None:
    """Tells engines apart whose answers to the same seed may differ."""
    return f"optc-{origin.artifact[:12]}-{origin.engine}" if origin.artifact else None
