"""What an engine counts and times: requests, tokens, TTFT, ITL, KV blocks."""
