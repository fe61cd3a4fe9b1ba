"""Target classes of SGLang with a setter that no rule covers: what they do, as far as it was read."""

from __future__ import annotations

from eagle_parity.engines.class_rules import NoRule

MINDSPORE = "MindSporeForCausalLM"

NO_RULE: tuple[NoRule, ...] = (
    NoRule(
        (MINDSPORE,),
        "0.5.10",
        "0.5.23",
        "setter and forward are those of the package sgl_mindspore, no part of SGLang, with releases of its own",
        "models/mindspore.py:359, 322-331",
    ),
    NoRule(
        ("Qwen4ExpForConditionalGeneration",),
        "0.5.20",
        "0.5.23",
        "the forward hands over the residual streams of the last layer in place of the captured states",
        "models/qwen4_exp.py:1708 (0.5.20), 2171 (0.5.23)",
    ),
)
