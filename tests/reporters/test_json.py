from __future__ import annotations

import pytest
import stories

from eagle_parity.reporters import Style, render
from eagle_parity.results import decode_result


@pytest.mark.parametrize("story", ["founding_story", "parity", "too_few_tokens", "hostile"])
def test_the_document_comes_back_as_it_was(story: str) -> None:
    result = getattr(stories, story)()
    text = render(result, "json", Style())
    assert decode_result(text.encode(), path="x") == result
    assert text.endswith("}\n")


def test_hostile_text_is_escaped_and_still_the_same_document() -> None:
    text = render(stories.hostile(), "json", Style())
    assert not [c for c in text if not c.isprintable() and c != "\n"]
