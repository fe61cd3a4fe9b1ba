from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from builders import Written
from hypothesis import given, settings
from hypothesis import strategies as st
from states_in_memory import in_memory

from eagle_parity.comparison.diff import DiffInputs, diff_captures
from eagle_parity.comparison.pairing import Pairing, PrefixIndex, SequenceIds, pair_sequences
from eagle_parity.results import ExitStatus, FailOn, exit_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.results import Result

SYSTEM = list(range(100, 140))
"""A system prompt that every text may begin with."""

TABLE = torch.randn(4096, 16, generator=torch.Generator().manual_seed(0))


def states_of(ids: Sequence[int]) -> torch.Tensor:
    """Rows that depend on the token and on all tokens before it, as those of a causal model do."""
    rows = TABLE[torch.tensor(ids, dtype=torch.int64)]
    return rows + 0.5 * rows.cumsum(0) / torch.arange(1, len(ids) + 1)[:, None].sqrt()


def side(
    texts: Sequence[Sequence[int]], names: Sequence[str] | None = None, masks: dict[int, list[int]] | None = None
) -> HiddenStates:
    sequences = [
        Written(
            torch.tensor(ids, dtype=torch.int64),
            [states_of(ids), states_of(ids) * 2 + TABLE[0]],
            loss_mask=torch.tensor(masks[i]) if masks and i in masks else None,
        )
        for i, ids in enumerate(texts)
    ]
    return in_memory(sequences, names=names)


def described(pairing: Pairing) -> list[tuple[Any, ...]]:
    return [(p.trained.name, p.live.name, p.how, p.trained_start, p.live_start, p.length) for p in pairing.pairs]


def text(start: int, length: int = 30) -> list[int]:
    return [1, *range(start, start + length - 1)]


def compare(trained: HiddenStates, live: HiddenStates) -> Result:
    return diff_captures(DiffInputs(trained=trained, live=live))


def found(result: Result) -> list[tuple[str, str]]:
    return [(finding.name, str(finding.severity)) for finding in result.findings]


def test_equal_ids_pair_in_any_order_and_under_any_name() -> None:
    texts = [text(200), text(300), text(400, 12)]
    trained, live = side(texts, ["a", "b", "c"]), side([texts[2], texts[0], texts[1]], ["b", "x", "a"])
    assert described(pair_sequences(trained, live)) == [
        ("a", "x", "equal", 0, 0, 30),
        ("b", "a", "equal", 0, 0, 30),
        ("c", "b", "equal", 0, 0, 12),
    ]
    assert found(compare(trained, live)) == []


def test_repeats_of_one_prompt_pair_one_by_one_and_by_name_first() -> None:
    trained = side([text(200)] * 3, ["a", "b", "c"])
    live = side([text(200)] * 2, ["z", "b"])
    pairing = pair_sequences(trained, live)
    assert [(p.trained.name, p.live.name) for p in pairing.pairs] == [("a", "z"), ("b", "b")]
    assert [s.name for s in pairing.unpaired_trained] == ["c"]
    assert pairing.unpaired_live == []


def test_a_prefix_is_a_truncated_sequence() -> None:
    whole = text(200)
    trained, live = side([whole]), side([whole[:20]], ["other"])
    assert described(pair_sequences(trained, live)) == [("data_0.pt", "other", "prefix", 0, 0, 20)]
    result = compare(trained, live)
    assert found(result) == [("truncated-capture", "error")]
    assert "the live side lacks the last 10 of 30 tokens" in result.findings[0].message
    assert found(compare(live, trained)) == [("truncated-capture", "error")]


def test_a_suffix_is_a_sequence_that_lost_its_beginning() -> None:
    whole = text(200)
    trained = side([whole])
    live = in_memory([Written(torch.tensor(whole[12:]), [slot[12:] for slot in map_states(whole)])])
    assert described(pair_sequences(trained, live)) == [("data_0.pt", "data_0.pt", "suffix", 12, 0, 18)]
    result = compare(trained, live)
    assert found(result) == [("truncated-capture", "error")]
    assert "the live side lacks the first 12 of 30 tokens" in result.findings[0].message


