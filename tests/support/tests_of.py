"""Which test files are run for a module: its mirrored one, and those that are named here."""

from __future__ import annotations

from pathlib import Path, PurePath

#: Tests of modules that are tested through others too, or only so; quick ones.
TESTED_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "optc/proof/conversations/read.py": ("tests/proof/conversations/test_conversation.py",),
    "optc/proof/conversations/sequences.py": (
        "tests/proof/conversations/test_chat.py",
        "tests/proof/conversations/test_scored.py",
    ),
    "optc/proof/conversations/tools_in_text.py": ("tests/proof/conversations/test_chat.py",),
    "optc/proof/gates/answers/score.py": ("tests/proof/gates/answers/test_measure.py",),
    "optc/proof/conditions/decisions.py": ("tests/cli/judged/test_decisions.py",),
    "backends/tensorrt/tensor_list.py": ("tests/backends/tensorrt/weights/test_tensor_list.py",),
    "optc/artifact/artifact.py": (
        "tests/artifact/test_verify.py",
        "tests/artifact/test_measured.py",
    ),
    "optc/artifact/files.py": ("tests/artifact/test_artifact.py",),
    "optc/artifact/jsonio.py": ("tests/artifact/test_manifest.py",),
    "optc/artifact/manifest.py": ("tests/artifact/test_parse_manifest.py",),
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
        "tests/runtime/speculative/test_speculation.py",
        "tests/runtime/metrics/test_engine_metrics.py",
        "tests/runtime/structured/test_structured_core.py",
    ),
    "optc/runtime/kv/kv_blocks.py": (
        "tests/runtime/kv/test_prefix_cache.py",
        "tests/runtime/test_fork.py",
        "tests/runtime/beams/test_beams.py",
        "tests/runtime/kv/test_prefix_cache_core.py",
        "tests/runtime/spill/test_spill.py",
    ),
    "optc/runtime/params.py": (
        "tests/runtime/beams/test_params.py",
        "tests/runtime/sampling/test_filters.py",
    ),
    "optc/runtime/kv/prefix_cache.py": (
        "tests/runtime/kv/test_prefix_cache_core.py",
        "tests/runtime/spill/test_spill.py",
        "tests/runtime/kv/test_eviction.py",
    ),
    "optc/runtime/sampling/sampler.py": ("tests/runtime/sampling/test_sampler_mask.py",),
    "optc/runtime/scheduling/scheduler.py": (
        "tests/runtime/requests/test_deadlines.py",
        "tests/runtime/scheduling/test_priorities.py",
        "tests/runtime/speculative/test_speculation.py",
        "tests/runtime/test_fork.py",
        "tests/runtime/beams/test_beams.py",
        "tests/runtime/kv/test_prefix_cache_core.py",
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
    "optc/compiling/drafts/distilled.py": ("tests/cli/commands/compile/test_compile_self_made.py",),
    "optc/compiling/training/child.py": ("tests/cli/commands/compile/test_compile_self_made.py",),
    "optc/compiling/drafts/eagle.py": ("tests/cli/commands/compile/test_compile_eagle.py",),
    "optc/importer/additions/eagle.py": ("tests/compiling/drafts/test_eagle_layer.py",),
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
    "optc/runtime/step/verifier.py": ("tests/runtime/speculative/test_tree_verifier.py",),
    "optc/runtime/requests/request_metrics.py": (
        "tests/runtime/metrics/test_engine_metrics.py",
        "tests/runtime/metrics/test_fresh.py",
    ),
    "optc/runtime/text/chat_values.py": ("tests/runtime/text/test_chat_template.py",),
    "optc/runtime/text/template_budget.py": (
        "tests/runtime/text/test_chat_template.py",
        "tests/runtime/text/test_template_attacks.py",
    ),
    "optc/runtime/text/template_sandbox.py": (
        "tests/runtime/text/test_chat_features.py",
        "tests/runtime/text/test_chat_template.py",
        "tests/runtime/text/test_template_attacks.py",
    ),
    "optc/runtime/structured/compiler.py": ("tests/runtime/structured/test_structure.py",),
    "optc/runtime/structured/complaints.py": ("tests/runtime/structured/test_structure.py",),
    "optc/runtime/structured/constraint.py": ("tests/runtime/structured/test_structured_ends.py",),
    "optc/runtime/step/masks.py": ("tests/runtime/structured/test_structured_core.py",),
    "optc/runtime/handle.py": ("tests/runtime/threads/test_own_process.py",),
    "optc/runtime/engine.py": (
        "tests/runtime/threads/test_own_process.py",
        "tests/runtime/metrics/test_engine_health.py",
    ),
    "optc/runtime/loop/worker.py": (
        "tests/runtime/threads/test_own_process.py",
        "tests/runtime/test_swap.py",
        "tests/runtime/test_sleep.py",
        "tests/runtime/scoring/test_score.py",
        "tests/runtime/adapters/test_input_processor.py",
    ),
    "optc/runtime/step/batch.py": (
        "tests/runtime/test_fork.py",
        "tests/runtime/step/test_kv_copies.py",
    ),
    "optc/runtime/metrics/engine_metrics.py": ("tests/runtime/metrics/test_fresh.py",),
    "optc/runtime/metrics/step_workload.py": ("tests/runtime/metrics/test_step_counters.py",),
    "optc/runtime/submitting/input_processor.py": (
        "tests/runtime/adapters/test_input_processor.py",
        "tests/runtime/structured/test_structured_engine.py",
    ),
    "optc/runtime/speculative/speculator.py": ("tests/runtime/speculative/test_speculation.py",),
    "optc/runtime/speculative/drafters/draft_model.py": (
        "tests/runtime/speculative/test_speculation.py",
    ),
    "optc/runtime/speculative/planning/plan_drafts.py": (
        "tests/runtime/speculative/test_speculation.py",
    ),
    "optc/runtime/kv/spill_plan.py": ("tests/runtime/spill/test_spill.py",),
    "optc/runtime/text/control_tokens.py": ("tests/runtime/text/test_tokenizer.py",),
    "passes/prune/to_budget/losses.py": ("tests/passes/prune/to_budget/test_prune_to_budget.py",),
    "passes/prune/to_budget/places.py": ("tests/passes/prune/to_budget/test_joint.py",),
    "passes/numerics/rounding.py": (
        "tests/passes/numerics/test_affine.py",
        "tests/passes/numerics/test_two_level.py",
    ),
    "passes/numerics/affine.py": (
        "tests/passes/numerics/test_two_level.py",
        "tests/passes/quantize/test_quantize_weights.py",
    ),
    "passes/numerics/two_level.py": ("tests/passes/numerics/test_affine.py",),
    "passes/numerics/gptq/grids.py": ("tests/passes/numerics/gptq/test_rows.py",),
    "passes/numerics/scheme.py": ("tests/passes/numerics/test_affine.py",),
    "passes/prune/structured/structures.py": ("tests/passes/prune/structured/test_prune_width.py",),
    "passes/quantize/sample.py": (
        "tests/passes/quantize/test_quantize_static.py",
        "tests/passes/quantize/test_quantize_weights.py",
    ),
    "passes/quantize/quantize_static.py": ("tests/passes/quantize/test_sample.py",),
    "passes/canonicalize/dense_form.py": ("tests/passes/canonicalize/test_canonicalize.py",),
    "passes/canonicalize/find_norms.py": ("tests/passes/canonicalize/test_canonicalize.py",),
    "passes/canonicalize/find_attention.py": (
        "tests/passes/canonicalize/test_canonicalize.py",
        "tests/passes/canonicalize/spelled/test_find_spelled.py",
    ),
    "optc/importer/tensors/modules/attending.py": (
        "tests/importer/tensors/modules/test_operators.py",
    ),
    "optc/importer/tensors/modules/averages.py": (
        "tests/importer/tensors/modules/test_operators.py",
    ),
    "optc/importer/tensors/modules/scattered.py": (
        "tests/importer/tensors/modules/test_operators.py",
    ),
    "passes/kv_cache/latents.py": ("tests/passes/kv_cache/test_latent_kv.py",),
    "passes/kv_cache/slot_attention.py": ("tests/passes/kv_cache/test_slots.py",),
    "passes/kv_cache/token_rows.py": (
        "tests/passes/kv_cache/test_slots.py",
        "tests/passes/kv_cache/test_kv_cache.py",
    ),
    "passes/canonicalize/experts/all_experts.py": (
        "tests/passes/canonicalize/experts/test_choose_experts.py",
    ),
    "passes/canonicalize/experts/factors.py": (
        "tests/passes/canonicalize/experts/test_find_router.py",
        "tests/passes/canonicalize/experts/test_choose_experts.py",
    ),
    "passes/canonicalize/experts/input_scores.py": (
        "tests/passes/canonicalize/experts/test_choose_experts.py",
    ),
    "passes/canonicalize/spread_factors.py": (
        "tests/passes/canonicalize/test_head_layer_norms.py",
        "tests/passes/canonicalize/test_fold_heads.py",
    ),
    "passes/kv_cache/convolution_pools.py": ("tests/passes/kv_cache/test_kv_cache.py",),
    "passes/kv_cache/mixer_pools.py": ("tests/passes/kv_cache/test_kv_cache.py",),
    "passes/kv_cache/recurrence_pools.py": ("tests/passes/kv_cache/test_kv_cache.py",),
    "optc/runtime/tensors/pictures.py": ("tests/runtime/tensors/test_images.py",),
    "passes/kv_cache/kv_cache.py": ("tests/passes/kv_cache/test_kv_cache_refusals.py",),
    "optc/runtime/text/tokenizer.py": (
        "tests/runtime/text/test_control_tokens.py",
        "tests/runtime/text/test_unread_variables.py",
    ),
    "optc/runtime/threads/awaiting.py": ("tests/runtime/test_handle.py",),
    "optc/runtime/submitting/submission.py": ("tests/runtime/submitting/test_input_processor.py",),
    "optc/artifact/pages/artifact_page.py": ("tests/artifact/pages/test_key_figures.py",),
    "optc/artifact/pages/sections/contexts.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/sections/divergence.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/sections/gates.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/sections/identity.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/sections/layers.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/sections/pipeline.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/sections/sizes.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/sections/speed.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/sections/subject.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/components.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/charts/axes.py": ("tests/artifact/pages/charts/test_histogram.py",),
    "backends/tvm/kernels/experts/spans.py": (
        "tests/backends/tvm/kernels/experts/test_int_experts.py",
        "tests/backends/tvm/kernels/experts/test_float_experts.py",
    ),
    "backends/tvm/kernels/matmul/bf16_rows.py": (
        "tests/backends/tvm/kernels/experts/test_float_experts.py",
        "tests/backends/tvm/kernels/matmul/test_matmul_float.py",
    ),
    "backends/tvm/kernels/matmul/rooms.py": (
        "tests/backends/tvm/kernels/experts/test_int_experts.py",
        "tests/backends/tvm/kernels/matmul/test_matmul_two_level.py",
    ),
    "backends/tvm/lowering/quantized_operands.py": (
        "tests/backends/tvm/lowering/test_lower_experts.py",
        "tests/backends/tvm/lowering/test_walk.py",
    ),
    "optc/artifact/trust/names.py": ("tests/artifact/trust/test_sign.py",),
    "optc/artifact/trust/provenance.py": ("tests/artifact/trust/test_texts.py",),
    "optc/artifact/trust/purl.py": ("tests/artifact/trust/test_texts.py",),
    "optc/artifact/trust/sbom.py": ("tests/artifact/trust/test_texts.py",),
    "optc/artifact/pages/sections/decisions.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/pages/sections/ladder.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/report_data.py": ("tests/artifact/pages/test_artifact_page.py",),
    "optc/artifact/same_engine.py": (
        "tests/artifact/patches/test_same_engine.py",
        "tests/artifact/patches/test_patches.py",
    ),
    "optc/artifact/store/oci/connection.py": (
        "tests/artifact/store/oci/test_faults.py",
        "tests/artifact/store/oci/test_registry.py",
    ),
    "optc/artifact/store/oci/patience.py": ("tests/artifact/store/oci/test_faults.py",),
    "optc/artifact/store/oci/registry.py": (
        "tests/artifact/store/oci/test_faults.py",
        "tests/artifact/store/oci/test_transfer.py",
        "tests/cli/commands/store/test_store.py",
    ),
    "optc/artifact/trust/sign.py": ("tests/cli/commands/trust/test_sign.py",),
    "optc/cli/commands/verify.py": (
        "tests/cli/commands/test_artifact_commands.py",
        "tests/cli/commands/trust/test_sign.py",
        "tests/cli/commands/patches/test_patches.py",
        "tests/cli/commands/test_verify_gates.py",
    ),
    "optc/compiling/judging/verify_gates.py": ("tests/cli/commands/test_verify_gates.py",),
    "optc/compiling/tensors/verify.py": ("tests/cli/test_tensors.py",),
    "optc/proof/gates/bisect/restore.py": ("tests/proof/gates/bisect/test_bisect.py",),
    "optc/proof/gates/bisect/step_feeds.py": ("tests/proof/gates/bisect/test_bisect.py",),
    "optc/runtime/scoring/prompt_logprobs.py": ("tests/runtime/scoring/test_score.py",),
    "optc/runtime/speech/transcriber.py": ("tests/serve/tensors/test_transcriptions.py",),
    "optc/runtime/speech/write.py": ("tests/serve/tensors/test_transcriptions.py",),
    "optc/runtime/speculative/drafters/chain_drafter.py": (
        "tests/runtime/speculative/drafters/test_draft_model.py",
        "tests/runtime/speculative/test_speculation.py",
    ),
    "optc/runtime/tensors/text_classifiers.py": (
        "tests/serve/scoring/test_routes.py",
        "tests/compiling/tensors/test_text_heads.py",
    ),
    "optc/runtime/text/named_templates.py": ("tests/runtime/text/test_chat_features.py",),
    "passes/kv_cache/layer_pools.py": ("tests/passes/kv_cache/test_slots.py",),
    "passes/quantize/rotate/blocks.py": ("tests/passes/quantize/rotate/test_rotate.py",),
    "optc/system/cache_folder.py": ("tests/runtime/speculative/planning/test_costs_cache.py",),
    "optc/cli/artifact_path.py": ("tests/cli/commands/store/test_store.py",),
    "optc/cli/commands/families.py": ("tests/cli/commands/test_lists.py",),
    "optc/cli/commands/judging/diff_tables.py": ("tests/cli/commands/judging/test_diff.py",),
    "optc/importer/conversion/parameters.py": (
        "tests/importer/gguf/test_parameters.py",
        "tests/importer/conversion/test_checkpoint.py",
    ),
    "optc/importer/conversion/reordered.py": (
        "tests/importer/conversion/test_views.py",
        "tests/importer/conversion/test_given.py",
    ),
    "optc/importer/conversion/row_views.py": ("tests/importer/gguf/test_parameters.py",),
    "optc/importer/conversion/tensor.py": ("tests/importer/conversion/test_views.py",),
    "optc/importer/gguf/config.py": ("tests/importer/gguf/test_folder.py",),
    "optc/importer/gguf/file.py": (
        "tests/importer/gguf/test_folder.py",
        "tests/importer/gguf/test_tensor.py",
    ),
    "optc/importer/gguf/grids.py": ("tests/importer/gguf/test_tensor.py",),
    "optc/ir/functions/mixing/dense_attention.py": ("tests/ir/test_functions.py",),
    "optc/ir/functions/experts.py": ("tests/ir/test_expert_functions.py",),
    "optc/ir/functions/router.py": ("tests/ir/test_expert_functions.py",),
    "optc/proof/conditions/differences/compare.py": (
        "tests/cli/commands/judging/test_diff.py",
        "tests/proof/conditions/differences/test_figures.py",
    ),
    "optc/proof/conditions/differences/subject.py": (
        "tests/proof/conditions/differences/test_figures.py",
        "tests/proof/conditions/differences/test_facts.py",
    ),
    "backends/tvm/streamed/watching.py": ("tests/backends/tvm/streamed/test_streamed_files.py",),
    "backends/tensorrt/legalize/mask.py": ("tests/backends/tensorrt/legalize/test_legalize.py",),
    "backends/tensorrt/legalize/scores.py": ("tests/backends/tensorrt/legalize/test_legalize.py",),
    "optc/proof/bench/profiled.py": ("tests/cli/commands/test_report.py",),
    "benchmarks/soak/__main__.py": ("tests/benchmarks/test_soak.py",),
    "benchmarks/soak/draws.py": ("tests/benchmarks/test_soak.py",),
    "benchmarks/soak/memory.py": ("tests/benchmarks/test_soak.py",),
    "benchmarks/soak/traffic.py": ("tests/benchmarks/test_soak.py",),
    "benchmarks/inputs/shards.py": ("tests/benchmarks/inputs/test_grow_model.py",),
    "passes/quantize/rotate/readers.py": (
        "tests/passes/quantize/rotate/test_rotate_activations.py",
    ),
    "passes/quantize/rotate/rotated_rows.py": (
        "tests/passes/quantize/rotate/test_rotate_activations.py",
    ),
    "passes/quantize/rotate/values.py": ("tests/passes/quantize/rotate/test_rotate.py",),
    "passes/quantize/folding/scaled_pairs.py": (
        "tests/passes/kv_cache/test_balance_keys.py",
        "tests/passes/quantize/rotate/test_rotate_kv.py",
    ),
    "passes/quantize/activations/layers.py": (
        "tests/passes/quantize/activations/test_allocate_activations.py",
    ),
    "passes/quantize/quantized_layers.py": (
        "tests/passes/quantize/test_quantize_weights.py",
        "tests/passes/quantize/given/test_grids.py",
    ),
    "passes/quantize/propagate/replace.py": ("tests/passes/quantize/given/test_grids.py",),
    "passes/quantize/propagate/stages.py": (
        "tests/passes/quantize/propagate/test_propagate_errors.py",
        "tests/passes/quantize/given/test_grids.py",
    ),
    "passes/canonicalize/encoded/index_rows.py": (
        "tests/passes/canonicalize/encoded/test_find_cross_attention.py",
    ),
    "passes/canonicalize/encoded/probed.py": (
        "tests/passes/canonicalize/encoded/test_find_cross_attention.py",
    ),
    "passes/calibrating/predictions/text_shape.py": (
        "tests/passes/calibrating/predictions/test_memory.py",
    ),
    "optc/runtime/kv_events/publisher.py": ("tests/runtime/kv_events/test_events.py",),
    "optc/runtime/loop/places.py": (
        "tests/runtime/loop/test_worker.py",
        "tests/runtime/loop/test_bursts.py",
    ),
    "optc/runtime/loop/latch.py": ("tests/runtime/loop/test_worker.py",),
    "optc/runtime/speech/sounds.py": ("tests/serve/tensors/test_transcriptions.py",),
    "optc/runtime/speech/tensor_writer.py": ("tests/serve/tensors/test_transcriptions.py",),
    "optc/runtime/speech/wanted.py": ("tests/serve/tensors/test_transcriptions.py",),
    "optc/runtime/speech/transcript.py": ("tests/serve/tensors/test_transcriptions.py",),
    "optc/runtime/audio/conventions.py": (
        "tests/runtime/speech/test_rules.py",
        "tests/serve/tensors/test_transcriptions.py",
    ),
    "optc/runtime/structured/harmless.py": ("tests/runtime/structured/test_trial.py",),
    "optc/runtime/requests/ruled.py": ("tests/runtime/step/test_ruled.py",),
    "optc/runtime/executable/adapter_spec.py": (
        "tests/runtime/executable/test_step_interface.py",
        "tests/runtime/adapters/test_peft.py",
    ),
    "optc/runtime/executable/encoder_states.py": ("tests/runtime/encoded/test_attending.py",),
    "optc/runtime/executable/interface.py": ("tests/runtime/executable/test_tensors_interface.py",),
    "optc/proof/gates/weights_room.py": ("tests/proof/gates/test_speed.py",),
    "optc/runtime/tensors/embedder.py": ("tests/serve/tensors/test_embeddings.py",),
    "optc/runtime/tensors/engine.py": ("tests/serve/tensors/test_infer.py",),
    "optc/runtime/tensors/ranked.py": ("tests/serve/scoring/test_routes.py",),
    "optc/runtime/text_to_text/conventions.py": ("tests/runtime/text_to_text/test_settings.py",),
    "optc/runtime/text_to_text/params.py": ("tests/runtime/text_to_text/test_settings.py",),
    "optc/runtime/text_to_text/write.py": ("tests/runtime/text_to_text/test_step_writer.py",),
    "optc/runtime/text_to_text/rules.py": ("tests/runtime/text_to_text/test_settings.py",),
    "optc/runtime/text_to_text/writer.py": ("tests/runtime/text_to_text/test_step_writer.py",),
    "optc/runtime/diffusion/conventions.py": ("tests/runtime/diffusion/test_solver.py",),
    "optc/runtime/scoring/token_logprobs.py": ("tests/runtime/sampling/test_sampler.py",),
    "optc/runtime/requests/completion_input.py": ("tests/runtime/loop/test_core.py",),
    "passes/canonicalize/encoders/front.py": (
        "tests/passes/canonicalize/encoders/test_convolutions.py",
    ),
    "passes/canonicalize/spelled/bounds.py": (
        "tests/passes/canonicalize/spelled/test_probe.py",
        "tests/passes/canonicalize/encoders/test_visible.py",
    ),
    "optc/runtime/loop/core_factory.py": ("tests/runtime/test_swap.py",),
    "optc/proof/gates/bisect/node_errors.py": ("tests/proof/gates/bisect/test_bisect.py",),
    "optc/proof/gates/bisect/stages.py": ("tests/proof/gates/bisect/test_bisect.py",),
    "optc/artifact/pages/measured.py": ("tests/artifact/pages/sections/test_speed.py",),
    "optc/runtime/diffusion/load.py": ("tests/runtime/test_load.py",),
    "optc/runtime/speech/load.py": ("tests/runtime/test_load.py",),
    "optc/runtime/tensors/load.py": ("tests/runtime/test_load.py",),
    "optc/runtime/text_to_text/load.py": ("tests/runtime/test_load.py",),
    "optc/runtime/stream.py": ("tests/runtime/test_handle.py",),
    "optc/runtime/loop/swapping.py": ("tests/runtime/test_swap.py",),
    "passes/quantize/quantize_weights.py": ("tests/passes/quantize/test_layer_schemes.py",),
}

