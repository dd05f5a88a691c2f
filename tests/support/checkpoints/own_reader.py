"""What a checkpoint that is quantized already says, beside its own reader in transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime
import torch
import transformers

from optc.importer import hugging_face
from optc.importer.export import Exported, export_decoder
from optc.importer.import_model import import_model
from optc.ir.pipeline.base import PassReport
from tests.support.pipelines import pipeline_of

PYCODE = Path(__file__).parents[3] / "examples/models/pycode"
#: The passes of `int8-fused` that decide about weights, which are rounded plainly.
WEIGHTS = "canonicalize,fuse-qkv,fuse-gate-up,quantize-weights{bits=8,given_activation_bits=16}"
#: With these no two tokens are nearly as likely, which the int8 of activations would exchange.
PROMPTS = ("for i in range(", 'if __name__ == "__main__":\n    ')
NEW_TOKENS = 24

_EXPORTS: dict[str, Exported] = {}


@contextmanager
def exported_once() -> Iterator[None]:
    """While it lasts, decoders of one config are exported once: that takes most of an import."""

    def export(config: transformers.PretrainedConfig, *, allow_remote_code: bool) -> Exported:
        key = f"{type(config).__name__} {config.hidden_size} {config.num_hidden_layers}"
        if key not in _EXPORTS:
            _EXPORTS[key] = export_decoder(config, allow_remote_code=allow_remote_code)
        return Exported(_EXPORTS[key].model.clone(), _EXPORTS[key].fixed_rope)

    with patch.object(hugging_face, "export_decoder", export):
        yield


def continuations(
    model: transformers.PreTrainedModel, prompts: Sequence[str] = PROMPTS
) -> list[tuple[list[int], int]]:
    """Greedy tokens of float32: the prompt with its continuation, and the prompt's length."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(PYCODE)
    found = []
    for prompt in prompts:
        ids = tokenizer(prompt).input_ids
        given = torch.tensor([ids])
        with torch.no_grad():
            whole = model.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=tokenizer.pad_token_id,
            )
        found.append((whole[0].tolist(), len(ids)))
    return found


def quantized(source: Path) -> tuple[ir.Model, PassReport]:
    """The model behind `WEIGHTS`, and what quantize-weights did."""
    with exported_once():
        model = import_model(source).model
    *_, record = pipeline_of(WEIGHTS).run(model)
    return model, record.report


def same_tokens(model: ir.Model, expected: Sequence[tuple[list[int], int]]) -> bool:
    """True if the greedy tokens of ``model`` are those expected: each follows from those before
    it, so that one look at the whole text says so."""
    proto = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    return all(
        np.array_equal(_best(session, whole)[length - 1 : -1], whole[length:])
        for whole, length in expected
    )


def _best(session: onnxruntime.InferenceSession, ids: list[int]) -> npt.NDArray[np.int64]:
    feeds = {"input_ids": np.array([ids]), "position_ids": np.arange(len(ids))[None]}
    best: npt.NDArray[np.int64] = session.run(None, feeds)[0][0].argmax(axis=-1)
    return best
