"""The counts and times of an engine: requests, tokens, TTFT, ITL, KV blocks."""
