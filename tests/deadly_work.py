"""Work that takes its own process with it: always at some files, or once in all."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eagle_parity.scan.parts import PartWork

if TYPE_CHECKING:
    from eagle_parity.scan.parts import Part
    from eagle_parity.scan.set_state import SetState


@dataclass(frozen=True)
class DeadlyWork(PartWork):
    """Kills its process at files that are named so.

    Attributes:
        always: parts of names at which every process ends.
        once: a name at which one does, and the file that remembers it.
    """

    always: tuple[str, ...] = ()
    once: tuple[str, str] | None = None

    def __call__(self, part: Part) -> SetState:
        for name in part.names:
            if any(deadly in name for deadly in self.always):
                os.kill(os.getpid(), signal.SIGKILL)
            if self.once is not None and self.once[0] in name and not Path(self.once[1]).exists():
                Path(self.once[1]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(part)
