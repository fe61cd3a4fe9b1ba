"""The engines: their rules as data, what they make of a draft, and how to write a list that they read right.

``ENGINES`` lists them: adding one is one file and one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.engines.engine import EngineName, parse_engine_name
from eagle_parity.engines.reference import TRANSFORMERS
from eagle_parity.engines.sglang import SGLANG
from eagle_parity.engines.tensorrt_llm import TENSORRT_LLM
from eagle_parity.engines.vllm import VLLM
from eagle_parity.errors import UsageError
from eagle_parity.quoting import quoted

if TYPE_CHECKING:
    from eagle_parity.engines.rules import Engine

ENGINES: tuple[Engine, ...] = (SGLANG, VLLM, TENSORRT_LLM)

BY_NAME: dict[str, Engine] = {engine.name: engine for engine in ENGINES}


def parse_engine(text: str) -> EngineName:
    """Reads ``sglang@0.5.12:embedding-capture=patched``.

    Raises:
        UsageError: the form, the engine, an option or a value isn't known; the message lists what is. Or it is no
            engine but the reference.
    """
    if text.partition("@")[0].strip().lower() == TRANSFORMERS.name:
        raise UsageError(f"--engine {quoted(text)}: {TRANSFORMERS.refusal}")
    return parse_engine_name(
        text,
        {engine.name: engine.options for engine in ENGINES},
        {engine.name: engine.versions for engine in ENGINES},
    )


def newest_engines() -> tuple[EngineName, ...]:
    """The newest known version of every engine that is answered for where none is named."""
    return tuple(EngineName(engine.name, engine.versions[-1]) for engine in ENGINES if engine.unasked)


def find_engine(name: EngineName) -> Engine:
    """The tables of a named engine.

    Raises:
        UsageError: there are none.
    """
    engine = BY_NAME.get(name.engine)
    if engine is None:
        raise UsageError(f"no engine {name.engine!r}; known: {', '.join(BY_NAME)}")
    return engine
