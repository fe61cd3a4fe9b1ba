from __future__ import annotations

import re

import msgspec

from eagle_parity.engines.tables import engine_tables


def test_tables_are_json_and_every_rule_has_versions_and_a_source() -> None:
    tables = engine_tables()
    msgspec.json.encode(tables)
    assert {row["engine"] for row in tables["classes"]} == {"sglang", "vllm"}
    for kind in ("classes", "refused", "unruled", "wrappers", "defects"):
        assert tables[kind], kind
        for row in tables[kind]:
            assert row["versions"]
            assert re.search(r"\w+\.py", row["source"]), row
    for kind in ("keys", "widths", "buffers"):
        assert all(re.search(r"\w+\.py:\d+", row["source"]) and row["versions"] for row in tables[kind])


def test_every_class_rule_gives_lines() -> None:
    for row in engine_tables()["classes"]:
        assert re.search(r"\w+\.py:\d+", row["source"]), row
