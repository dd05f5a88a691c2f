"""Stand-ins for what an exporter cannot trace, used while a model is exported."""
