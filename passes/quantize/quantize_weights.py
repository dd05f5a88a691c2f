"""`quantize-weights`: integer weights with dynamic int8 activations per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NoReturn, Self, cast, get_args

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.experts import feeds_router, find_expert_linear, find_expert_linears
from optc.ir.graph import remove_unused
from optc.ir.linear import Linear, find_linear, find_linears, head_of, weights_in
from optc.ir.pipeline.base import ALONE, NO_COSTS, Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.numerics.gptq.weights import KEPT, Factors
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.activations.layers import named_weights, patterns_of
from optc.passes.quantize.float_formats.codebook import STORED, store_layers
from optc.passes.quantize.given.grids import GivenWeights, Keep
from optc.passes.quantize.layer_schemes import (
    BITS,
    GROUP_SIZES,
    PER_CHANNEL,
    LayerSchemes,
    fitting,
    format_text,
)
from optc.passes.quantize.quantized_layers import QuantizedLayers
from optc.passes.quantize.sample import sample_nodes
from optc.proof.reference.calibration import calibration_of

#: The format that the other options describe.
_INTEGERS = "int"
#: Options that go with every format.
_GENERAL = frozenset({"format", "method", "given"})
#: Bits of a draft layer's own weights, and the size of their groups where the recipe has none.
_DRAFT_BITS, _DRAFT_GROUP = 4, 32
#: Inputs of layers that may stay float.
_MOST_FIRST = 1 << 10
#: Why the layer before a router is left alone.
ROUTER_STAYS = "a router reads its result: it stays float"


@dataclass(frozen=True)
class QuantizeWeights(Pass):
    """MatMul with a constant weight becomes ``QuantizeActivation`` + ``QuantizedMatMul``.

    Legal cases:
        1. any linear layer [K, N] whose K the group size divides, its bias folded in;
        2. K not a multiple of the group size: the largest smaller group size that divides K,
           else int8 per channel, reported;
        3. the head, if ``head``: in ``head_bits``; of 8 bits, per channel unless these are the
           layers' bits;
        4. the embedding, if ``embedding``: the quantized head itself where they are tied, else
           int8 per row;
        5. ``optc::ExpertMatMul`` as a linear layer, with a scale for each row of each expert. GPTQ
           rounds it plainly: no Hessian tells what one expert reads.

    The layer that gives a router its logits stays float: a small error there is another choice of
    experts, and it is a small share of the weights.

    Attributes:
        bits: 8 or 4, of all layers but the head; 6, 5, 3 and 2 with integer scales of groups.
        group_size: Columns that share a scale: 32, 64, 128, or 0 for whole channels.
        symmetric: Signed values without zero points.
        group_scales: ``float``: a float scale for each group; ``int``: an integer one, beside a
            float scale for each channel (`two_level`), for asymmetric weights of 6 to 2 bits.
        head: Quantize the head.
        head_bits: 8; as ``bits``; with integer scales of groups any of 8, 6, 5, 4, 3 and 2.
        layer_bits: Formats of single weights, the head's too, as ``tensor=format``: ``8`` is int8
            per channel, ``4g32`` 4 bits in groups of 32. Tensors that are merged need the same one.
        embedding: Quantize the embedding.
        float_first: Layers that read one of the first so many inputs of layers stay float: what
            they lose goes through all that follow.
        activation_bits: 8 or 16 of what linear layers read, one scale a token. 16 cost no bytes,
            and no time where few rows wait for weights; prompts take about twice the time in the
            layers. Experts read 8.
        activation_layers: Patterns of tensors, such as ``*.down_proj.weight``: layers of others
            read 8 bits; none are all layers. Those that share an input are one.
        method: ``round``: each weight to the nearest value; ``gptq``: one input after the other,
            the rest making up for each error (`optc.passes.numerics.gptq`), by the Hessians of
            ``calibrate: {hessians: true}`` or ``propagate-errors`` before it. The grids, and so the
            speed, are the same.
        format: ``int``, or a type that weights of layers are stored in, with float activations:
            ``fp8``, ``nf4``, ``mxfp4`` or ``nvfp4`` (`optc.passes.quantize.float_formats`). They
            become ``CodebookMatMul``; head and embedding stay float.
        given: Of a checkpoint that is quantized already: ``keep`` a weight's grid where engines
            have it and it has no more bits than are asked for here; ``symmetric`` keeps only grids
            without zero points; ``requantize`` rounds all weights to the grid asked for, as do
            formats other than ``int``.
        given_activation_bits: Least bits that layers on such a grid of fewer than 8 bits read: a
            rotation would leave the grid, and 8 bits without one lose more than it does. The head
            behind such layers reads as many: by 8 bits it alone would lose more than they do.
    """

    name: ClassVar[str] = "quantize-weights"
    phase: ClassVar[Phase] = Phase.ROUNDING
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS | Effect.QUANTIZES_WEIGHTS
    before: ClassVar[tuple[str, ...]] = ("quantize-weights", "cast-weights")
    required: ClassVar[bool] = True

    bits: int = 8
    group_size: int = 0
    symmetric: bool = True
    group_scales: str = "float"
    head: bool = True
    head_bits: int = 8
    layer_bits: tuple[str, ...] = ()
    embedding: bool = True
    float_first: int = 0
    activation_bits: int = 8
    activation_layers: tuple[str, ...] = ()
    method: str = "round"
    format: str = _INTEGERS
    given: str = "keep"
    given_activation_bits: int = 8

    def leaves_class(self) -> str:
        """Codes of other numbers than integers are no checkpoint of other tools."""
        if self.format == _INTEGERS:
            return ""
        return "weights are codes of a table or of floats, not integers"

    def for_draft_layer(self, weights: Sequence[str]) -> Self:
        """The pass with 4 bits in groups for the layer's own weights: a draft step is bound by
        their bytes, and its drafts hold almost as often as with int8 (ADR 0124). They are rounded
        to nearest, as no statistics are known of their inputs; the head keeps its bits, so that
        both read one copy. Types that a recipe stores weights in have one format for all.
        """
        if self.format != _INTEGERS:
            return self.with_options({"method": "round"})
        own = not self.stated_options().keys() & {"bits", "group_size", "symmetric", "layer_bits"}
        if own:
            # The target is in int8 per channel, its head too: integer scales have faster kernels.
            in_groups = {"bits": _DRAFT_BITS, "group_size": _DRAFT_GROUP, "head_bits": 8}
            scales = {"symmetric": False, "group_scales": "int"}
            return self.with_options({"method": "round", **in_groups, **scales})
        group = self.group_size or _DRAFT_GROUP
        formats = [f"{name}={_DRAFT_BITS}g{group}" for name in weights]
        return self.with_options({"method": "round", "layer_bits": [*self.layer_bits, *formats]})

    def __post_init__(self) -> None:
        """Refuse options that no backend takes.

        Raises:
            InputError: An option is out of range; named with what is possible.
        """
        self.check_option("format", (_INTEGERS, *STORED))
        if self.format != _INTEGERS:
            self.check_option("method", ("round", "gptq"))
            for option in sorted(self.stated_options().keys() - _GENERAL):
                self._refuse(
                    f"format={self.format} takes no {option}: its bits and groups are its own, and "
                    "head and embedding stay float",
                    "leave it out",
                )
            return
        self.check_option("given", get_args(Keep))
        self.check_option("bits", BITS)
        self.check_option("head_bits", BITS)
        self.check_option("group_size", (0, *GROUP_SIZES))
        self.check_option("activation_bits", (8, 16))
        self.check_option("given_activation_bits", (8, 16))
        if self.activation_layers and self.activation_bits == 8:
            self._refuse("activation_layers needs activation_bits=16", "set it, or name no layers")
        self.check_option("group_scales", ("float", "int"))
        self.check_option("method", ("round", "gptq"))
        integer = self.group_scales == "int"
        if integer and (self.bits == 8 or self.symmetric):
            self._refuse(
                "integer group scales are for asymmetric weights of fewer than 8 bits",
                "set bits=4 and symmetric=false, or group_scales=float",
            )
        if not integer and self.bits not in (8, 4):
            problem = f"bits={self.bits} needs integer scales of groups"
            self._refuse(problem, "set group_scales=int, or bits=4")
        if not self.group_size and (self.bits != 8 or not self.symmetric):
            self._refuse(
                f"{'asymmetric' if self.bits == 8 else f'int{self.bits}'} weights need groups",
                f"set group_size to one of {GROUP_SIZES}",
            )
        if self.head and not integer and self.head_bits not in (8, self.bits):
            self._refuse(
                f"head_bits={self.head_bits} needs integer scales of groups",
                "set group_scales=int, or head_bits=8",
            )
        if not 0 <= self.float_first <= _MOST_FIRST:
            self._refuse(f"float_first is {self.float_first}", f"0 to {_MOST_FIRST}")
        if self.float_first and self.method != "round":
            self._refuse("float_first goes with method=round", "leave one of them out")
        self.layer_schemes  # noqa: B018 - reads them

    @cached_property
    def layer_schemes(self) -> LayerSchemes:
        """The schemes that ``layer_bits`` names."""
        where = f"pass {self.name}"
        if not self.layer_bits:
            return LayerSchemes({}, where)
        return LayerSchemes.read(self.layer_bits, self.scheme(self.bits), where)

    def _refuse(self, message: str, hint: str) -> NoReturn:
        raise InputError(message, where=f"pass {self.name}", hint=hint)

    def samples(self) -> Sequence[ir.Node]:
        """An embedding, a linear layer and a head; a layer of each format beside."""
        formats = sorted({format_text(one) for one in self.layer_schemes.by_name.values()})
        plain = replace(self, layer_bits=(), activation_layers=())
        each = (replace(plain, layer_bits=(f"linear={one}",)) for one in formats)
        return [node for one in (plain, *each) for node in sample_nodes(one)]

    def for_part(self, part: ir.Model) -> QuantizeWeights:
        """Without formats of weights that the part lacks."""
        layers = _layers(part)
        one = replace(self, layer_bits=self.layer_schemes.texts_of(layers))
        wide = patterns_of(layers, self.activation_layers)
        none_left = self.activation_layers and not wide
        bits = 8 if none_left else self.activation_bits
        return replace(one, activation_bits=bits, activation_layers=wide)

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """Factors of Hessians, with GPTQ: of all layers, unless a pass has rounded these before."""
        from optc.passes.calibrating.working_bytes import rounding

        if self.method != "gptq":
            return NO_COSTS
        rounded = any(one.name == "propagate-errors" for one in context.earlier)
        return PassCosts(reading=rounding(model, KEPT, head_only=rounded))

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        if context.dry and self.method != "round":  # other methods give the same grids
            return replace(self, method="round").run(model, context)
        report = PassReport()
        head = head_of(model)
        factors = Factors(calibration_of(model)) if self.method == "gptq" else None
        if self.format != _INTEGERS:
            return store_layers(model, STORED[self.format], factors, f"pass {self.name}")
        work = QuantizedLayers(model, report, factors, self.given_weights())
        layers = _layers(model)
        self.layer_schemes.check_names(layers)
        wide = named_weights(layers, self.activation_layers, f"pass {self.name}")
        first = self.float_inputs(model)
        any_kept = False  # the head comes last
        for node in list(model.graph):
            linear, experts = find_linear(node), find_expert_linear(node)
            if experts is not None:
                work.quantize_experts(experts, self.scheme_of(experts.linear, report))
            if linear is None:
                continue
            if feeds_router(linear.output):
                report.skip(linear.matmul, ROUTER_STAYS)
                continue
            if linear.x in first:
                report.skip(linear.matmul, f"it reads one of the first {self.float_first} inputs")
                continue
            is_head = head is not None and linear.initializer is head.initializer
            if is_head and not self.head:
                report.skip(linear.matmul, "the head stays float (head=false)")
                continue
            scheme = self.scheme_of(linear, report, head=is_head)
            bits = self.activation_bits if linear.initializer in wide else 8
            kept = self.keeps_grid(linear, scheme, head=is_head)
            any_kept = any_kept or kept
            if kept or (is_head and any_kept):
                bits = max(bits, self.given_activation_bits)
            work.quantize_linear(linear, scheme, bits, table=is_head)
        if self.embedding:
            tied = work.weights.get(head.initializer) if head is not None else None
            work.quantize_embeddings(head.weight if head is not None else None, tied)
        remove_unused(model)
        report.facts = work.facts()
        report.warnings += work.warnings()
        layers = [one for one in layers if not feeds_router(one.output) and one.x not in first]
        asked = sum(weights_in(one) for one in layers)
        report.judge_missed(asked, f"of the {self.bits} bits that were asked for")
        return report

    def float_inputs(self, model: ir.Model) -> set[ir.Value]:
        """The inputs that `float_first` is about; merging layers and rotating changes none."""
        inputs = dict.fromkeys(one.x for one in find_linears(model))
        return set(list(inputs)[: self.float_first])

    def scheme_of(self, linear: Linear, report: PassReport, *, head: bool = False) -> Scheme:
        """The grid of a layer's weight; that it is another one than asked for goes into the report.

        Layers that are merged later get the one that the merged layer has: it depends on K,
        ``layer_bits``, which is refused if tensors of a merged weight differ, and whether one was
        pruned.
        """
        given = self.layer_schemes.of(linear)
        if given is not None:
            scheme = fitting(given, linear, report)
        elif head and self.head_bits == 8 != self.bits:
            scheme = PER_CHANNEL
        else:
            scheme = fitting(self.scheme(self.head_bits if head else self.bits), linear, report)
        return replace(scheme, zeros=linear.pruned)

    def keeps_grid(self, linear: Linear, scheme: Scheme, *, head: bool) -> bool:
        """True if a weight stays on a grid of the checkpoint that is too coarse to leave: one of 8
        bits loses next to nothing where it is rounded again."""
        kept = self.given_weights().rows(linear.weight, scheme, linear.name, table=head)
        return kept is not None and kept.bits < 8

    def given_weights(self) -> GivenWeights:
        """The rules for weights that are quantized already."""
        return GivenWeights(cast("Keep", self.given))

    def scheme(self, bits: int) -> Scheme:
        """The grid for weights of so many bits.

        Raises:
            InputError: The format is not that of integers, which who asks for a grid needs.
        """
        if self.format != _INTEGERS:
            self._refuse(
                f"format={self.format} goes with no pass that rounds to integers before it",
                "leave propagate-errors, allocate-bits and smooth: {method: awq} out",
            )
        return Scheme(bits, self.group_size, self.symmetric, self.group_scales == "int")


def quantize_behind(one: Pass, later: Sequence[Pass], *, floats: bool = False) -> QuantizeWeights:
    """The ``quantize-weights`` that comes after a pass which works for it.

    Args:
        one: The pass.
        later: Those behind it.
        floats: It leaves alone what `QuantizeWeights.float_first` does.

    Raises:
        InputError: There is none, or it has layers that stay float, which the pass does not know.
    """
    for other in later:
        if isinstance(other, QuantizeWeights):
            if other.float_first and not floats:
                raise InputError(
                    "quantize-weights.float_first leaves layers alone that this pass changes",
                    where=f"pass {one.name}",
                    hint="leave one of them out",
                )
            return other
    raise InputError(
        "no quantize-weights comes after it",
        where=f"pass {one.name}",
        hint="leave it out, or put quantize-weights behind it",
    )


def _layers(model: ir.Model) -> list[Linear]:
    """All layers whose weights may have formats of their own."""
    experts = find_expert_linears(model.graph)
    return [*find_linears(model), *(one.linear for one in experts)]
