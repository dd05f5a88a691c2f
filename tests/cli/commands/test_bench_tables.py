"""The tables of ``optc bench``."""

from __future__ import annotations

from typing import Any

import pytest

from optc.cli.commands.bench_tables import _short, ceilings_text, print_profile, print_results

CEILINGS = {
    "read_bytes": 11_000_000,
    "read_gb_per_s": {"best": 115.06, "median": 89.4},
    "int8_gop_per_s": {"best": 1069.2, "median": 1044.0},
}


def kernel(name: str, **more: Any) -> dict[str, Any]:
    plain = {"shape": "4x8", "calls": 1, "ms": 0.5, "bytes": 0, "ops": 0, "gap_ms": 0.25}
    return {"name": name, **plain, "gb_per_s": None, "gop_per_s": None, "of_roof": None, **more}


def step(phase: str, kernels: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    times = {"step_ms": 10.0, "kernel_ms": 7.0, "outside_kernels_ms": 3.0, "roof_ms": 5.0}
    shape = {"phase": phase, "sequences": 2, "rows": 3, "context": 4, "kernels": kernels}
    return {**times, **shape, "of_roof": 0.5, "gap_ms": 5.0, "mbu": None, "mfu": None, **more}


def test_ceilings_in_one_line() -> None:
    assert ceilings_text(CEILINGS) == (
        "ceilings, best (median): read 115.1 (89.4) GB/s, int8 1069 (1044) Gop/s; read over 11 MB"
    )


def test_results(capsys: pytest.CaptureFixture[str]) -> None:
    result = {
        "concurrency": 8,
        "prompt_tokens": 16,
        "output_tokens": 4,
        "prefill_tokens_per_s": 1234.56,
        "decode_tokens_per_s": None,
        "ttft_ms": {"p50": 1.5, "p90": 2.5, "p99": 3.5},
        "tpot_ms": {"p50": 0.5, "p90": 0.75, "p99": 1.0},
        "mbu": 0.12345,
        "mfu": None,
    }
    print_results("a", {"results": [result], "ceilings": None})
    out = capsys.readouterr().out
    assert out.startswith("a: 16 prompt tokens, 4 new ones\n")
    assert out.splitlines()[-2].split() == [
        "8",
        "1235",
        "-",
        "1.5",
        "0.5",
        "0.75",
        "1",
        "0.123",
        "-",
    ]
    assert "ceilings" not in out
    print_results("a", {"results": [result], "ceilings": CEILINGS})
    assert "ceilings, best (median): read" in capsys.readouterr().out


def test_a_profile_has_twelve_kernels_and_a_line_for_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    moving = kernel("k0", calls=5, bytes=2e6, ops=3e6, gb_per_s=4.0, gop_per_s=6.0, of_roof=0.25)
    kernels = [moving, *(kernel(f"k{i}") for i in range(1, 14))]
    mbu = {"median": 0.5, "low": 0.4, "high": 0.6}
    values = {"profile": [step("decode", kernels, mbu=mbu)], "ceilings": CEILINGS}
    print_profile("a", values)
    out = capsys.readouterr().out
    assert out.startswith("a: decode, 2 sequences, 3 rows, 4 tokens of context\n")
    rows = [line.split() for line in out.splitlines()]
    assert ["k0", "4x8", "5", "0.500", "2.000", "4.000", "3.000", "6.000", "0.250", "0.250"] in rows
    assert ["k11", "4x8", "1", "0.500", "-", "-", "-", "-", "-", "0.250"] in rows
    assert ["2", "others", "2", "1.000", "-", "-", "-", "-", "-", "0.500"] in rows
    assert not any(row[:1] == ["k12"] for row in rows)
    assert (
        "step 10 ms = 7 ms in kernels + 3 ms around them; 5 ms roof (0.5 of it reached), 5 ms gap; "
        "MBU 0.5 (0.4 to 0.6)" in " ".join(out.split())
    )


def test_prefill_states_mfu(capsys: pytest.CaptureFixture[str]) -> None:
    share = {"median": 0.3, "low": 0.2, "high": 0.4}
    values = {"profile": [step("prefill", [], mbu=share, mfu=share)], "ceilings": CEILINGS}
    print_profile("a", values)
    out = capsys.readouterr().out
    assert "; MFU 0.3 (0.2 to 0.4)" in out
    assert "MBU" not in out
    print_profile("a", {"profile": [step("decode", [])], "ceilings": CEILINGS})
    assert "MBU" not in capsys.readouterr().out


def test_cells_are_five_characters_or_whole_numbers() -> None:
    values = (None, 0.0, 0.12345, 12.3456, 99.99, 100.4, 123456.7)
    assert [_short(v) for v in values] == ["-", "0.000", "0.123", "12.34", "99.99", "100", "123457"]


def test_reads_from_the_disk_have_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    times = {"p50": 1.5, "p90": 2.5, "p99": 3.5}
    result = {
        "concurrency": 2,
        "prompt_tokens": 16,
        "output_tokens": 4,
        "prefill_tokens_per_s": 1.0,
        "decode_tokens_per_s": 1.0,
        "ttft_ms": times,
        "tpot_ms": times,
        "mbu": None,
        "mfu": None,
        "disk_bytes_per_token": 100e6,
        "page_faults_per_token": 3.5,
    }
    disk = {"disk_gb_per_s": {"best": 0.7, "median": 0.5}}
    print_results("a", {"results": [result], "ceilings": {**CEILINGS, **disk}})
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "2 at once: 95.4 MiB read from the disk for a token and its share of the prompt, 3.5 page "
        "faults that waited for it; at the disk's 0.7 GB/s at most 7 such tokens/s"
    ) in out
    assert "disk 0.7 (0.5) GB/s" in out
    print_results("a", {"results": [result], "ceilings": CEILINGS})
    assert "disk" not in capsys.readouterr().out  # what packages read once
    result["disk_bytes_per_token"] = 1000.0
    print_results("a", {"results": [result], "ceilings": {**CEILINGS, **disk}})
    assert "read from the disk" not in capsys.readouterr().out
