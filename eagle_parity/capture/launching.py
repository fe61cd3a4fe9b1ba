"""What a server is started with so that it can be captured: flags, by engine and version, and the hook as one file."""

from __future__ import annotations

import ast
import json
import shlex
from importlib import resources
from typing import TYPE_CHECKING, Literal

from eagle_parity.capture.servers.sglang import EXPORTED_HOOK, HOOK_FACTORY
from eagle_parity.capture.sglang.modules import FINAL_NORMS, TARGET_MODULES
from eagle_parity.capture.spool.folder import SPOOL_ENV
from eagle_parity.capture.vllm.endpoint import PLUGIN
from eagle_parity.engines.sglang.launch import FIRST_WITH_REQUEST_IDS, graph_flags, tells_requests_apart
from eagle_parity.engines.vllm.launch import has_endpoint_plugins
from eagle_parity.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_AGAINST: dict[str, dict[str, str]] = {
    "sglang": {"prefix": "--disable-radix-cache", "chunk": "--chunked-prefill-size 64"},
    "vllm": {"prefix": "--no-enable-prefix-caching", "chunk": "--max-num-batched-tokens 64"},
}

SGLANG_HOOK_MODULES = (
    "hook_log",
    "worker_facts",
    "spool.request_ids",
    "spool.files",
    "spool.folder",
    "spool.limits",
    "spool.rows",
    "spool.session",
    "spool.worker",
    "sglang.modules",
    "sglang.forward",
    "sglang.facts",
    "sglang.beside",
    "sglang.tap",
    "sglang.loading",
)
"""What the exported hook is made of, each behind what it imports. They share one namespace there: no two of them may
give a name to different things, and none may import a module of this package as a whole."""
EXPORTED_NAME = EXPORTED_HOOK.partition(":")[0] + ".py"


def sglang_flags(version: str | None, spool: str, *, exported: bool = False, beside: Sequence[int] = ()) -> list[str]:
    """The launch flags of an SGLang release.

    Args:
        version: of SGLang; None for the newest.
        spool: where the hook writes, as the server sees it.
        exported: whether the hook is the exported file and not the installed package.
        beside: the first and the last boundary, where the hook records them beside the auxiliary states.

    Raises:
        UsageError: a release whose workers don't know their requests' ids.
    """
    if version is not None and not tells_requests_apart(version):
        raise UsageError(
            f"sglang {version}: its forward batches carry no request ids, so rows can't be told apart; capture needs"
            f" {FIRST_WITH_REQUEST_IDS} or newer"
        )
    hook = {
        "name": "eagle-parity",
        "target_modules": [*TARGET_MODULES, *(FINAL_NORMS if beside else ())],
        "hook_factory": EXPORTED_HOOK if exported else HOOK_FACTORY,
        "config": {"spool": spool, **({"beside": list(beside)} if beside else {})},
    }
    return ["--forward-hooks", json.dumps([hook], separators=(",", ":")), *graph_flags(version)]


def vllm_environment(version: str | None, spool: str) -> dict[str, str]:
    """The environment of a vLLM server; the package itself has to be installed beside vLLM.

    Where no plugin can add a route, the hook is reached in development mode.

    Args:
        version: of vLLM; None for the newest.
        spool: where the hook writes, as the server sees it.
    """
    if has_endpoint_plugins(version):
        return {"VLLM_PLUGINS": PLUGIN, SPOOL_ENV: spool}
    return {"VLLM_SERVER_DEV_MODE": "1", SPOOL_ENV: spool}


def flags_against(engine: str, problem: Literal["prefix", "chunk"]) -> str:
    """What to start a server with so that a capture has every row, or a condition can be recorded.

    Args:
        engine: ``sglang`` or ``vllm``.
        problem: ``prefix``, rows that came from a cache; ``chunk``, sequences that the scheduler doesn't split.
    """
    return _AGAINST[engine][problem]


def as_shell(words: Sequence[str]) -> str:
    """Words as one line that a shell takes."""
    return shlex.join(words)


def exported_sglang_hook() -> str:
    """The SGLang hook as one module without dependencies, for images where nothing may be installed.

    It is the package's own source: the modules one after the other, without what they import from each other.
    """
    package = resources.files("eagle_parity.capture")
    sources = [package.joinpath(*f"{name.replace('.', '/')}.py".split("/")) for name in SGLANG_HOOK_MODULES]
    bodies = [_without_own_imports(source.read_text("utf-8")) for source in sources]
    return (
        '"""The capture hook of eagle-parity for SGLang, written by `eagle-parity capture sglang --export-hook`.\n\n'
        f"Put it where Python finds it (PYTHONPATH) under the name {EXPORTED_NAME}.\n"
        '"""\n\nfrom __future__ import annotations\n\n' + "\n\n".join(bodies)
    )


def _without_own_imports(source: str) -> str:
    """The source without its docstring, its ``__future__`` line, its imports from this package and for types alone."""
    tree = ast.parse(source)
    dropped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            own = (node.module or "").split(".")[0] in {"__future__", "eagle_parity"}
        elif isinstance(node, ast.If):
            # Annotations are strings there as here, and a block of nothing but own imports would be left empty.
            own = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        else:
            continue
        if own:
            dropped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    if ast.get_docstring(tree) is not None:
        first = tree.body[0]
        dropped |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return (
        "".join(
            line for number, line in enumerate(source.splitlines(keepends=True), start=1) if number not in dropped
        ).strip("\n")
        + "\n"
    )
