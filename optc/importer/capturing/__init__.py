"""Parts of decoders that are captured as one node each while they are exported."""
