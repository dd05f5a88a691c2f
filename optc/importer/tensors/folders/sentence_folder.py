"""Folders of sentence-transformers: their encoder, and what they do before and behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from optc.errors import InputError, UnsupportedError
from optc.importer.json_file import read_object
from optc.importer.tensors.folders.pooling import POOLINGS, Length1, Pooled
from optc.system.foreign.errors import foreign_errors
from optc.system.sources.encoder_folder import MODULES, listed_modules

_CONFIG, _FOLDER_CONFIG = "config.json", "config_sentence_transformers.json"
#: Where a Transformer states its own settings, by the age of the folder.
_SETTINGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
#: The prefix of flags of poolings, which newer folders state by name.
_FLAG = "pooling_mode_"
#: Names of flags that are not those of poolings.
_FLAGS = {
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "weightedmean_tokens": "weightedmean",
}
_VECTORS = "sentence_embedding"
_WEIGHTS, _PICKLED = "model.safetensors", "pytorch_model.bin"


@dataclass(frozen=True)
class SentenceFolder:
    """The statements of a folder of sentence-transformers.

    Attributes:
        encoder: The folder of the encoder for transformers.
        modes: Poolings, by names of `POOLINGS`.
        layers: What the vectors go through then.
        most: Tokens of a text; None where nothing is stated.
        lower: Whether texts are put into small letters.
        prompt: Stands before each text.
    """

    encoder: Path
    modes: tuple[str, ...]
    layers: tuple[torch.nn.Module, ...]
    most: int | None
    lower: bool
    prompt: str

    @classmethod
    def of(cls, folder: Path) -> SentenceFolder | None:
        """The statements of a folder; None where it is not of sentence-transformers, or pools not.

        Raises:
            InputError: A file is missing or damaged.
            UnsupportedError: A module is of another kind, or does what is not known.
        """
        if not (folder / MODULES).is_file():
            return None
        (kind, encoder), *others = listed_modules(folder)
        if kind != "Transformer":
            raise _unknown(kind, folder)
        poolings = [path / _CONFIG for kind, path in others if kind == "Pooling"]
        if not poolings:
            return None
        settings = _settings(encoder)
        prompt = _prompt(folder)
        most = settings.get("max_seq_length")
        return cls(
            encoder,
            tuple(mode for file in poolings for mode in _modes(file, prompt)),
            tuple(layer for kind, path in others for layer in _layers(kind, path, folder)),
            most if isinstance(most, int) and most > 0 else None,
            bool(settings.get("do_lower_case")),
            prompt,
        )

    def load(self) -> Any:
        """The encoder without the head of its class, which sentence-transformers does not use.

        Raises:
            InputError: transformers does not read it.
            UnsupportedError: It is an encoder-decoder without a class for its encoder.
        """
        with foreign_errors(str(self.encoder), "transformers does not read it"):
            config = transformers.AutoConfig.from_pretrained(self.encoder, local_files_only=True)
            kind: Any = transformers.AutoModel
            if getattr(config, "is_encoder_decoder", False):
                name = transformers.MODEL_MAPPING[type(config)].__name__
                kind = getattr(transformers, f"{name.removesuffix('Model')}EncoderModel", None)
                if kind is None:
                    raise UnsupportedError(
                        f"transformers has no class for the encoder of {name} alone",
                        where=str(self.encoder),
                    )
            return kind.from_pretrained(
                self.encoder, dtype=torch.float32, local_files_only=True
            ).eval()

    def pooled(self, encoder: torch.nn.Module) -> Pooled:
        """The vectors of an encoder's hidden states."""
        return Pooled(encoder, self.modes, self.layers)


def _unknown(kind: str, folder: Path) -> UnsupportedError:
    return UnsupportedError(
        f"sentence-transformers' module {kind} is not known",
        where=str(folder / MODULES),
        hint=f"a Transformer, then {', '.join(['Pooling', *_LAYERS])} are",
    )


def _settings(encoder: Path) -> Mapping[str, Any]:
    file = next((encoder / name for name in _SETTINGS if (encoder / name).is_file()), None)
    settings = {} if file is None else read_object(file)
    task = settings.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise UnsupportedError(f"pools what a model for {task} gives", where=str(file))
    return settings


