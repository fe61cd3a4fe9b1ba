"""``python -m eagle_parity``."""

from __future__ import annotations

from eagle_parity.cli.app import main

if __name__ == "__main__":
    main()
