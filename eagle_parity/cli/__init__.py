"""The command line: one thin file a subcommand, over a library that does the work.

``COMMANDS`` lists them in the order of ``--help``, ``GROUPS`` those that have subcommands of their own: adding one is
one file and one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eagle_parity.cli.capture import capture_transformers
from eagle_parity.cli.capture_live import capture_sglang, capture_vllm
from eagle_parity.cli.check_config import check_config
from eagle_parity.cli.checks import checks
from eagle_parity.cli.demo import demo
from eagle_parity.cli.diff_captures import diff_captures
from eagle_parity.cli.engines import engines
from eagle_parity.cli.explain import explain
from eagle_parity.cli.ids import ids
from eagle_parity.cli.inspect import inspect
from eagle_parity.cli.report import report
from eagle_parity.cli.scan import scan

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS: dict[str, Callable[..., object]] = {
    "check-config": check_config,
    "ids": ids,
    "diff-captures": diff_captures,
    "scan": scan,
    "inspect": inspect,
    "report": report,
    "checks": checks,
    "explain": explain,
    "engines": engines,
    "demo": demo,
}


class Group(NamedTuple):
    """A command with subcommands: its help line, and the subcommands by name."""

    help: str
    commands: dict[str, Callable[..., object]]


GROUPS: dict[str, Group] = {
    "capture": Group(
        "Record hidden states: of a running server, every rank, or of a reference forward.",
        {"sglang": capture_sglang, "vllm": capture_vllm, "transformers": capture_transformers},
    ),
}
