"""Every converter of transformers' mapping, as views and by its own operations."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.conversion_mapping import _build_checkpoint_conversion_mapping
from transformers.core_model_loading import (
    Concatenate,
    ErnieFuseAndSplitTextVisionExperts,
    MergeModulelist,
    Split,
    Transpose,
    WeightConverter,
)

from optc.errors import UnsupportedError
from optc.importer.conversion.operations import Context, Named, convert
from tests.importer.conversion.arrays import ArrayTensor, tensors, whole

#: Operations of single families, of images or of packed experts: refused by name.
REFUSED = {
    "PermuteForRope",
    "ErnieFuseAndSplitTextVisionExperts",
    "Inkling2LoopDequantizeExperts",
    "Inkling2LoopMergeMessageQueries",
    "Inkling2UnpadVocab",
}
#: Rows of the results of `Split`: no two alike.
ROWS = (5, 4, 2, 1)


def converters() -> list[tuple[str, WeightConverter]]:
    mapping = _build_checkpoint_conversion_mapping()
    return [
        (f"{name}: {one.target_patterns}", one)
        for name, transforms in mapping.items()
        for one in transforms
        if isinstance(one, WeightConverter)
    ]


def sources(converter: WeightConverter) -> dict[str, list[torch.Tensor]]:
    """Of every pattern two tensors where it has an index, else one; 3-D but for lists of 2-D."""
    inner = [vars(one) for one in converter.operations if not isinstance(one, MergeModulelist)]
    stacked = len(inner) < len(converter.operations)
    deep = not stacked and any(max(v.get("dim", 0), v.get("dim1", 0)) > 0 for v in inner)
    shape = (4, 12, 6) if deep else (12, 6)
    generator = torch.Generator().manual_seed(0)
    return {
        pattern: [torch.randn(shape, generator=generator) for _ in range(2 if stacked else 1)]
        for pattern in converter.source_patterns
    }


def converted(converter: WeightConverter, views: Named, context: Context) -> Named:
    for operation in converter.operations:
        views = convert(operation, views, context)
    return views


def test_every_converter_gives_what_its_operations_give() -> None:
    refused, compared = set(), 0
    for name, converter in converters():
        given, targets = sources(converter), converter.target_patterns
        if isinstance(converter.operations[0], Split):
            rows = [*ROWS[: len(targets) - 1], 12 - sum(ROWS[: len(targets) - 1])]
            shapes = {one: (size, 6) for one, size in zip(targets, rows, strict=True)}
        else:
            shapes = {targets[0]: (4, 6, 12)}
        context = Context(targets[0], converter.source_patterns, targets, shapes, None)
        model = SimpleNamespace(get_parameter=lambda n, of=shapes: torch.empty(of[n]))
        views = {
            pattern: [ArrayTensor(f"{pattern}{i}", one) for i, one in enumerate(parts)]
            for pattern, parts in given.items()
        }
        kinds = {type(one).__name__ for one in converter.operations}
        if kinds & REFUSED:
            with pytest.raises(UnsupportedError, match=r"need the conversion (.*), which optc"):
                converted(converter, views, context)
            refused |= kinds & REFUSED
            continue
        views = converted(converter, views, context)
        for operation in converter.operations:
            given = operation.convert(
                given,
                source_patterns=converter.source_patterns,
                target_patterns=targets,
                full_layer_name=targets[0],
                model=model,
                config=None,
            )
        assert list(views) == list(given), name
        for pattern, expected in given.items():
            one = expected[0] if isinstance(expected, list) else expected
            assert views[pattern][0].shape == tuple(one.shape), name
            np.testing.assert_array_equal(whole(views[pattern][0]), one.numpy(), name)
        compared += 1
    assert refused == REFUSED
    assert compared > 150, "the mapping of transformers has shrunk"


def test_what_transformers_does_not_do_is_refused() -> None:
    context = Context("t", ["a"], ["t", "u"], {}, None)
    given = {"a": list(tensors({"a": torch.ones(2, 2)}).values())}
    with pytest.raises(UnsupportedError, match="t: a conversion to 2 tensors where one is made"):
        convert(Concatenate(0), given, context)
    with pytest.raises(UnsupportedError, match=r"MergeModulelist\(dim=1\) stacks along another"):
        convert(MergeModulelist(1), given, context)
    with pytest.raises(UnsupportedError, match=r"ErnieFuse.*optc does Chunk, Concatenate, Inter"):
        convert(ErnieFuseAndSplitTextVisionExperts(), given, context)


def test_a_transposition_that_checks_leaves_what_fits() -> None:
    context = Context("t", ["a"], ["t"], {"t": (2, 3)}, None)
    for shape in ((2, 3), (3, 2)):
        given = {"a": list(tensors({"a": torch.ones(shape)}).values())}
        (found,) = convert(Transpose(check_dims=True), given, context)["t"]
        assert found.shape == (2, 3)
