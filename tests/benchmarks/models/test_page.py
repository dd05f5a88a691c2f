"""The page of models, and the rows that it is made of."""

from __future__ import annotations

from benchmarks.models.page import page


def test_rows_become_tables() -> None:
    real = {
        "a net": {
            "tensors-fp32": {"output_error": 1e-7, "bytes": 100},
            "vision-int8": {"sqnr_db": 31.25, "cosine_mean": 0.9996, "bytes": 30},
            "gate": "sqnr_db=20",
        },
        "another": {"tensors-fp32": {"error": "odd"}, "vision-int8": {"error": "b"}, "gate": "g"},
    }
    random = {
        "A": {"task": "t", "parameters": 1234, "tensors-fp32": {"error": 1e-6}},
        "B": {"task": "t", "error": "build: ValueError: x | y"},
    }
    nodes = {"tests": 1884, "direct": 1571, "through": 1570, "no_artifact": 9, "lost": {"n": "why"}}
    text = page({"real": real, "random": random, "nodes": nodes})
    assert "| a net | 1e-07 | 31.2 | 0.9996 | - | 30% | sqnr_db=20 |" in text
    assert "| another | odd | - | - | - | - | g; b |" in text
    assert "for 1 tasks. 1 architectures were built;" in text
    assert "1 agree with PyTorch in float32 to 0.0001 of the largest output" in text
    assert "| A | t | 1,234 | 1.0e-06 | - | - |  |" in text
    assert "| B | build: ValueError: x / y |" in text
    assert "1,571 as they are" in text
    assert "| n | why |" in text
