"""The float32 reference of a model: what gates, calibrations and passes measure against."""
