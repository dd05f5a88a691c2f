"""Bodies of requests: which fields there are and of which types, for checks and for the OpenAPI
document."""