def map_states(ids: Sequence[int]) -> list[torch.Tensor]:
    return [states_of(ids), states_of(ids) * 2 + TABLE[0]]


def test_padding_is_no_truncation() -> None:
    whole = text(200)
    padded = [*whole, *[0] * 10]
    mask = {0: [0] * 10 + [1] * 20 + [0] * 10}
    result = compare(side([padded], masks=mask), side([whole]))
    assert found(result) == []
    assert result.measurements["sequences"]["padded"] == 1
    # Without a mask that leaves it out, or with other ids in it, a tail is text.
    assert found(compare(side([padded]), side([whole]))) == [("truncated-capture", "error")]
    text_tail = [*whole, *range(600, 610)]
    assert found(compare(side([text_tail], masks=mask), side([whole]))) == [("truncated-capture", "error")]


def test_one_name_and_mostly_equal_ids_are_a_template_mismatch() -> None:
    whole = text(200, 40)
    changed = [*whole[:25], 999, *whole[26:]]
    result = compare(side([whole], ["data_0.pt"]), side([changed], ["rows/data_0.safetensors"]))
    assert found(result) == [("token-mismatch", "error")]
    assert "from position 25 on (id 224 trained, 999 live), 1 of 40 ids" in result.findings[0].message
    # What follows has seen other tokens: it isn't held against the other side.
    assert result.measurements["tokens"] == 25


def test_ids_that_differ_from_the_first_one_on() -> None:
    whole = text(200, 40)
    result = compare(side([whole]), side([[2, *whole[1:39], 7]]))
    assert found(result) == [("token-mismatch", "error")]
    assert result.measurements["tokens"] == 0
    assert result.measurements["trained"]["unreadable"] == []


def test_one_name_and_other_text_is_no_pair() -> None:
    pairing = pair_sequences(side([text(200)]), side([text(900)]))
    assert pairing.pairs == []
    result = compare(side([text(200)]), side([text(900)]))
    assert found(result) == [("token-mismatch", "warning")]
    assert exit_status(result, FailOn.ERROR) is ExitStatus.INCONCLUSIVE


def test_other_texts_after_one_system_prompt_are_no_error_and_steal_no_partner() -> None:
    texts = [[*SYSTEM, *range(start, start + 40)] for start in (200, 300, 400, 500)]
    # The first is only here on one side; the others have their partners, one of them cut.
    trained = side(texts[:3], ["a", "b", "c"])
    live = side([texts[3], texts[2][:60], texts[1]], ["d", "c", "b"])
    pairing = pair_sequences(trained, live)
    assert [(p.trained.name, p.live.name, p.how, p.length) for p in pairing.pairs] == [
        ("b", "b", "equal", 80),
        ("c", "c", "prefix", 60),
        ("a", "d", "prefix", 40),
    ]
    result = compare(trained, live)
    assert found(result) == [("truncated-capture", "error"), ("token-mismatch", "note")]
    # Without the cut one there is nothing but the note.
    result = compare(trained, side([texts[3], texts[2], texts[1]]))
    assert found(result) == [("token-mismatch", "note")]
    assert exit_status(result, FailOn.WARNING) is ExitStatus.PARITY


def test_a_short_system_prompt_pairs_nothing() -> None:
    trained, live = side([[1, 2, 3, *range(200, 240)]]), side([[1, 2, 3, *range(300, 340)]])
    assert pair_sequences(trained, live).pairs == []


def test_the_contained_one_is_the_partner_not_the_one_that_shares_more() -> None:
    # Cut within the system prompt; another text goes on with the very next token too.
    whole = [*SYSTEM, 200, 201, 202]
    trained, live = side([whole], ["a"]), side([[*SYSTEM, 200, 999, 998], SYSTEM], ["x", "a"])
    assert described(pair_sequences(trained, live)) == [("a", "a", "prefix", 0, 0, 40)]


