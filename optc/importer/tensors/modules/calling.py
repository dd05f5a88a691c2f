"""Calls of a user's module: its example, its mode, and itself as the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils import _pytree as pytree

from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.translation import first_line

#: Attributes by which PyTorch's wrappers hold the module that they wrap.
_WRAPPERS: tuple[tuple[type, str], ...] = (
    (torch._dynamo.OptimizedModule, "_orig_mod"),
    (torch.nn.DataParallel, "module"),
    (torch.nn.parallel.DistributedDataParallel, "module"),
)
#: Packages of layers with packed integers.
_QUANTIZED = ("torch.ao.nn.quantized", "torch.nn.quantized")
#: What a result may be that is an output.
_NUMBERS = (torch.Tensor, int, float)
#: Of a second call's outputs, over the largest value of the first's: more is another answer.
_SAME = 1e-4


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The module within `torch.compile`'s wrapper, and within those of several devices: they
    compute the same, and their forward has no named arguments."""
    found = next((inner for kind, inner in _WRAPPERS if isinstance(module, kind)), None)
    return module if found is None else unwrapped(getattr(module, found))


def checked_example(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], name: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example with NumPy's arrays as tensors.

    Raises:
        UnsupportedError: The module is a script, or quantized, or has an LSTM with projections; or
            a tensor of it or of the example is complex (examples alone), sparse or nested.
        InputError: A tensor has no values, or does not lie on the CPU.
    """
    _refuse_kinds(module, name)
    for key, one in chain(module.named_parameters(), module.named_buffers()):
        if torch.nn.parameter.is_lazy(one):
            raise InputError(
                "it is lazy, and has no values yet",
                where=f"{name}, {key}",
                hint="call the module once, and load its weights",
            )
        _check_place(one, f"{name}, {key}", "module.to_empty(device='cpu') and load its weights")
    arrays: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(
        lambda one: torch.from_numpy(one) if isinstance(one, np.ndarray) else one,
        (tuple(args), dict(kwargs)),
    )
    for index, one in enumerate(pytree.tree_leaves(arrays)):
        if isinstance(one, torch.Tensor):
            _check_kind(one, f"{name}, input {index}")
            _check_place(one, f"{name}, input {index}", "give a tensor with values")
    return arrays


def _refuse_kinds(module: torch.nn.Module, name: str) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(
            "it is TorchScript, which PyTorch does not export",
            where=name,
            hint="give the torch.nn.Module that it was scripted or traced from",
        )
    for key, one in module.named_modules():
        if type(one).__module__.startswith(_QUANTIZED) and not _is_float(one):
            raise UnsupportedError(
                f"it is a {type(one).__name__} that PyTorch quantized, which it does not export",
                where=f"{name}, {key}" if key else name,
                hint="give the module before it was quantized: a recipe such as products-int8 "
                "quantizes it",
            )
        if getattr(one, "proj_size", 0) and isinstance(one, torch.nn.LSTM):
            raise UnsupportedError(
                "it is an LSTM with projections, which ONNX's LSTM does not have",
                where=f"{name}, {key or 'LSTM'}",
                hint="compute its steps in forward, or train one without proj_size",
            )


def _is_float(module: torch.nn.Module) -> bool:
    """True for what computes in floats, and marks where a quantized module would not."""
    return isinstance(module, torch.ao.nn.quantized.FloatFunctional)


def _check_kind(tensor: torch.Tensor, where: str) -> None:
    if tensor.is_complex():
        raise UnsupportedError(
            "it has complex numbers, which engines do not take",
            where=where,
            hint="give torch.view_as_real of it, and call torch.view_as_complex in forward",
        )
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise UnsupportedError(
            "it is no dense tensor", where=where, hint="give to_dense() or to_padded_tensor of it"
        )


def _check_place(tensor: torch.Tensor, where: str, hint: str) -> None:
    if tensor.device.type == "meta":
        raise InputError("it has no values (device meta)", where=where, hint=hint)
    if tensor.device.type != "cpu":
        raise InputError(
            f"it lies on {tensor.device}", where=where, hint="move module and example by .cpu()"
        )


@contextmanager
def evaluated(module: torch.nn.Module) -> Iterator[None]:
    """Evaluate a module, and leave each of its modules in the mode that it had: a wrapper that was
    just made trains, and what it wraps may not."""
    modes = [(one, one.training) for one in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for one, mode in modes:
            one.training = mode


def called(module: torch.nn.Module) -> Callable[..., Any]:
    """Calls of ``module`` as it is evaluated.

    The way of `torch.nn.TransformerEncoder` that leaves padding out gives zeros there, where the
    module's own layers, which are exported, give numbers that nobody reads: it is left aside.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with evaluated(module):
                return module(*args, **kwargs)
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)

    return run


@contextmanager
def telling(name: str) -> Iterator[None]:
    """Around a call of a model's code, which may raise anything.

    Raises:
        InputError: It did.
    """
    try:
        with torch.no_grad():
            yield
    except MemoryError:
        raise
    except Exception as error:  # operators raise what they like at values out of range
        raise InputError(
            f"PyTorch fails at these inputs: {first_line(error)}",
            where=name,
            hint="give inputs that it takes; ids of tokens out of range come of a tokenizer "
            "that does not belong to the model",
        ) from error


def check_repeats(
    run: Callable[..., Any], example: Any, outputs: Mapping[int, str], name: str
) -> None:
    """Refuse a model whose answer to one input changes from call to call: an artifact's does not.

    Args:
        run: Calls it.
        example: Arguments and keywords.
        outputs: Names, by the places of the results.
        name: Of the model.

    Raises:
        UnsupportedError: It keeps state between calls, or draws random numbers.
        InputError: It does not take its example.
    """
    first, second = (_results(run, example, name) for _ in range(2))
    for place, output in outputs.items():
        if not _is_same(first[place], second[place]):
            raise UnsupportedError(
                f"its output {output!r} is another one when it is called again with the same "
                "inputs",
                where=name,
                hint="what it keeps between calls, make an input and an output; what it draws at "
                "random, an input",
            )


def _results(run: Callable[..., Any], example: Any, name: str) -> list[npt.NDArray[Any]]:
    """Copies, of copies of the inputs: forward may write into both."""
    args, kwargs = pytree.tree_map(
        lambda one: one.detach().clone() if isinstance(one, torch.Tensor) else one, example
    )
    with telling(name):
        leaves = pytree.tree_leaves(run(*args, **kwargs))
    return [
        as_array(torch.as_tensor(one)).copy() if isinstance(one, _NUMBERS) else np.empty(0)
        for one in leaves
    ]


def _is_same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool((one == other).all())
    finite = np.abs(one[np.isfinite(one)])
    limit = _SAME * float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(one, other, rtol=0.0, atol=limit, equal_nan=True))


def as_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Values of a tensor; those of bfloat16, which NumPy lacks, as float32."""
    plain = tensor.detach()
    return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()
