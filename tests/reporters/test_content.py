from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pytest
import stories

from eagle_parity import findings
from eagle_parity.errors import InputError
from eagle_parity.report import SavedResult, merge_results
from eagle_parity.reporters import Style, render
from eagle_parity.reporters.content import MAX_ALIKE, MAX_BLOCKS, MAX_FINDINGS, MAX_NAMES, document
from eagle_parity.reporters.document import Entries, Findings, Paragraph, Table
from eagle_parity.results import Input, Result, Skip, conclude, encode_result

if TYPE_CHECKING:
    from eagle_parity.findings import Finding

MANY = 100_000


def unreadable(i: int, reason: str = "no such file", *, side: str = "live") -> Finding:
    evidence = {"side": side, "file": f"data_{i}", "reason": reason}
    return findings.UNREADABLE_SHARD.finding(f"{side}: data_{i}: {reason}", evidence=evidence)


def shown(*told: Finding) -> Findings:
    made = document(conclude("diff-captures", outcomes=told, judged=True))
    (block,) = (block for block in made.blocks if isinstance(block, Findings))
    return block


def test_findings_that_differ_by_file_only_are_three_and_a_count() -> None:
    block = shown(*map(unreadable, range(20)))
    assert [item.message for item in block.items] == [f"live: data_{i}: no such file" for i in range(3)]
    assert [bool(item.more) for item in block.items] == [False, False, True]
    assert block.items[-1].more.startswith("and 17 more files like these (data_3, data_4, ")
    assert block.items[-1].more.count("data_") == MAX_NAMES
    assert block.more == ""


def test_every_reason_has_an_example() -> None:
    told = [unreadable(i) for i in range(9)] + [unreadable(9, "truncated"), unreadable(10, "NaN")]
    block = shown(*told)
    assert [item.message.rpartition(": ")[2] for item in block.items] == ["no such file", "truncated", "NaN"]
    assert "8 more files" in block.items[-1].more


@pytest.mark.parametrize("count", [1, 2, MAX_ALIKE])
def test_a_few_are_told_one_by_one(count: int) -> None:
    block = shown(*map(unreadable, range(count)))
    assert [item.more for item in block.items] == [""] * count


def test_what_differs_by_more_than_its_file_is_not_put_together() -> None:
    told = [
        *(unreadable(i) for i in range(3)),
        *(unreadable(i, side="trained") for i in range(3)),
        *(findings.LAYER_MISMATCH.finding("slot", slot=slot, evidence={"live": slot}) for slot in range(5)),
        *(findings.ENGINE_FAILURE.finding("dies", engine=f"vllm@0.{i}.0") for i in range(5)),
    ]
    block = shown(*told)
    assert len(block.items) == len(told)
    assert not any(item.more for item in block.items)


def test_missing_results_of_a_report_are_put_together() -> None:
    errors = [InputError(f"{i}.json", "no such file or folder") for i in range(11)]
    merged = merge_results([SavedResult("a.json", stories.parity())], errors=errors)
    assert len(merged.findings) == 11
    text = render(merged, "markdown", Style())
    assert text.count("**Remedy:**") == MAX_ALIKE
    assert "and 8 more files like these" in text


def test_the_gravest_come_first_and_one_kind_hides_no_other() -> None:
    told = [
        *(findings.KNOWN_ENGINE_DEFECT.finding(f"defect {i}") for i in range(200)),
        *(findings.NON_FINITE.finding(f"row {i}") for i in range(200)),
        findings.UNEXPLAINED_DIFFERENCE.finding("something else"),
    ]
    # As a document of another writer has them: in no order.
    result = msgspec.structs.replace(conclude("diff-captures", outcomes=[], judged=True), findings=told)
    (block,) = (block for block in document(result).blocks if isinstance(block, Findings))
    severities = [item.severity for item in block.items]
    assert severities == sorted(severities)  # error before warning
    assert "something else" in {item.message for item in block.items}
    assert len(block.items) <= MAX_FINDINGS
    assert block.more == f"and {len(told) - len(block.items)} more findings; --format json has them all"


def test_an_ordinary_number_of_findings_is_told_whole() -> None:
    block = shown(*(findings.NON_FINITE.finding(f"row {i}") for i in range(MAX_FINDINGS)))
    assert (len(block.items), block.more) == (MAX_FINDINGS, "")


def test_lists_and_tables_are_bounded_and_say_so() -> None:
    skips = [Skip(check=f"c{i}", reason="r") for i in range(999)]
    blocking = Skip(check="what counts", reason="open", blocks_verdict=True)
    inputs = [Input(role="tokens", path=f"p{i}", format="f") for i in range(1000)]
    made = document(conclude("diff-captures", outcomes=[*skips, blocking], judged=True, inputs=inputs))
    (listed,) = (b for b in made.blocks if isinstance(b, Entries) and b.title == "Skipped")
    assert listed.entries[0].label.text == "what counts"
    assert listed.entries[-1].text == "and 800 more; --format json has them all"
    (table,) = (b for b in made.blocks if isinstance(b, Table))
    assert (len(table.rows), table.notes) == (200, ("and 800 more; --format json has them all",))


def test_a_report_of_many_results_is_bounded() -> None:
    parts = [
        SavedResult(f"{i}.json", stories.parity() if i % 2 else stories.founding_story()) for i in range(2 * MAX_BLOCKS)
    ]
    made = document(merge_results(parts))
    assert sum(isinstance(b, Table) and b.title.startswith("Wirings in") for b in made.blocks) == MAX_BLOCKS
    assert Paragraph in {type(b) for b in made.blocks if "more results with wirings" in str(b)}
    (block,) = (b for b in made.blocks if isinstance(b, Findings))
    assert max(len(str(item.where)) for item in block.items) < 300


@pytest.fixture(scope="module")
def crowd() -> Result:
    told = [*map(unreadable, range(MANY // 2)), *(findings.NON_FINITE.finding(f"row {i} ü") for i in range(MANY // 2))]
    return merge_results([SavedResult("a.json", conclude("diff-captures", outcomes=told, judged=True))])


@pytest.mark.parametrize("form", ["terminal", "markdown", "json"])
def test_a_hundred_thousand_findings_take_seconds(form: str, crowd: Result) -> None:
    started = time.perf_counter()
    text = render(crowd, form, Style(width=100))
    assert time.perf_counter() - started < 10  # a minute before there was a bound; a second on a free machine
    assert (len(text) > 10_000_000) == (form == "json")
    assert len(crowd.findings) == MANY
    if form == "json":
        assert msgspec.json.decode(text) == msgspec.json.decode(encode_result(crowd))
