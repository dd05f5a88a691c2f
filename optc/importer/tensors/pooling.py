"""Pooling and normalization of sentence-transformers, from their folders alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import torch

from optc.artifact.tasks.embedding import EMBEDDINGS
from optc.errors import InputError, UnsupportedError
from optc.importer.json_file import read_object
from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json
from optc.system.sources.encoder_folder import MODULES

#: Of a pooling's config, in the order in which sentence-transformers puts several side by side.
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}


class Pooled(torch.nn.Module):
    """``embeddings`` f32[batch, D] of an encoder's last hidden states (Reimers and Gurevych, 2019,
    arXiv:1908.10084)."""

    def __init__(self, encoder: torch.nn.Module, modes: list[str], *, normalize: bool) -> None:
        super().__init__()
        self.encoder, self.modes, self.normalize = encoder, modes, normalize

    @classmethod
    def of(cls, folder: Path, encoder: torch.nn.Module) -> Self | None:
        """The pooling that a folder states; None where it is none of sentence-transformers.

        Raises:
            UnsupportedError: A module is of another kind, or pools otherwise.
        """
        file = folder / MODULES
        if not file.is_file():
            return None
        modes: list[str] = []
        normalize = False
        for entry in _entries(file):
            kind = str(entry["type"]).rpartition(".")[2]
            if kind == "Pooling":
                modes = _modes(folder / entry["path"] / "config.json")
            elif kind == "Normalize":
                normalize = True
            elif kind != "Transformer":
                raise UnsupportedError(
                    f"sentence-transformers' module {kind} is not known",
                    where=str(file),
                    hint="Transformer, Pooling and Normalize are",
                )
        return cls(encoder, modes, normalize=normalize) if modes else None

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """Vectors of texts."""
        types = () if token_type_ids is None else (token_type_ids,)
        hidden = self.encoder(input_ids, attention_mask, *types)["last_hidden_state"]
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        parts = [_pool(mode, hidden, mask) for mode in self.modes]
        found = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return {EMBEDDINGS: torch.nn.functional.normalize(found) if self.normalize else found}


def _entries(file: Path) -> list[dict[str, Any]]:
    """The modules that a file lists.

    Raises:
        InputError: It cannot be read, or is no list of modules.
    """
    try:
        found = parse_json(read_file(file))
    except (OSError, JSONError) as error:
        raise InputError(f"cannot be read: {error}", where=str(file)) from error
    known = isinstance(found, list) and all(isinstance(one, dict) for one in found)
    if not known or not all({"type", "path"} <= one.keys() for one in found):
        raise InputError("is no list of modules, each with type and path", where=str(file))
    return found


def _pool(mode: str, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mode == "cls":
        return hidden[:, 0]
    if mode == "max":
        return hidden.masked_fill(mask == 0, -1e9).max(dim=1).values
    if mode == "mean":
        return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
    # the last token: the mask changes from 1 to 0 behind it, on whichever side padding lies
    steps = torch.arange(1, hidden.shape[1] + 1, device=hidden.device)
    last = (mask.squeeze(-1) * steps).argmax(dim=1)
    return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)


def _modes(file: Path) -> list[str]:
    config = read_object(file)
    asked = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    unknown = [key for key in asked if key not in _MODES]
    if unknown or not asked:
        raise UnsupportedError(
            f"pools by {', '.join(unknown) or 'nothing'}",
            where=str(file),
            hint=f"one of {', '.join(_MODES)}",
        )
    return [mode for key, mode in _MODES.items() if key in asked]