def test_a_name_whose_ids_are_contained_after_all() -> None:
    """Two trained repeats, and the live one of the same name was taken by the other: no crash, and counted."""
    trained, live = side([SYSTEM, SYSTEM], ["a", "b"]), side([[*SYSTEM, 5], [*SYSTEM, 6]], ["b", "a"])
    pairing = pair_sequences(trained, live)
    assert {p.how for p in pairing.pairs} == {"prefix"}
    assert len(pairing.pairs) == 2


def test_empty_sequences_have_no_partner() -> None:
    pairing = pair_sequences(side([[], text(200)]), side([text(200), []]))
    assert [(p.trained.name, p.live.name) for p in pairing.pairs] == [("data_1.pt", "data_0.pt")]
    assert [s.name for s in pairing.unpaired_trained] == ["data_0.pt"]
    assert [s.name for s in pairing.unpaired_live] == ["data_1.pt"]


def test_unpaired_sequences_are_told() -> None:
    result = compare(side([text(200), text(300)]), side([text(200), text(800), text(900)]))
    assert found(result) == []
    reasons = [skip.reason for skip in result.skipped if "no partner" in skip.reason]
    assert reasons == [
        "1 trained sequence(s) have no partner on the other side",
        "2 live sequence(s) have no partner on the other side",
    ]


def test_sequences_without_ids_are_told_one_by_one() -> None:
    ids = torch.tensor(text(200))
    nameless = in_memory([Written(ids, map_states(text(200)))], without_ids=True)
    result = compare(nameless, side([text(200)]))
    assert ("unreadable-shard", "error") in found(result)
    assert "no token ids" in result.findings[0].message


def sequence(name: str, ids: Sequence[int]) -> SequenceIds:
    return SequenceIds(name, torch.tensor(ids, dtype=torch.int64), len(ids), 0)


IDS = st.lists(st.integers(0, 2), max_size=6)


@given(pool=st.lists(IDS, max_size=12), query=IDS, taken=st.sets(st.integers(0, 11)), backwards=st.booleans())
@settings(deadline=None, max_examples=200)
def test_the_index_finds_what_a_plain_search_finds(
    pool: list[list[int]], query: list[int], taken: set[int], backwards: bool
) -> None:
    sequences = [sequence(str(i), ids) for i, ids in enumerate(pool)]
    index = PrefixIndex(sequences, backwards=backwards)
    for i in taken:
        if i < len(sequences):
            index.take(sequences[i])
    free = [ids[::-1] if backwards else ids for i, ids in enumerate(pool) if i not in taken]
    asked = query[::-1] if backwards else query

    def common(ids: list[int]) -> int:
        return next((i for i, (a, b) in enumerate(zip(ids, asked, strict=False)) if a != b), min(len(ids), len(asked)))

    longest = index.longest(torch.tensor(query, dtype=torch.int64))
    assert (longest[1] if longest else 0) == max((common(ids) for ids in free), default=0)
    contained = index.contained(torch.tensor(query, dtype=torch.int64))
    whole = [common(ids) for ids in free if common(ids) == min(len(ids), len(asked))]
    assert (contained[1] if contained else 0) == max(whole, default=0)


@pytest.mark.parametrize("token", [2**40, 2**62])
def test_huge_ids_are_compared_as_they_are(token: int) -> None:
    ids = torch.tensor([token, *range(20)])
    assert PrefixIndex([SequenceIds("a", ids, 21, 0)]).longest(ids) is not None


def test_tokens_are_those_that_the_sides_count() -> None:
    trained, live = side([text(1), text(100), text(200)]), side([text(1), text(100, 20), text(300, 7)])
    pairing = pair_sequences(trained, live)
    assert len(pairing.pairs) == 2
    assert pairing.tokens("trained") == {name: trained.count_tokens(name) for name in trained.names}
    assert pairing.tokens("live") == {name: live.count_tokens(name) for name in live.names}
