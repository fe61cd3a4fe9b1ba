from __future__ import annotations

import msgspec

from eagle_parity.engines.tables import engine_tables


def test_tables_are_json_and_every_rule_has_versions_and_a_source() -> None:
    tables = engine_tables()
    msgspec.json.encode(tables)
    assert {row["engine"] for row in tables["classes"]} == {"sglang", "vllm"}
    for kind in ("classes", "refused", "defects"):
        assert tables[kind], kind
        for row in tables[kind]:
            assert row["versions"]
            assert ".py" in row["source"] or "models/" in row["source"] or "loop reads" in row["source"]
    for kind in ("keys", "widths"):
        assert all(".py" in row["source"] for row in tables[kind])
