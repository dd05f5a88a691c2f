"""The paged KV cache: block pool, block tables, prefix cache, eviction."""
