"""Which test files are run for a module: its mirrored one, and those that are named here."""

from __future__ import annotations

from pathlib import Path, PurePath

#: Tests of modules that are tested through others too, or only so; quick ones.
TESTED_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "optc/artifact/artifact.py": (
        "tests/artifact/test_verify.py",
        "tests/artifact/test_measured.py",
    ),
    "optc/artifact/files.py": ("tests/artifact/test_artifact.py",),
    "optc/artifact/jsonio.py": ("tests/artifact/test_manifest.py",),
    "optc/artifact/parse_manifest.py": ("tests/artifact/test_manifest.py",),
    "optc/artifact/verify.py": ("tests/artifact/test_artifact.py",),
    "optc/artifact/writer.py": (
        "tests/artifact/test_reservation.py",
        "tests/artifact/test_writer_parents.py",
    ),
    "optc/runtime/beams/group.py": ("tests/runtime/beams/test_beams.py",),
    "optc/runtime/beams/search.py": ("tests/runtime/beams/test_beams.py",),
    "optc/runtime/kv/block_pool.py": ("tests/runtime/kv/test_kv_blocks.py",),
    "optc/runtime/loop/core.py": (
        "tests/runtime/requests/test_deadlines.py",
        "tests/runtime/test_fork.py",
        "tests/runtime/kv/test_prefix_cache_core.py",
    ),
    "optc/runtime/kv/kv_blocks.py": ("tests/runtime/kv/test_prefix_cache.py",),
    "optc/runtime/params.py": ("tests/runtime/beams/test_params.py",),
    "optc/runtime/kv/prefix_cache.py": ("tests/runtime/kv/test_prefix_cache_core.py",),
    "optc/runtime/sampling/sampler.py": ("tests/runtime/sampling/test_sampler_mask.py",),
    "optc/runtime/scheduling/scheduler.py": (
        "tests/runtime/scheduling/test_batching.py",
        "tests/runtime/requests/test_deadlines.py",
        "tests/runtime/scheduling/test_priorities.py",
        "tests/runtime/speculative/test_speculation.py",
    ),
    "optc/runtime/speculative/planning/break_even.py": (
        "tests/runtime/speculative/planning/test_break_even_calls.py",
    ),
    "optc/runtime/speculative/planning/chain_planner.py": (
        "tests/runtime/speculative/planning/test_break_even.py",
    ),
    "optc/runtime/speculative/drafters/drafted_text.py": (
        "tests/runtime/speculative/drafters/test_draft_model.py",
    ),
    "optc/runtime/speculative/drafting.py": ("tests/runtime/speculative/test_speculation.py",),
    "optc/runtime/speculative/kinds.py": ("tests/runtime/speculative/test_speculation.py",),
    "optc/runtime/speculative/planning/ledger.py": (
        "tests/runtime/speculative/planning/test_break_even.py",
    ),
    "optc/runtime/speculative/planning/live_costs.py": (
        "tests/runtime/speculative/planning/test_break_even.py",
    ),
    "optc/runtime/speculative/drafters/medusa_tree.py": (
        "tests/runtime/speculative/drafters/test_medusa.py",
    ),
    "optc/runtime/speculative/drafters/ngram.py": (
        "tests/runtime/speculative/drafters/test_ngram_pool.py",
    ),
    "optc/runtime/speculative/drafters/ngram_pool.py": (
        "tests/runtime/speculative/drafters/test_ngram.py",
    ),
    "optc/runtime/speculative/proposer.py": (
        "tests/runtime/speculative/drafters/test_lookahead.py",
    ),
    "optc/runtime/speculative/planning/rate.py": (
        "tests/runtime/speculative/planning/test_break_even.py",
    ),
    "optc/runtime/speculative/verifier.py": ("tests/runtime/speculative/test_tree_verifier.py",),
    "optc/runtime/metrics/request_metrics.py": ("tests/runtime/metrics/test_engine_metrics.py",),
    "optc/runtime/text/chat_values.py": ("tests/runtime/text/test_chat_template.py",),
    "optc/runtime/text/template_budget.py": ("tests/runtime/text/test_chat_template.py",),
    "optc/runtime/text/template_sandbox.py": ("tests/runtime/text/test_chat_template.py",),
    "optc/runtime/structured/compiler.py": ("tests/runtime/structured/test_structure.py",),
    "optc/runtime/structured/complaints.py": ("tests/runtime/structured/test_structure.py",),
    "optc/runtime/structured/constraint.py": ("tests/runtime/structured/test_structured_ends.py",),
    "optc/runtime/structured/masks.py": ("tests/runtime/structured/test_structured_core.py",),
}


def mirrored_test(module: str) -> str:
    """``tests/a/test_b.py`` for ``optc/a/b.py`` and for ``a/b.py``."""
    path = PurePath(module)
    folders = path.parts[1:-1] if path.parts[0] == "optc" else path.parts[:-1]
    return str(PurePath("tests", *folders, f"test_{path.name}"))


def tests_of(root: Path, module: str) -> list[str]:
    """Test files of a module; none if nothing tests it."""
    mirrored = mirrored_test(module)
    own = [mirrored] if (root / mirrored).exists() else []
    return own + [test for test in TESTED_ELSEWHERE.get(module, ()) if test != mirrored]
