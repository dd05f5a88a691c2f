"""A model as a user names it: its folder, and where its weights may still come from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from optc.importer.adapted.folder import is_adapter_folder
from optc.importer.hub import HubModel, hub_model
from optc.importer.model_folder import model_folder


class GivenModel(NamedTuple):
    """A model that was looked up.

    Attributes:
        folder: With all files but weights that may still have to be downloaded.
        hub: From where; None if nothing is missing.
    """

    folder: Path
    hub: HubModel | None


def given_model(
    model: str | Path, *, base: str | Path | None = None, code: bool = False
) -> GivenModel:
    """Look up what a user gives as a model: a path, or the name of one of the Hub.

    Args:
        model: The model, or an adapter by PEFT.
        base: Of an adapter, instead of the base that it names.
        code: Python code is wanted too.

    Raises:
        InputError, UnsupportedError, UnavailableError: As `optc.importer.hub.HubModel.fetch_small`
            and `optc.importer.model_folder.model_folder`.
    """
    named = hub_model(model, code=code)
    path = Path(model) if named is None else named.fetch_small()
    folder = model_folder(path, base=base, code=code)
    # an adapter is as small as its settings, and came with them; its base is complete
    return GivenModel(folder, None if is_adapter_folder(path) else named)