#: The same for all modules of a folder.
FOLDERS_TESTED_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "optc/artifact/patches": (
        "tests/artifact/patches/test_patches.py",
        "tests/cli/commands/patches/test_patches.py",
    ),
    "optc/artifact/tasks": ("tests/artifact/tasks/test_measures.py",),
    "optc/runtime/encoded": (
        "tests/runtime/encoded/test_attending.py",
        "tests/serve/tensors/test_transcriptions.py",
    ),
    "passes/canonicalize/encoders": (
        "tests/passes/canonicalize/encoders/test_rows.py",
        "tests/passes/canonicalize/encoders/test_convolutions.py",
    ),
    "passes/general": (
        "tests/passes/general/test_quantize_convolutions.py",
        "tests/passes/general/test_quantize_blocks.py",
        "tests/passes/general/test_quantize_products.py",
    ),
    "optc/cli/commands/store": ("tests/cli/commands/store/test_store.py",),
    "optc/cli/judged": (
        "tests/cli/commands/judging/test_bench_conditions.py",
        "tests/cli/commands/judging/test_diff.py",
    ),
    "optc/compiling/export": (
        "tests/compiling/export/test_formats.py",
        "tests/compiling/export/test_refusals.py",
    ),
    "optc/compiling/export/gguf": (
        "tests/compiling/export/test_formats.py",
        "tests/compiling/export/test_refusals.py",
    ),
    "optc/importer/quantized": (
        "tests/importer/quantized/test_packed_integers.py",
        "tests/importer/quantized/test_float_weights.py",
        "tests/importer/quantized/test_settings.py",
    ),
    "optc/runtime/openai": (
        "tests/cli/batch/test_openai_fields.py",
        "tests/cli/batch/test_openai_form.py",
        "tests/cli/batch/test_openai_logprobs.py",
        "tests/serve/asking/test_sampling.py",
    ),
    "optc/serve": (
        "tests/serve/test_server.py",
        "tests/serve/test_app.py",
        "tests/serve/test_many_clients.py",
    ),
    "optc/serve/answering": (
        "tests/serve/routes/test_generating.py",
        "tests/serve/asking/test_tools.py",
        "tests/serve/responses/test_route.py",
    ),
    "optc/serve/asking": (
        "tests/serve/routes/test_generating.py",
        "tests/serve/test_any_body.py",
    ),
    "optc/serve/batches": ("tests/serve/batches/test_batches.py",),
    "optc/serve/bodies": ("tests/serve/test_any_body.py", "tests/serve/test_openapi.py"),
    "optc/serve/guards": ("tests/serve/test_app.py",),
    "optc/serve/messages": ("tests/serve/messages/test_route.py",),
    "optc/runtime/parsing": (
        "tests/runtime/parsing/test_message_reader.py",
        "tests/serve/asking/test_tools.py",
    ),
    "optc/serve/responses": ("tests/serve/responses/test_route.py",),
    "optc/serve/routes": ("tests/serve/test_app.py",),
    "optc/artifact/store/oci": ("tests/artifact/store/oci/test_transfer.py",),
    "passes/canonicalize/probing": ("tests/passes/canonicalize/test_probe_heads.py",),
    "passes/canonicalize/spelled": (
        "tests/passes/canonicalize/spelled/test_find_spelled.py",
        "tests/passes/canonicalize/spelled/test_pattern.py",
    ),
}

#: Tests of all modules of a folder together.
TESTED_TOGETHER: dict[str, tuple[str, ...]] = {
    "passes": ("tests/passes/test_declarations.py", "tests/ir/pipeline/test_page.py")
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
    folder = str(PurePath(module).parent)
    elsewhere = TESTED_ELSEWHERE.get(module, FOLDERS_TESTED_ELSEWHERE.get(folder, ()))
    if not own and not elsewhere:
        return []
    together = TESTED_TOGETHER.get(PurePath(module).parts[0], ())
    return own + [test for test in (*elsewhere, *together) if test != mirrored]
