"""Body of the router of a mixture of experts: which experts a token gets, with which weights.

One operator says all the routings that are in use: softmax before or after the choice (Shazeer et
al., arXiv:1701.06538; Mixtral, arXiv:2401.04088), sigmoids with a bias that corrects the choice
alone, choice within a few groups of experts (DeepSeek-V3, arXiv:2412.19437), and one choice after
the other, each weighed among the rivals that come near it (SparseMixer-v2, arXiv:2409.12136).
"""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, Operator, integers, real

SCORINGS = ("softmax", "sigmoid", "softmax_after", "sigmoid_after", "sparse_mixer")
GROUP_SCORES = ("max", "top2_sum")


def _top_k_router(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: logits [..., E] to the k experts of the largest scores, and their weights.

    ONNX's TopK puts the lower index first among equal values.

    Raises:
        ValueError: An unknown scoring or group score.
    """
    scoring, group_score = attributes["scoring"], attributes["group_score"]
    if scoring not in SCORINGS or group_score not in GROUP_SCORES:
        raise ValueError(f"{scoring!r} of {SCORINGS}, {group_score!r} of {GROUP_SCORES}")
    if scoring == "sparse_mixer" and (
        "correction_bias" in present or int(attributes["groups"]) > 1
    ):
        raise ValueError("sparse_mixer takes no correction bias and no groups")
    scored = {"softmax": "Softmax <axis: int = -1>", "sigmoid": "Sigmoid"}
    lines = [f"scores = {scored.get(str(scoring), 'Identity')} (logits)"]
    choice = "scores"
    if "correction_bias" in present:
        lines.append("corrected = Add (scores, correction_bias)")
        choice = "corrected"
    if int(attributes["groups"]) > 1:
        lines += _within_groups(choice, attributes)
        choice = "allowed"
    lines += [
        integers("wanted", (int(attributes["top_k"]),)),
        f"chosen_scores, chosen = TopK <axis: int = -1, largest: int = 1, sorted: int = 1>"
        f" ({choice}, wanted)",
        "experts = Cast <to: int = 6> (chosen)",
        "picked = GatherElements <axis: int = -1> (scores, chosen)",
    ]
    return "\n".join([*lines, *_weights(attributes)])


def _weights(attributes: Attributes) -> list[str]:
    """Statements: the weights from what was ``picked`` of the scores [..., k]."""
    steps: list[list[str]] = []
    if attributes["scoring"] == "sparse_mixer":
        steps.append(_among_rivals(int(attributes["top_k"]), float(attributes["threshold"])))
    if attributes["scoring"] == "sigmoid_after":
        steps.append(["{out} = Sigmoid ({x})"])
    if attributes["scoring"] == "softmax_after":
        steps.append(["{out} = Softmax <axis: int = -1> ({x})"])
    if attributes["normalize"]:
        steps.append(
            [
                integers("over_chosen", (-1,)),
                real("norm_epsilon_value", float(attributes["norm_epsilon"])),
                "total = ReduceSum <keepdims: int = 1> ({x}, over_chosen)",
                "divisor = Add (total, norm_epsilon_value)",
                "{out} = Div ({x}, divisor)",
            ]
        )
    if float(attributes["scale"]) != 1.0:
        factor = real("factor", float(attributes["scale"]))
        steps.append([factor, "{out} = Mul ({x}, factor)"])
    if not steps:
        return ["weights = Identity (picked)"]
    lines, given = [], "picked"
    for index, step in enumerate(steps):
        result = "weights" if index == len(steps) - 1 else f"weighed_{index}"
        lines += [line.replace("{out}", result).replace("{x}", given) for line in step]
        given = result
    return lines


def _among_rivals(top_k: int, threshold: float) -> list[str]:
    """Statements: each chosen expert's softmax among those that are left when it is chosen, the
    largest, and of these its rivals: the gap to them is at most ``threshold`` of the larger of
    their magnitude and the expert's logit."""
    lines = [
        integers("rivals_axis", (-1,)),
        real("most_apart", threshold),
        real("no_rival", float("-inf")),
        "sizes = Abs (scores)",
        "left_0 = Identity (scores)",
    ]
    for turn in range(top_k):
        lines += [
            integers(f"turn_{turn}", (turn,)),
            integers(f"turn_end_{turn}", (turn + 1,)),
            f"own_{turn} = Slice ({{x}}, turn_{turn}, turn_end_{turn}, rivals_axis)",
            f"place_{turn} = Slice (chosen, turn_{turn}, turn_end_{turn}, rivals_axis)",
            f"gap_{turn} = Sub (own_{turn}, scores)",
            f"size_{turn} = Max (sizes, own_{turn})",
            f"ratio_{turn} = Div (gap_{turn}, size_{turn})",
            f"far_{turn} = Greater (ratio_{turn}, most_apart)",
            f"kept_{turn} = Where (far_{turn}, no_rival, left_{turn})",
            f"shifted_{turn} = Sub (kept_{turn}, own_{turn})",
            f"raised_{turn} = Exp (shifted_{turn})",
            f"sum_{turn} = ReduceSum <keepdims: int = 1> (raised_{turn}, rivals_axis)",
            f"weight_{turn} = Reciprocal (sum_{turn})",
            f"place_shape_{turn} = Shape (place_{turn})",
            f"taken_{turn} = Expand (no_rival, place_shape_{turn})",
            f"left_{turn + 1} = ScatterElements <axis: int = -1>"
            f" (left_{turn}, place_{turn}, taken_{turn})",
        ]
    every = ", ".join(f"weight_{turn}" for turn in range(top_k))
    return [*lines, f"{{out}} = Concat <axis: int = -1> ({every})"]


def _within_groups(choice: str, attributes: Attributes) -> list[str]:
    """Statements: ``allowed`` is ``choice`` in the groups of the largest scores, else -inf."""
    groups, top_groups = int(attributes["groups"]), int(attributes["top_groups"])
    if attributes["group_score"] == "max":
        score = [
            integers("within", (-1,)),
            "group_scores = ReduceMax <keepdims: int = 0> (grouped, within)",
        ]
    else:
        score = [
            integers("within", (-1,)),
            integers("two", (2,)),
            "best_two, best_places = TopK <axis: int = -1> (grouped, two)",
            "group_scores = ReduceSum <keepdims: int = 0> (best_two, within)",
        ]
    return [
        integers("group_tail", (groups, -1)),
        f"ahead = Shape <end: int = -1> ({choice})",
        "grouped_shape = Concat <axis: int = 0> (ahead, group_tail)",
        f"grouped = Reshape ({choice}, grouped_shape)",
        *score,
        integers("groups_wanted", (top_groups,)),
        "best_groups, group_places = TopK <axis: int = -1> (group_scores, groups_wanted)",
        "marks_shape = Shape (group_scores)",
        "no_marks = ConstantOfShape (marks_shape)",
        "places_shape = Shape (group_places)",
        "all_marks = ConstantOfShape <value: tensor = float[1] {1.0}> (places_shape)",
        "marks = ScatterElements <axis: int = -1> (no_marks, group_places, all_marks)",
        "marked = Cast <to: int = 9> (marks)",
        "marked_column = Unsqueeze (marked, within)",
        real("never", float("-inf")),
        "allowed_groups = Where (marked_column, grouped, never)",
        f"all_shape = Shape ({choice})",
        "allowed = Reshape (allowed_groups, all_shape)",
    ]


OPERATORS = (
    Operator(
        "TopKRouter",
        ("logits", "correction_bias?"),
        ("weights: float", "experts: int32"),
        {
            "top_k": int,
            "scoring": str,
            "normalize": int,
            "norm_epsilon": float,
            "scale": float,
            "groups": int,
            "top_groups": int,
            "group_score": str,
        },
        _top_k_router,
        defaults={"threshold": 0.0},
    ),
)
