"""With what a release of SGLang can be started so that hidden states are recorded: options by version."""

from __future__ import annotations

from eagle_parity.engines.launch_rules import ExtractionRule, Way
from eagle_parity.versions import parse_version

FIRST_WITH_REQUEST_IDS = "0.5.10"
"""The first release whose forward batches carry request ids (``model_executor/forward_batch_info.py``, ``rids``);
``--forward-hooks`` itself is older."""
FIRST_WITH_PLUGINS = "0.5.11"
"""The first release with the group ``sglang.srt.plugins``; its hook alone gets at the target before it is used."""
FIRST_WITH_MODE = "0.5.23"
"""The first release with ``--enable-return-aux-hidden-states`` (``arg_groups/validation_hook.py``)."""
_FIRST_WITH_BACKEND_FLAGS = "0.5.14"
"""From here on ``--cuda-graph-backend-prefill``; before it ``--disable-piecewise-cuda-graph`` (``server_args.py``)."""

EXTRACTIONS = (
    ExtractionRule(
        Way.PLUGIN,
        layers_only=False,
        first=FIRST_WITH_PLUGINS,
        last="0.5.22",
        source="plugins (0.5.11), set_eagle3_layers_to_capture of each target class: on a server without speculation"
        " nothing else reads what it captures",
    ),
    ExtractionRule(
        Way.OPTION,
        layers_only=True,
        first=FIRST_WITH_MODE,
        last="0.5.23",
        source="arg_groups/validation_hook.py:694: --return-aux-hidden-state-layer-ids takes no id below 0, none of N"
        " or more and none twice",
    ),
)


def tells_requests_apart(version: str) -> bool:
    """Whether a release's workers know the ids of their requests."""
    return parse_version(version) >= parse_version(FIRST_WITH_REQUEST_IDS)


def graph_flags(version: str | None) -> list[str]:
    """Flags that keep a prompt's forward out of graphs, whose replay calls no hook; None for the newest release."""
    old = version is not None and parse_version(version) < parse_version(_FIRST_WITH_BACKEND_FLAGS)
    return ["--disable-piecewise-cuda-graph"] if old else ["--cuda-graph-backend-prefill", "disabled"]
