from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from config_cases import target_of

from eagle_parity.engines import parse_engine
from eagle_parity.engines.extraction import Extraction, extract
from eagle_parity.engines.resolved import resolve_engine
from eagle_parity.engines.serving import Unjudged

if TYPE_CHECKING:
    from collections.abc import Sequence

LAYERS = 8
ALL = tuple(range(LAYERS + 1))
LLAMA, DEEPSEEK, GPT_OSS, GEMMA3 = "LlamaForCausalLM", "DeepseekV3ForCausalLM", "GptOssForCausalLM", "Gemma3ForCausalLM"


def extracted(engine: str, architecture: str, wanted: Sequence[int] = ALL) -> Extraction | Unjudged:
    resolved = resolve_engine(parse_engine(engine), assume_nearest=False)
    assert resolved.version is not None
    target = target_of(architecture, num_layers=LAYERS)
    return extract(resolved.engine, resolved.name, resolved.version, target, wanted)


@pytest.mark.parametrize(
    ("engine", "architecture", "ids", "boundaries", "missing"),
    [
        # An id of 8 is refused by SGLang's launch, -1 too; what a Llama's loop captures ends before the last layer.
        ("sglang@0.5.23", LLAMA, range(7), range(1, 8), (0, 8)),
        ("sglang@0.5.23", DEEPSEEK, range(8), range(8), (8,)),
        ("sglang@0.5.23", GPT_OSS, range(8), range(1, 9), (0,)),
        # Before 0.5.13 DeepSeek's setter adds one to every list, and its forward dies at the embedding.
        ("sglang@0.5.12", DEEPSEEK, range(7), range(1, 8), (0, 8)),
        ("vllm@0.32.0", LLAMA, ALL, ALL, ()),
        ("vllm@0.32.0", DEEPSEEK, range(1, 9), range(1, 9), (0,)),
        ("vllm@0.32.0:impl=transformers", LLAMA, range(1, 9), range(1, 9), (0,)),
    ],
)
def test_the_list_for_all_boundaries(
    engine: str, architecture: str, ids: Sequence[int], boundaries: Sequence[int], missing: tuple[int, ...]
) -> None:
    found = extracted(engine, architecture)
    assert isinstance(found, Extraction)
    assert (found.ids, found.boundaries, found.missing) == (tuple(ids), tuple(boundaries), missing)


def test_nothing_but_what_is_wanted_is_captured() -> None:
    found = extracted("sglang@0.5.23", LLAMA, [6, 3, 3])
    assert isinstance(found, Extraction)
    assert (found.ids, found.boundaries) == ((2, 5), (3, 6))


def test_a_list_that_would_begin_with_the_one_is_turned() -> None:
    found = extracted("sglang@0.5.23", DEEPSEEK, [1, 2])
    assert isinstance(found, Extraction)
    assert (found.ids, found.boundaries) == ((2, 1), (1, 2))


def test_a_class_that_captures_no_boundary_gives_none() -> None:
    found = extracted("sglang@0.5.23", GEMMA3)
    assert isinstance(found, Unjudged)
    assert "FFN branch" in found.reason


def test_an_unknown_class_and_one_that_is_refused() -> None:
    unknown, refused = extracted("sglang@0.5.23", "NobodysForCausalLM"), extracted("vllm@0.32.0", GEMMA3)
    assert isinstance(unknown, Unjudged)
    assert isinstance(refused, Unjudged)
    assert "no rule" in unknown.reason
    assert "EAGLE3 interface" in refused.reason


def test_a_release_without_any_way_to_be_asked_gives_none() -> None:
    found = extracted("sglang@0.5.10", LLAMA)
    assert isinstance(found, Unjudged)
    assert "for a draft alone" in found.reason


def test_no_list_gives_what_no_id_reaches() -> None:
    found = extracted("sglang@0.5.23", LLAMA, [LAYERS])
    assert isinstance(found, Unjudged)
    assert "no id" in found.reason


def test_known_defects_come_along() -> None:
    found = extracted("sglang@0.5.12", DEEPSEEK)
    assert isinstance(found, Extraction)
    assert any("partial sum" in defect for defect in found.defects)
