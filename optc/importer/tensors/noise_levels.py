"""The noise levels of a scheduler of diffusers."""

from __future__ import annotations

from typing import Any

from optc.errors import ArtifactError, InputError, UnsupportedError
from optc.runtime.diffusion.conventions import NoiseLevels
from optc.system.foreign.typed_json import typed

#: Schedulers that put levels between training steps.
_FRACTIONS = ("Euler", "Heun", "LMS", "KDPM2")
#: Schedulers whose steps are the ones that are made here; others have the same levels.
_SAME = ("DDIMScheduler", "EulerDiscreteScheduler")
#: Models of these schedulers were trained for steps of another kind.
_OTHERS = ("LCM", "TCD", "Flow", "ConsistencyModel", "CM", "VQ", "EDM", "Unclip", "Cog", "Repaint")
#: Settings that move levels or samples, and are not followed.
_UNKNOWN = (
    "thresholding",
    "use_karras_sigmas",
    "use_exponential_sigmas",
    "use_beta_sigmas",
    "use_lu_lambdas",
)


def levels_of(scheduler: Any, where: str) -> tuple[NoiseLevels, tuple[str, ...]]:
    """A scheduler's levels, and warnings about what is done otherwise.

    Raises:
        InputError: Its values are not usable.
        UnsupportedError: Its steps are of another kind.
    """
    name, config = type(scheduler).__name__, scheduler.config
    powers = getattr(scheduler, "alphas_cumprod", None)
    if powers is None or name.startswith(_OTHERS):
        raise UnsupportedError(
            f"the steps of its scheduler {name} are not known",
            where=where,
            hint="schedulers of the levels of DDPM are: DDIM, Euler, PNDM, DPM-Solver and others",
        )
    if set_to := next((key for key in _UNKNOWN if config.get(key)), None):
        raise UnsupportedError(
            f"{set_to} of its scheduler is not known",
            where=where,
            hint=f"set {set_to} to false in scheduler_config.json, and mind what it changes",
        )
    fractions = name.startswith(_FRACTIONS)
    found = {
        "signal_power": [float(one) for one in powers.double()],
        "prediction": config.get("prediction_type", "epsilon"),
        "spacing": config.get("timestep_spacing", "leading"),
        "offset": config.get("steps_offset", 0),
        "fractions": fractions,
        "ends_clean": fractions or bool(config.get("set_alpha_to_one", True)),
        "clip": _clip(config),
    }
    try:
        levels = typed(found, NoiseLevels, where)
    except ArtifactError as error:
        raise InputError(error.message, where=error.where) from error
    if levels.prediction == "epsilon" and min(levels.signal_power, default=0) <= 0:
        raise UnsupportedError(
            "its first level has no signal, and noise alone tells no sample", where=where
        )
    if name in _SAME:
        return levels, ()
    return levels, (f"its scheduler is {name}; steps are those of DDIM over the same levels",)


def _clip(config: Any) -> float | None:
    return float(config.get("clip_sample_range", 1.0)) if config.get("clip_sample") else None
