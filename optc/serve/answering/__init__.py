"""From what the runtime gives to answers in OpenAI's form, whole and as streams."""
