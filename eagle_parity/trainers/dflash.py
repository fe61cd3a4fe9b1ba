"""z-lab's DFlash: recognised, so that nobody judges its drafts by EAGLE-3's rules."""

from __future__ import annotations

from eagle_parity.trainers.trainer import Trainer

DFLASH = Trainer(
    "dflash",
    "DFlash",
    (),
    refusal="DFlash drafts are no EAGLE-3 heads: their target_layer_ids are layer outputs, and engines read them by"
    " rules of their own, which are not applied here",
)
