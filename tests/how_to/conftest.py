from tests.cli.conftest import imported_tiny, optc, quick_import, stub, tiny_model

__all__ = ["imported_tiny", "optc", "quick_import", "stub", "tiny_model"]
