"""``python -m optc`` is the ``optc`` command."""

from __future__ import annotations

from optc.cli.main import main

if __name__ == "__main__":
    main()
