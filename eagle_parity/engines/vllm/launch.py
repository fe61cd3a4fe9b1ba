"""With what a release of vLLM can be started so that hidden states are recorded: options by version."""

from __future__ import annotations

from eagle_parity.engines.launch_rules import ExtractionRule, Way
from eagle_parity.engines.vllm.versions import FIRST, LAST
from eagle_parity.versions import parse_version

_FIRST_WITH_ROUTE = "0.26.0"
"""The first release with ``vllm.endpoint_plugins`` (``plugins/endpoint_plugins``)."""

EXTRACTIONS = (
    ExtractionRule(
        Way.METHOD,
        layers_only=False,
        first=FIRST,
        last=LAST,
        source="config/speculative.py, extract_hidden_states: the list stands at the top level of its draft's config"
        " and is read as that of any draft",
    ),
)


def has_endpoint_plugins(version: str | None) -> bool:
    """Whether a plugin can add a route to a release's server; None for the newest, which it can."""
    return version is None or parse_version(version) >= parse_version(_FIRST_WITH_ROUTE)
