"""Text generation: decoders that continue tokens, judged against their float32 model."""

from __future__ import annotations

from optc.artifact.tasks.task import SPEED, Measure, Task

#: Sources of measures: divergence over windows of text, greedy continuations of them, texts that
#: are copied, and answers in conversations (`optc.proof.gates`).
WINDOWS, CONTINUATIONS, COPIES, ANSWERS = "windows", "continuations", "copies", "answers"


def _least(name: str, meaning: str, source: str = WINDOWS) -> Measure:
    """Better the closer to 0."""
    return Measure(name, meaning, source, upper=True, ideal=0)


def _share(name: str, meaning: str, source: str = WINDOWS) -> Measure:
    """Better the closer to 1, from below."""
    return Measure(name, meaning, source, upper=False, ideal=1)


TEXT_GENERATION = Task(
    name="text-generation",
    face="text-generation",
    reference="the model in dense form, float32, ONNX Runtime on the CPU",
    roles={"target": "step", "draft": "step", "self": "step", "eagle": "step"},
    measures=(
        _least("kl_mean", "mean KL divergence from the float32 model, nats a token"),
        _least("kl_p99", "KL divergence that one token in a hundred exceeds, nats"),
        _least("kl_max", "largest KL divergence of a token, nats"),
        _share("top1_agreement", "tokens with the same likeliest next token"),
        _share("top5_agreement", "tokens whose likeliest next token is among the engine's five"),
        Measure("perplexity", "perplexity of the text", WINDOWS, upper=True),
        Measure(
            "perplexity_ratio",
            "perplexity over that of the float32 model",
            WINDOWS,
            upper=True,
            ideal=1,
        ),
        Measure(
            "common_continuation",
            "greedy tokens until the first that differs from float32, mean",
            CONTINUATIONS,
            upper=False,
        ),
        _least(
            "copy_nll_added",
            "what a copied text costs more than with the float32 model, nats a token",
            COPIES,
        ),
        _least(
            "answer_kl_mean",
            "mean KL divergence in answers of conversations, nats a token",
            ANSWERS,
        ),
        _least(
            "answer_kl_p99",
            "KL divergence that one token of an answer in a hundred exceeds, nats",
            ANSWERS,
        ),
        _share(
            "answer_top1_agreement",
            "tokens of answers with the same likeliest next token",
            ANSWERS,
        ),
        _least(
            "decision_flips",
            "decisions otherwise than float32's, which has a margin above 0.1 nats",
            ANSWERS,
        ),
        _share("margin_factor", "share of float32's margin that 19 of 20 decisions keep", ANSWERS),
        Measure(
            "prefill_speedup",
            "prefill, times the speed of float32 in ONNX Runtime",
            SPEED,
            upper=False,
        ),
        Measure(
            "decode_speedup",
            "decode, times the speed of float32 in ONNX Runtime",
            SPEED,
            upper=False,
        ),
    ),
)
