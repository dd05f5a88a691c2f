"""`ModelTable`: which models a server has, by the names that requests use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.runtime.engine import Engine
from optc.runtime.receipts.origin import origin_of
from optc.runtime.receipts.receipt import NOWHERE, Origin
from optc.runtime.speech.transcriber import Transcriber
from optc.runtime.tensors.engine import TensorEngine
from optc.runtime.text.tokenizer import Tokenizer
from optc.serve.api_errors import APIError
from optc.serve.tensors.served import OWNER, ServedTensors


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
    load: Callable[[], Engine | TensorEngine | Transcriber]
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

    The event loop reads it while a thread changes it: what it gives is never changed, but replaced.

    Args:
        sources: What to load, the default first.
        opener: Loads further artifacts; None loads none.
        places: Calls that may wait for each model of named tensors; None is any number.

    Raises:
        InputError: Two have the same name, or there are none.

    Attributes:
        engines: Those of decoders, by the names of their models.
        tensors: Models of named tensors, by name.
        loaded: All sources have been loaded.
        changing: Held by who adds or removes models while the server serves.
    """

    def __init__(
        self,
        sources: Sequence[ModelSource],
        opener: Callable[[Path], Engine | TensorEngine] | None = None,
        places: int | None = None,
    ) -> None:
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
        self.tensors: dict[str, ServedTensors] = {}
        self.opener = opener
        self._places = places
        self.loaded = False
        self.changing = asyncio.Lock()

    @property
    def models(self) -> Mapping[str, ServedModel]:
        """Those of decoders that are there, by name, the default first."""
        return self._models

    @property
    def listed(self) -> Sequence[ServedModel | ServedTensors]:
        """All models that requests may name."""
        return (*self._models.values(), *self.tensors.values())

    def load(self) -> None:
        """Load all models, one after the other.

        Raises:
            OptcError: One cannot be loaded; the others are closed.
        """
        try:
            for source in self._sources:
                self.add(source)
        except BaseException:
            self.close()
            raise
        self.loaded = True

    def any(self, name: str) -> ServedModel | ServedTensors:
        """The model of a name.

        Raises:
            APIError: There is none of that name.
        """
        return self._found(name, self._models)

    def find(self, name: str | None) -> ServedModel:
        """The decoder of a name; without one the only one.

        Raises:
            APIError: There is none of that name, or several and no name.
        """
        found = self._found(name, self._models)
        if isinstance(found, ServedTensors):
            message = f"the model {found.name!r} writes no text; ask {found.routes}"
            raise APIError(400, message, "model")
        return found

    def find_tensors(self, name: str | None) -> ServedTensors:
        """The model of named tensors of a name; without one the only one.

        Raises:
            APIError: There is none of that name, or several and no name.
        """
        found = self._found(name, self.tensors)
        if isinstance(found, ServedModel):
            message = f"the model {found.name!r} writes texts; ask /v1/completions"
            raise APIError(400, message, "model")
        return found

    def _found(
        self, name: str | None, meant: Mapping[str, ServedModel | ServedTensors]
    ) -> ServedModel | ServedTensors:
        if name is None and len(meant) == 1:
            return next(iter(meant.values()))
        if not name:
            raise APIError(400, f"name a model: {self._names()}", "model")
        found = self._models.get(name) or self.tensors.get(name)
        if found is None:
            message = f"the model {name[:256]!r} does not exist; there are: {self._names()}"
            raise APIError(404, message, "model", "model_not_found")
        return found

    def close(self) -> None:
        """Close all engines."""
        for engine in self.engines.values():
            engine.close()
        for model in self.tensors.values():
            model.close()

    def add(self, source: ModelSource) -> None:
        """Load a model and its adapters.

        Raises:
            OptcError: It cannot be loaded.
        """
        engine, created = source.load(), int(time.time())
        if isinstance(engine, TensorEngine | Transcriber):
            self._add_tensors(source, engine, created)
            return
        self.engines = {**self.engines, source.name: engine}
        origin = origin_of(engine)
        print_of = _fingerprint(origin)
        base = ServedModel(source.name, source.name, engine, None, created, print_of, origin)
        self._models = {**self._models, source.name: base}
        for one in source.adapters:
            self.add_adapter(base, one)

    def swap(self, model: ServedModel, path: Path) -> None:
        """Compute a model and its adapters with the weights of another artifact.

        Raises:
            OptcError: That cannot be; the old weights stay.
        """
        model.engine.swap(path)
        origin = origin_of(model.engine)
        print_of = _fingerprint(origin)
        self._models = {
            name: replace(one, origin=origin, fingerprint=print_of)
            if one.engine is model.engine
            else one
            for name, one in self._models.items()
        }

    def _add_tensors(
        self, source: ModelSource, engine: TensorEngine | Transcriber, created: int
    ) -> None:
        if source.adapters:
            engine.close()
            adapter = source.adapters[0].name
            raise InputError("adapters are for decoders", where=f"adapter {adapter!r}")
        model = ServedTensors.of(source.name, engine, self._places, created)
        self.tensors = {**self.tensors, source.name: model}

    def add_adapter(self, base: ServedModel, source: AdapterSource) -> None:
        """Load an adapter of a model.

        Raises:
            OptcError: It cannot be loaded.
        """
        base.engine.load_adapter(source.name, source.folder)
        adapted = replace(base, name=source.name, adapter=source.name, created=int(time.time()))
        self._models = {**self._models, source.name: adapted}

    def remove(self, name: str) -> Engine:
        """Forget a model and its adapters. Gives its engine, which runs on."""
        engine = self.engines[name]
        self.engines = {key: one for key, one in self.engines.items() if key != name}
        self._models = {key: one for key, one in self._models.items() if one.engine is not engine}
        return engine

    def remove_tensors(self, model: ServedTensors) -> None:
        """Forget a model of named tensors; what it computes goes on."""
        self.tensors = {key: one for key, one in self.tensors.items() if key != model.name}

    def remove_adapter(self, model: ServedModel) -> None:
        """Forget an adapter."""
        self._models = {key: one for key, one in self._models.items() if key != model.name}
        model.engine.unload_adapter(model.name)

    def _names(self) -> str:
        return ", ".join(one.name for one in self.listed)


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
