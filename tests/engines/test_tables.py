from __future__ import annotations

import re

import msgspec

from eagle_parity.engines.tables import engine_tables


def test_tables_are_json_and_every_rule_has_versions_and_a_source() -> None:
    tables = engine_tables()
    msgspec.json.encode(tables)
    assert {row["engine"] for row in tables["classes"]} == {"sglang", "vllm", "tensorrt-llm"}
    for kind in ("classes", "refused", "unruled", "wrappers", "defects", "vocab_maps"):
        assert tables[kind], kind
        for row in tables[kind]:
            assert row["versions"]
            assert re.search(r"\w+\.py", row["source"]), row
    for kind in ("keys", "widths", "buffers"):
        assert all(re.search(_PLACE, row["source"]) and row["versions"] for row in tables[kind])
    assert all(row["source"] and row["versions"] for row in tables["extractions"])


_PLACE = r"\w+\.py:(\d+|[A-Z]\w+)"
"""Lines, or the class: TensorRT-LLM's files were read without line numbers."""


def test_every_class_rule_gives_lines_or_the_class() -> None:
    for row in engine_tables()["classes"]:
        assert re.search(_PLACE, row["source"]), row


def test_the_reference_is_told_apart_from_the_engines() -> None:
    tables = engine_tables()
    (reference,) = tables["references"]
    assert "boundary k" in reference["index"]
    assert "post_norm" in reference["last_index"]
    assert reference["reference"] not in {row["engine"] for row in tables["engines"]}
