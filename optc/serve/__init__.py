"""``optc serve``: an online API as OpenAI's and Anthropic's clients speak it, on the runtime."""
