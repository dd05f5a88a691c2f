"""OpenVINO's int8 of a model: ``MODEL.onnx SAMPLES.npz OUT.xml``, in OpenVINO's environment.

NNCF's static quantization for transformers, calibrated on the samples.
"""

from __future__ import annotations

import sys
from typing import Any

import nncf
import numpy as np
import openvino


def main() -> None:
    """Quantize and save."""
    source, samples, target = sys.argv[1:4]
    model = openvino.Core().read_model(source)
    names = [one.get_any_name() for one in model.inputs]
    arrays = np.load(samples)
    count = len({key.rpartition(".")[2] for key in arrays.files})
    given: list[dict[str, Any]] = [
        {name: arrays[f"{name}.{i}"] for name in names} for i in range(count)
    ]
    quantized = nncf.quantize(
        model, nncf.Dataset(given), subset_size=len(given), model_type=nncf.ModelType.TRANSFORMER
    )
    openvino.save_model(quantized, target, compress_to_fp16=False)


if __name__ == "__main__":
    main()
