"""A shipped recipe for tests that do not look at its quality: calibrating takes long."""

from __future__ import annotations

from pathlib import Path

import yaml

RECIPES = Path(__file__).parents[3] / "recipes"
#: Passes that read a text.
CALIBRATING = {"propagate-errors"}


def rounded(name: str, folder: Path) -> Path:
    """Write the recipe ``name`` into ``folder`` with weights that are rounded plainly, without what
    GPTQ calibrates by; its engine has the same kernels."""
    recipe = yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))
    steps = []
    for step in recipe["pipeline"]:
        (found,) = [step] if isinstance(step, str) else step
        options = {} if isinstance(step, str) else step[found]
        if found == "quantize-weights":
            assert options.pop("method") == "gptq"
        if found not in CALIBRATING:
            steps.append({found: options})
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**recipe, "pipeline": steps}), encoding="utf-8")
    return path
