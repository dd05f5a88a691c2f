"""A loaded engine as the runtime sees it: its spec, its step, the layout of its KV cache."""
