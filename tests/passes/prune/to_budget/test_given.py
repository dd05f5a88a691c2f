"""Numbers of neurons that are stated."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.pipeline.base import PassReport
from optc.passes.prune.structured.channels import NEURONS, find_channels
from optc.passes.prune.to_budget.given import given_counts


def test_what_is_not_named_stays_whole(model: ir.Model) -> None:
    channels = find_channels(model, NEURONS, PassReport())
    assert given_counts(["l1.down=40"], channels, "p") == [96, 40]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("l0.down", "'l0.down' is not weight=number"),
        ("l0.down=half", "'l0.down=half' is not weight=number"),
        (
            "l9.down=4",
            "no MLP ends with the weight 'l9.down' (there are l0.down, l1.down, …)",
        ),
        ("l0.down=0", "'l0.down=0': the MLP has 96 neurons"),
        ("l0.down=97", "'l0.down=97': the MLP has 96 neurons"),
    ],
)
def test_what_is_not_there_is_refused(model: ir.Model, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        given_counts([text], find_channels(model, NEURONS, PassReport()), "p")
    assert str(caught.value) == f"pass p, left: {message}"
