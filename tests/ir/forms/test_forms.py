"""Forms check a graph, say what they know of it, and come back as they were stated."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.forms.batched import BatchedTensors, NamedTensor
from optc.ir.forms.decoder import Dense, Exported
from optc.ir.forms.engine import EngineForm
from optc.ir.forms.find import FORMS, form_type
from optc.ir.forms.form import Form, form_name
from optc.ir.forms.kv_pools import KVPools
from optc.ir.forms.ragged import RaggedStep
from optc.ir.forms.static_kv import StaticKV
from optc.runtime.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec
from optc.runtime.executable.executable import KVGroup, LayerKV
from tests.support.models import Dense as Shape
from tests.support.models import dense_model
from tests.support.pipelines import pipeline_of

LAYERS = (LayerKV(1, 2, 8, 16, "int8"), LayerKV(0, 2, 8, 16, "int8"), LayerKV(1, 1, 8, 8, "int8"))
POOLS = KVPools.grouped_by_window((0, 20), LAYERS)
ADAPTERS = AdapterSpec(2, 16, (AdapterModule(8, 6, (AdapterPart("q", 0, 4),)),))


def after(spec: str) -> ir.Model:
    model = dense_model(Shape(windows=(20, 0)))
    pipeline_of(spec).run(model)
    return model


def empty() -> ir.Model:
    return ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 23}), ir_version=10)


def test_layers_of_one_window_are_a_group() -> None:
    assert POOLS.groups == (KVGroup(0, (1,)), KVGroup(20, (0, 2)))
    assert POOLS.bytes_per_token == sum(layer.bytes_per_token for layer in LAYERS)
    assert {layer.dtype for layer in POOLS.with_dtype("float16").layers} == {"float16"}


@pytest.mark.parametrize(
    "form",
    [
        Exported(),
        Dense(),
        RaggedStep(POOLS),
        RaggedStep(POOLS, True, ADAPTERS, ((0.5, 0.25), (0.125,))),
        StaticKV(POOLS),
        EngineForm(POOLS),
    ],
    ids=lambda form: form.name,
)
def test_what_a_model_states_comes_back(form: Form) -> None:
    model = empty()
    form.attach(model)
    assert form_type(model) is type(form)
    assert type(form).read(model) == form
    assert type(form).read(ir.from_proto(ir.to_proto(model))) == form, "a written model has it too"
    for other in FORMS:
        if not isinstance(form, other):
            with pytest.raises(InputError, match=f"the model is not {other.title}") as caught:
                other.of(model)
            assert caught.value.hint == other.made_by


def test_a_model_that_says_nothing_is_exported() -> None:
    assert form_name(empty()) == "exported"


def test_an_unknown_form_is_refused() -> None:
    model = empty()
    model.metadata_props["optc.form"] = '{"name": "liquid"}'
    with pytest.raises(InputError, match="unknown form 'liquid'") as caught:
        form_type(model)
    assert "ragged-step" in caught.value.hint


def test_passes_give_the_form_that_they_say() -> None:
    step = RaggedStep.of(after("kv-cache{dtype=int8}"))
    assert step.kv.groups == (KVGroup(0, (1,)), KVGroup(20, (0,)))
    assert (step.tree, step.adapters, step.accept_rates) == (False, None, ())
    assert RaggedStep.of(after("kv-cache{tree=true}")).tree
    adapters = RaggedStep.of(after("kv-cache{tree=true},adapters{max=2}")).adapters
    assert adapters is not None
    assert adapters.max == 2
    slots = StaticKV.of(after("kv-cache{dtype=int8},kv-slots"))
    assert slots.kv.groups == (KVGroup(0, (0, 1)),)
    assert {layer.dtype for layer in slots.kv.layers} == {"float32"}


@pytest.mark.parametrize(
    ("spec", "kind", "place"),
    [
        ("kv-cache", "inputs", 3),
        ("kv-cache", "outputs", 1),
        ("kv-cache,adapters", "inputs", -1),
        ("kv-cache,kv-slots", "inputs", 2),
        ("kv-cache,kv-slots", "outputs", -1),
    ],
)
def test_a_graph_that_is_not_what_its_form_says_is_refused(
    spec: str, kind: str, place: int
) -> None:
    model = after(spec)
    values = model.graph.inputs if kind == "inputs" else model.graph.outputs
    form_type(model).of(model)
    values[place].name = "odd"
    with pytest.raises(InputError, match=r"odd.* are not those of the") as caught:
        form_type(model).of(model)
    assert "they must be" in caught.value.hint


def test_dense_and_exported_models_have_two_inputs_and_one_output() -> None:
    for form in (Dense(), Exported()):
        model = dense_model(Shape())
        form.attach(model)
        type(form).of(model)
        model.graph.outputs.append(model.graph.outputs[0])
        with pytest.raises(InputError, match="the outputs logits, logits are not those of"):
            type(form).of(model)


def value(name: str, shape: ir.Shape | None, dtype: ir.DataType | None = ir.DataType.FLOAT):
    kind = None if dtype is None else ir.TensorType(dtype)
    return ir.Value(name=name, type=kind, shape=shape)


def test_batched_tensors_have_named_axes() -> None:
    pixels = value("pixels", ir.Shape(["N", 3, 32, "W"]))
    labels = value("labels", ir.Shape(["N", 10]))
    model = ir.Model(ir.Graph([pixels], [labels], nodes=[]), ir_version=10)
    form = BatchedTensors.describe(model)
    assert form.inputs == (NamedTensor("pixels", "FLOAT", ("N", 3, 32, "W")),)
    assert form.outputs == (NamedTensor("labels", "FLOAT", ("N", 10)),)
    form.attach(model)
    assert BatchedTensors.of(model) == form
    labels.shape = ir.Shape(["N", 11])
    with pytest.raises(InputError, match="inputs or outputs have changed"):
        form.check(model)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (value("x", None), "tensor x: it has no type or no shape"),
        (value("x", ir.Shape(["N"]), None), "tensor x: it has no type or no shape"),
        (value("x", ir.Shape(["N", None])), "tensor x: axis 1 is dynamic and has no name"),
    ],
)
def test_batched_tensors_without_shapes_are_refused(bad: ir.Value, message: str) -> None:
    model = ir.Model(ir.Graph([bad], [], nodes=[]), ir_version=10)
    with pytest.raises(InputError, match=message):
        BatchedTensors.describe(model)
