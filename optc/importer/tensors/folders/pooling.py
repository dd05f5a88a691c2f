"""Vectors of texts, pooled of the hidden states of an encoder as sentence-transformers does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from optc.artifact.tasks.embedding import EMBEDDINGS


class Pooled(torch.nn.Module):
    """``embeddings`` f32[batch, D] of an encoder's last hidden states (Reimers and Gurevych, 2019,
    arXiv:1908.10084)."""

    def __init__(
        self,
        encoder: torch.nn.Module,
        modes: Iterable[str],
        layers: Iterable[torch.nn.Module] = (),
    ) -> None:
        """Args:
        encoder: Gives ``last_hidden_state`` for ids, mask and types.
        modes: Names of `POOLINGS`; the vectors of several stand side by side.
        layers: What the vectors go through then.
        """
        super().__init__()
        self.encoder, self.modes = encoder, tuple(modes)
        self.layers = torch.nn.Sequential(*layers)

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
        parts = [POOLINGS[mode](hidden, mask) for mode in self.modes]
        return {EMBEDDINGS: self.layers(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))}


class Length1(torch.nn.Module):
    """Vectors of length 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [batch, D] by the lengths of its rows."""
        return torch.nn.functional.normalize(x)


def _first(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return hidden[:, 0]


def _largest(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return hidden.masked_fill(mask == 0, -1e9).max(dim=1).values


def _mean(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)


def _mean_by_root(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9).sqrt()


def _mean_by_place(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Later tokens count more; places count from the first that is no padding."""
    return _mean(hidden, mask * mask.cumsum(1))


def _last(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mask changes from 1 to 0 behind it, on whichever side padding lies."""
    steps = torch.arange(1, hidden.shape[1] + 1, device=hidden.device)
    last = (mask.squeeze(-1) * steps).argmax(dim=1)
    return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)


#: By sentence-transformers' names, in the order in which it puts several side by side where a
#: folder does not state one.
POOLINGS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cls": _first,
    "max": _largest,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_by_root,
    "weightedmean": _mean_by_place,
    "lasttoken": _last,
}