def _prompt(folder: Path) -> str:
    file = folder / _FOLDER_CONFIG
    stated = read_object(file) if file.is_file() else {}
    name, prompts = stated.get("default_prompt_name"), stated.get("prompts")
    if name is None:
        return ""
    prompt = prompts.get(name) if isinstance(prompts, Mapping) else None
    if not isinstance(prompt, str):
        raise InputError(f"default_prompt_name is {name!r}, and no prompt is", where=str(file))
    return prompt


def _modes(file: Path, prompt: str) -> list[str]:
    config = read_object(file)
    if prompt and config.get("include_prompt") is False:
        raise UnsupportedError(
            f"the tokens of the prompt {prompt!r} are left out of the pooling",
            where=str(file),
            hint="without default_prompt_name in the folder's config it is compiled without prompt",
        )
    stated = config.get("pooling_mode")
    if stated is None:
        flags = [key.removeprefix(_FLAG) for key in config if key.startswith(_FLAG) and config[key]]
        known = [_FLAGS.get(flag, flag) for flag in flags]
        asked = sorted(known, key=lambda one: [*POOLINGS, one].index(one)) or ["mean"]
    else:
        asked = [stated] if isinstance(stated, str) else list(stated)
    if unknown := [mode for mode in asked if mode not in POOLINGS]:
        raise UnsupportedError(
            f"pools by {', '.join(map(str, unknown))}",
            where=str(file),
            hint=f"{', '.join(POOLINGS)} are known",
        )
    return asked


def _layers(kind: str, path: Path, folder: Path) -> Iterator[torch.nn.Module]:
    if kind == "Pooling":
        return
    if kind not in _LAYERS:
        raise _unknown(kind, folder)
    file = path / _CONFIG
    config = read_object(file) if file.is_file() else {}
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, _VECTORS):
            raise UnsupportedError(f"{key} is {config[key]!r}", where=str(file))
    with foreign_errors(str(path), f"is no {kind} of sentence-transformers"):
        layer = _LAYERS[kind](config, file)
        if any(True for _ in layer.parameters()):
            layer.load_state_dict(_weights(path))
    yield layer.eval()


class _Dense(torch.nn.Module):
    """A product, a function, and what it was given beside it where that is stated."""

    def __init__(self, config: Mapping[str, Any], activation: torch.nn.Module) -> None:
        super().__init__()
        sizes = config["in_features"], config["out_features"]
        self.linear = torch.nn.Linear(*sizes, bias=config.get("bias", True))
        self.activation = activation
        self.added = bool(config.get("use_residual"))
        if self.added and sizes[0] != sizes[1]:
            self.residual = torch.nn.Linear(*sizes, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.activation(self.linear(x))
        if not self.added:
            return found
        return found + (self.residual(x) if hasattr(self, "residual") else x)


def _dense(config: Mapping[str, Any], file: Path) -> torch.nn.Module:
    stated = str(config.get("activation_function", "torch.nn.Tanh"))
    made = getattr(torch.nn, stated.rpartition(".")[2], None)
    if not stated.startswith("torch.nn.") or not (
        isinstance(made, type) and issubclass(made, torch.nn.Module)
    ):
        raise UnsupportedError(
            f"its activation is {stated}", where=str(file), hint="those of torch.nn are known"
        )
    return _Dense(config, made())


class _Norm(torch.nn.Module):
    """A layer norm under the name of its weights."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(dimension)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.norm(x)
        return found


_LAYERS: Mapping[str, Callable[[Mapping[str, Any], Path], torch.nn.Module]] = {
    "Dense": _dense,
    "LayerNorm": lambda config, _: _Norm(config["dimension"]),
    "Normalize": lambda *_: Length1(),
    "Dropout": lambda *_: torch.nn.Identity(),
}


def _weights(path: Path) -> Mapping[str, torch.Tensor]:
    if (path / _WEIGHTS).is_file():
        from safetensors.torch import load_file

        return load_file(path / _WEIGHTS)
    found: Mapping[str, torch.Tensor] = torch.load(path / _PICKLED, weights_only=True)
    return found
