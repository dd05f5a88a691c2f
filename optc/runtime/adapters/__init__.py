"""LoRA adapters at run time: read from PEFT folders, several at once in a batch."""
