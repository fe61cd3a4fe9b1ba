"""What the hooks say in the server's own log: the one place where a server's operator sees that they are there."""

from __future__ import annotations

import logging

logger = logging.getLogger("eagle_parity.capture")
