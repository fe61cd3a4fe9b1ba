from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest
import stories

from eagle_parity.report import SavedResult, merge_results
from eagle_parity.results import Result, encode_result
from eagle_parity.schema import OPTIONAL, SCHEMA_FILE, result_schema, schema_text

DESIGN_EXAMPLE = {
    "schema_version": 1,
    "tool": {"name": "eagle-parity", "version": "0.1.0"},
    "command": "diff-captures",
    "verdict": "fail",
    "inputs": [
        {
            "role": "trained",
            "path": "shards",
            "format": "specforge",
            "sequences": 4,
            "tokens": 160,
            "slots": 3,
            "hidden_size": 576,
        }
    ],
    "wiring": {
        "num_layers": 30,
        "trained": [3, 16, 28],
        "live": [0, 3, 16],
        "last_state": {"trained": 30, "live": "post_norm"},
        "served": [
            {
                "engine": "sglang@0.5.12",
                "options": {},
                "boundaries": [0, 3, 16],
                "key": "eagle_config.eagle_aux_hidden_state_layer_ids",
                "default": False,
                "outcome": "serves",
            }
        ],
    },
    "findings": [
        {
            "code": "EP201",
            "name": "spurious-embedding",
            "severity": "error",
            "confidence": 0.99,
            "slot": 0,
            "rank": None,
            "engine": None,
            "message": "...",
            "evidence": {},
            "remedy": "...",
            "docs": "...",
        }
    ],
    "measurements": {},
    "skipped": [{"check": "rank-partial", "reason": "the capture has one rank"}],
}


def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA_FILE.read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_published_file_is_what_the_types_say() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), (
        "the result types have changed: write the file again with schema_text(), and think of schema_version"
    )


def test_it_says_who_it_is() -> None:
    schema = json.loads(SCHEMA_FILE.read_bytes())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"]
    assert schema["title"]
    assert "Objects are open" in schema["description"]


@pytest.mark.parametrize("story", ["founding_story", "parity", "too_few_tokens", "hostile"])
def test_results_are_valid(story: str) -> None:
    validator().validate(json.loads(encode_result(getattr(stories, story)())))


def test_a_report_is_valid() -> None:
    merged = merge_results([SavedResult("a", stories.founding_story()), SavedResult("b", stories.parity())])
    validator().validate(json.loads(encode_result(merged)))


def test_the_agreed_document_is_valid_and_can_be_read() -> None:
    validator().validate(DESIGN_EXAMPLE)
    msgspec.convert(DESIGN_EXAMPLE, Result)


def test_an_unknown_property_is_ignored() -> None:
    document = {**DESIGN_EXAMPLE, "added_later": 1}
    validator().validate(document)
    msgspec.convert(document, Result)


@pytest.mark.parametrize("key", list(DESIGN_EXAMPLE))
def test_what_is_always_written_is_required(key: str) -> None:
    document = {k: v for k, v in DESIGN_EXAMPLE.items() if k != key}
    assert not validator().is_valid(document)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"verdict": "maybe"},
        {"findings": [{**DESIGN_EXAMPLE["findings"][0], "severity": "fatal"}]},  # type: ignore[index]  # a plain document
        {"findings": [{**DESIGN_EXAMPLE["findings"][0], "confidence": 2}]},  # type: ignore[index]  # as above
        {"wiring": {**DESIGN_EXAMPLE["wiring"], "trained": ["pre_norm"]}},  # type: ignore[dict-item]  # as above
    ],
)
def test_what_is_wrong_is_refused(change: dict[str, object]) -> None:
    assert not validator().is_valid({**DESIGN_EXAMPLE, **change})


def test_optional_properties_exist() -> None:
    definitions = result_schema()["$defs"]
    for name, key in OPTIONAL:
        assert key in definitions[name]["properties"]
