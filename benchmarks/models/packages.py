"""Packages of models that optc does not need: in a folder of their own, beside this environment.

They are installed without what they depend on: torch and all others are those that are here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

#: timm and diffusers in the versions that were measured; torchvision goes with torch.
_PACKAGES = ("timm==1.0.31", "diffusers==0.42.1")


def ensure_packages(workdir: Path) -> Path:
    """Make timm, diffusers and torchvision importable, installed if they are not yet there.

    Args:
        workdir: They lie in a folder of it.

    Raises:
        CalledProcessError: No registry gives them.
    """
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    wanted = (*_PACKAGES, f"torchvision==0.{minor + 15}.*")
    target = workdir.resolve() / f"models-torch-{major}.{minor}"
    if not (target / ".installed").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*pip, str(target), *wanted], check=True)
        (target / ".installed").touch()
    # Behind all others, and after transformers was imported: it changes where it finds them.
    import transformers  # noqa: F401

    if str(target) not in sys.path:
        sys.path.append(str(target))
    _declare()
    return target


def _declare() -> None:
    """torchvision wants these operators declared: those of its wheel are for torch with CUDA."""
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
