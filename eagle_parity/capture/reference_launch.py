"""What a server is started with so that it records a reference itself: given boundaries, every rank, no draft.

For targets that are too big for transformers. SGLang 0.5.23 has a mode for it; in 0.5.11 to 0.5.22 the plugin gives the
list to the target's own setter, on a server without speculation, where nothing else reads what is captured. vLLM has
the speculative method ``extract_hidden_states``; its KV connector isn't needed, since the hook records.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.launching import sglang_flags, vllm_environment
from eagle_parity.capture.sglang.loading import BESIDE_ENV, LAYER_IDS_ENV
from eagle_parity.capture.spool.folder import SPOOL_ENV
from eagle_parity.capture.vllm.live_objects import EXTRACT
from eagle_parity.engines.extraction import Extraction, extract
from eagle_parity.engines.launch_rules import Way
from eagle_parity.engines.resolved import resolve_engine
from eagle_parity.engines.sglang.launch import FIRST_WITH_MODE, FIRST_WITH_PLUGINS, graph_flags
from eagle_parity.errors import UsageError
from eagle_parity.targets import refuse_beyond
from eagle_parity.wiring import EMBEDDING, POST_NORM, format_boundaries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eagle_parity.capture.manifest import Manifest
    from eagle_parity.engines.engine import EngineName
    from eagle_parity.engines.rules import Engine
    from eagle_parity.targets import Target
    from eagle_parity.wiring import Boundary


@dataclass(frozen=True)
class ReferenceLaunch:
    """How to start a server that records a reference.

    Attributes:
        flags: of the launch.
        environment: of the server.
        records: the boundaries that the capture will have as slots, in their order.
        missing: what was asked for and can't be recorded so.
        notes: what else to know, a sentence each.
    """

    flags: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    records: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def reference_launch(
    name: EngineName, target: Target, wanted: Sequence[Boundary] | None, spool: str, *, exported: bool = False
) -> ReferenceLaunch:
    """The launch by which an engine hands over the wanted boundaries of a target.

    Args:
        name: the engine, ``sglang`` or ``vllm``, in a version of the tables.
        target: the target.
        wanted: boundaries; None for all. ``post_norm`` is recorded as the last state, whatever is wanted.
        spool: where the hook writes, as the server sees it.
        exported: whether SGLang's hook is the exported file and not the installed package.

    Raises:
        UsageError: the tables don't know the version or the class, no list gives any of them, or the release has no
            way to capture without a draft.
    """
    resolved = resolve_engine(name, assume_nearest=False)
    if resolved.version is None:
        raise UsageError(
            f"--engine {name}: the tables don't know this version, so which ids give which boundaries isn't known;"
            " `eagle-parity engines` lists the versions"
        )
    version = resolved.version
    if dict(name.options).get("impl") == "transformers":
        # Seen on 0.32.0: what holds the states is looked for in the transformers library, too (registry.py:1278).
        raise UsageError(
            f"--engine {name}: with --model-impl transformers vLLM finds no model for {EXTRACT} and dies at start;"
            " record the reference with the native class"
        )
    refuse_beyond(wanted or (), target, option="--boundaries")
    numbers = [b for b in wanted if isinstance(b, int)] if wanted is not None else list(range(target.num_layers + 1))
    way = _way(resolved.engine, version, exported=exported)
    found = extract(resolved.engine, name, version, target, numbers)
    if not isinstance(found, Extraction):
        raise UsageError(f"--boundaries: no reference of this target from {name}: {found.reason}")
    values = (len(numbers) + 1) * target.hidden_size
    size = (
        f"Every rank writes up to {values:,} values a token to the spool: --sequences and --max-tokens of the capture"
        " bound that."
    )
    notes = (size, *(f"A known defect of this release: {defect}." for defect in found.defects))
    if name.engine == "vllm":
        return _vllm(target, found, vllm_environment(version, spool), notes)
    return _sglang(version, target, found, spool, notes, way=way, exported=exported)


def missing_boundaries(manifest: Manifest, asked: Sequence[Boundary] | None) -> str | None:
    """What a capture lacks of the boundaries that were asked for, as a sentence; None where it has them.

    Args:
        manifest: of the capture.
        asked: boundaries; None for all.
    """
    wanted = list(range(manifest.target.num_layers + 1)) if asked is None else list(asked)
    missing: list[Boundary] = [
        boundary
        for boundary in dict.fromkeys(wanted)
        if boundary not in manifest.slots and (boundary != POST_NORM or manifest.last_state != POST_NORM)
    ]
    if not missing:
        return None
    held = format_boundaries(manifest.slots)
    if None in manifest.slots:
        return f"which boundaries the slots {held} are isn't known: the tables have no rule for this engine and class"
    return (
        f"the running target hands over {held}, without {format_boundaries(missing)}; `eagle-parity capture"
        " sglang|vllm --launch-flags --boundaries LIST --target T` says what to start the server with"
    )


def _way(engine: Engine, version: str, *, exported: bool) -> Way:
    """What gives the target its list."""
    rule = engine.extraction(version)
    if rule is None:
        raise UsageError(
            f"{engine.name} {version} captures for a draft alone and has no plugins ({FIRST_WITH_PLUGINS} and newer) by"
            " which a list could be given to it; record the reference with another release"
        )
    if exported and rule.way is Way.PLUGIN:
        raise UsageError(
            f"{engine.name} {version}: a reference needs the plugin, so the package installed beside SGLang; a hook in"
            f" one file does from {FIRST_WITH_MODE} on"
        )
    return rule.way


def _sglang(
    version: str, target: Target, found: Extraction, spool: str, notes: tuple[str, ...], *, way: Way, exported: bool
) -> ReferenceLaunch:
    ends = {EMBEDDING, target.num_layers}
    beside = tuple(boundary for boundary in found.missing if boundary in ends)
    missing = tuple(boundary for boundary in found.missing if boundary not in ends)
    front = (EMBEDDING,) if EMBEDDING in beside else ()
    records = (*front, *found.boundaries, *(b for b in beside if b != EMBEDDING))
    if beside:
        places = {EMBEDDING: "the first layer's input", target.num_layers: "the residual at the final norm"}
        taken = " and ".join(f"boundary {boundary} is {places[boundary]}" for boundary in beside)
        notes = (f"No id gives {format_boundaries(beside)}: the hook records that beside, {taken}.", *notes)
    if way is Way.OPTION:
        flags = [
            *sglang_flags(version, spool, exported=exported, beside=beside),
            "--enable-return-aux-hidden-states",
            "--return-aux-hidden-state-layer-ids",
            *(str(number) for number in found.ids),
            # It names the convention of the ids and is reset: no head runs.
            "--speculative-algorithm",
            "EAGLE3",
        ]
        return ReferenceLaunch(tuple(flags), {}, records, missing, notes)
    environment = {SPOOL_ENV: spool, LAYER_IDS_ENV: _joined(found.ids)}
    if beside:
        environment[BESIDE_ENV] = _joined(beside)
    notes = ("Install eagle-parity beside SGLang, and start the server without any --speculative option.", *notes)
    return ReferenceLaunch(tuple(graph_flags(version)), environment, records, missing, notes)


def _vllm(target: Target, found: Extraction, environment: Mapping[str, str], notes: tuple[str, ...]) -> ReferenceLaunch:
    speculative: dict[str, Any] = {
        "method": EXTRACT,
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(found.ids)}},
    }
    flags = ["--speculative-config", json.dumps(speculative, separators=(",", ":"))]
    kept = (
        "The method keeps all states in the KV cache, and those of a batch in a buffer:"
        f" {len(found.ids) * target.hidden_size:,} values a token in each. --max-num-batched-tokens bounds the buffer."
    )
    notes = ("Install eagle-parity beside vLLM.", kept, *notes)
    return ReferenceLaunch(tuple(flags), environment, found.boundaries, found.missing, notes)


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(str(number) for number in numbers)
