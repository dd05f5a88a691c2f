"""An engine whose requests are computed by several replicas, each sent where its prefix is."""
