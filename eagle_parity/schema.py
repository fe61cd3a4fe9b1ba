"""The JSON Schema of a result, written from the types and published as ``result.schema.json`` in the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from eagle_parity.results import SCHEMA_VERSION, Result

SCHEMA_FILE = Path(__file__).with_name("result.schema.json")

SCHEMA_ID = f"urn:eagle-parity:result:{SCHEMA_VERSION}"
"""A name, not an address: validators need no network."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_POLICY = (
    "Every property listed under 'required' is always written. Objects are open: a later release may add properties "
    f"within schema_version {SCHEMA_VERSION}, and a reader ignores those that it doesn't know. Removing one, or "
    "changing its meaning, takes a new schema_version."
)

OPTIONAL = frozenset(
    {
        ("Result", "fail_on"),
        ("Result", "results"),
        ("ServedWiring", "ids"),
        ("ServedWiring", "reason"),
        ("ServedWiring", "source"),
        ("Skip", "blocks_verdict"),
        ("WiringSummary", "live_from"),
        ("WiringSummary", "trained_from"),
    }
)
"""What a document may lack: ``results`` is only in a report, the others are additions to the agreed core. A property
that is added within a schema version belongs here, or older documents would turn invalid."""


def result_schema() -> dict[str, Any]:
    """The schema as a JSON object."""
    (reference,), definitions = msgspec.json.schema_components([Result], ref_template="#/$defs/{name}")
    for name, definition in definitions.items():
        properties = definition.get("properties")
        if properties is None:
            continue
        definition["required"] = [key for key in properties if (name, key) not in OPTIONAL]
        definition["additionalProperties"] = True
        for described in properties.values():
            # Defaults are how the types are built; what is always written has none, and the tool's would be stale with
            # every release.
            described.pop("default", None)
    definitions["Result"]["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    definitions["Finding"]["properties"]["confidence"].update(minimum=0, maximum=1)
    return {
        "$schema": DIALECT,
        "$id": SCHEMA_ID,
        "title": "Result of eagle-parity",
        "description": _POLICY,
        **reference,
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text() -> str:
    """The published file's content."""
    return json.dumps(result_schema(), indent=2, ensure_ascii=False) + "\n"
