"""Conventions of a model of diffusion, which its artifact keeps beside the engines."""

from __future__ import annotations

from typing import Literal

import msgspec

#: The artifact's file.
CONVENTIONS_FILE = "diffusion.json"


class NoiseLevels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The levels of noise that a denoiser was trained on, and how steps are spread over them.

    Attributes:
        signal_power: Share of the signal in the power of a noisy sample, by training step, falling
            (alpha-bar of Ho et al., 2020, arXiv:2006.11239).
        prediction: Of the denoiser: the noise (``epsilon``), the velocity (``v_prediction``,
            Salimans and Ho, 2022, arXiv:2202.00512) or the ``sample`` itself.
        spacing: How steps are spread over the training steps (Lin et al., 2023, arXiv:2305.08891,
            table 2).
        offset: Added to each step where they are spread by ``leading``.
        fractions: Whether levels are interpolated between training steps; else steps are whole.
        ends_clean: Whether the last step leaves no noise at all; else that of the first training
            step.
        clip: Largest absolute value of a predicted sample; None is any.
    """

    signal_power: tuple[float, ...]
    prediction: Literal["epsilon", "v_prediction", "sample"] = "epsilon"
    spacing: Literal["leading", "trailing", "linspace"] = "leading"
    offset: int = 0
    fractions: bool = False
    ends_clean: bool = True
    clip: float | None = None


class DiffusionConventions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a host needs beside the engines.

    Attributes:
        levels: Of noise.
        shape: Channels, height and width of a sample of the denoiser.
        prompt_tokens: Tokens of the prompt's encoder; None where the model takes no prompt.
    """

    levels: NoiseLevels
    shape: tuple[int, int, int]
    prompt_tokens: int | None = None
