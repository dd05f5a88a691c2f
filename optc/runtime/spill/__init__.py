"""Cold blocks of the prefix cache outside of the KV pools: in host memory or in a file."""
