"""Tasks: what models are for, how engines are judged at it, and how a runtime shows them."""
