"""How many tokens each expert gets: counted, kept, and those with hardly any named."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from optc.ir.experts import find_expert_linears
from optc.ir.functions import attributes_of
from optc.passes.calibrating.adequacy import Adequacy
from optc.passes.calibrating.experts.counts import expert_facts, expert_warnings, hardly_seen
from optc.passes.numerics.statistics import EXPERT_TOKENS
from optc.passes.quantize.calibrate import Calibrate
from optc.proof.reference.calibration import calibration_of
from tests.support.experts.models import Experts, expert_model
from tests.support.letters import letters_folder
from tests.support.models import Dense


def test_each_token_counts_for_its_experts(tmp_path: Path) -> None:
    folder = letters_folder(tmp_path, 140)
    model = expert_model(Dense(windows=(0, 0), vocab=97), Experts(count=5, chosen=2))
    calibrate = Calibrate(
        text=str(folder / "text.txt"), folder=str(folder), windows=3, window_tokens=16
    )
    report = calibrate.run(model)
    store = calibration_of(model)
    for index in (0, 1):
        counts = store.find(f"{index}.gate_up", EXPERT_TOKENS)
        assert counts is not None
        assert (counts.shape, counts.sum()) == ((5,), 3 * 16 * 2)
        np.testing.assert_array_equal(store.find(f"{index}.down", EXPERT_TOKENS), counts)
    assert report.facts["experts"] == 10
    least = report.facts["least_tokens_of_expert"]
    counts = store.find(least["weight"], EXPERT_TOKENS)
    assert counts is not None
    assert counts[least["expert"]] == least["tokens"] == counts.min()
    assert len(find_expert_linears(model.graph)) == 4
    router = next(node for node in model.graph if node.op_type == "TopKRouter")
    assert attributes_of(router)["top_k"] == 2


COUNTS = {"layers.0": [100, 95, 4, 1], "layers.1": [50, 50, 50, 50]}


def test_experts_hardly_seen_are_named() -> None:
    assert hardly_seen(COUNTS) == [("layers.0", 3, 1), ("layers.0", 2, 4)]
    adequacy = Adequacy(moments=False)
    for name, counts in COUNTS.items():
        adequacy.add_experts(name, np.array(counts))
    other = Adequacy(moments=False)
    other.restore(adequacy.state())
    assert other.facts() == {
        "least_tokens_of_expert": {"weight": "layers.0", "expert": 3, "tokens": 1},
        "experts": 8,
        "experts_hardly_seen": 2,
    }
    assert other.warnings() == [
        "the calibration text hardly reaches 2 of 8 experts: expert 3 of layers.0 gets 1 tokens; "
        "expert 2 of layers.0 gets 4 tokens; give more windows or text of other kinds"
    ]


def test_of_many_the_first_are_named() -> None:
    (line,) = expert_warnings({"w": [0] * 9 + [900]})
    assert line.count("gets 0 tokens") == 4
    assert "; and 5 more; give" in line


def test_a_model_without_experts_says_nothing_of_them() -> None:
    assert expert_facts({}) == {}
    assert expert_warnings({"w": [5, 5]}) == []
