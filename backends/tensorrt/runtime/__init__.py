"""Running an engine on its GPU: batched calls over slots of keys and values."""
