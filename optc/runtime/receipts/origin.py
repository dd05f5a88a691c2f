"""`origin_of`: what an engine's answers follow from besides the request."""

from __future__ import annotations

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import TOKENIZER_FILE
from optc.runtime.engine import Engine
from optc.runtime.receipts.receipt import NOWHERE, Origin


def origin_of(engine: Engine) -> Origin:
    """The artifact of an engine; `NOWHERE` where it was loaded from none."""
    info = engine.info
    if info is None:
        return NOWHERE
    artifact = Artifact.open(info.artifact, "size")  # loading has verified it
    digests = [one.sha256 for one in artifact.manifest.files if one.path == TOKENIZER_FILE]
    return Origin(artifact.digest, info.name, next(iter(digests), ""))
