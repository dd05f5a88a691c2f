from __future__ import annotations

import pytest

from optc.artifact.store.oci.place import tags_hint


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "there are v1"),
        (2, "there are v1, v2"),
        (12, "there are v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12"),
        (13, "there are v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13 and 1 more"),
        (
            99,
            "there are v88, v89, v90, v91, v92, v93, v94, v95, v96, v97, v98, v99 and 87 more",
        ),
    ],
)
def test_the_last_tags_are_named_and_others_counted(count: int, said: str) -> None:
    assert tags_hint([f"v{number}" for number in range(1, count + 1)]) == said
