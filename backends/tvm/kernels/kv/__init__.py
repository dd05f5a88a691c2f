"""What is written into the KV pools, rotated, copied or moved in them."""
