"""What optc's importer makes of an exported GGUF file, as a model that transformers runs."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
import transformers

from optc.importer.checkpoint import read_tensors
from optc.importer.conversion.parameters import as_parameters
from optc.importer.gguf.config import read_gguf_config
from optc.importer.gguf.file import metadata_of, open_gguf
from optc.importer.skeleton import read_skeleton
from tests.importer.decoders import build


def imported_class(file: Path) -> transformers.PreTrainedModel:
    """The class of the config that the importer reads, with its parameters and frequencies; the
    importer has no warnings."""
    config = transformers.AutoConfig.for_model(
        **read_gguf_config(file, metadata_of(open_gguf(file)))
    )
    model, checkpoint = build(config), read_tensors([file], None)
    skeleton = read_skeleton(copy.deepcopy(config), len(checkpoint), allow_remote_code=False)
    found, skeleton, warnings = as_parameters([file], checkpoint, skeleton)
    assert warnings == []
    for name, parameter in model.named_parameters():
        rows = found[name].read_rows(0, found[name].shape[0])
        assert rows.shape == parameter.shape, name
        parameter.data = torch.from_numpy(np.array(rows, np.float32))
    for name, buffer in model.named_buffers():
        buffer.copy_(torch.from_numpy(skeleton.buffers[name]))
    return model
