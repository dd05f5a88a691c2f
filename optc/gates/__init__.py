"""Gates: what the engine's logits and speed are worth against the float32 reference."""
