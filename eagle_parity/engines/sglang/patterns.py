"""The two loops that most of SGLang's target classes have: rows of the table with what they share filled in."""

from __future__ import annotations

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Defect, Outside, Setter, Source

GRAPHS_FIRST = ("0.5.8", "0.5.10.post1")
"""The releases that capture verify graphs before the ids are set."""


def plus_one(
    family: str,
    architectures: tuple[str, ...],
    versions: tuple[str, str],
    embedding: AtEmbedding,
    source: Source,
    *defects: Defect,
) -> ClassRule:
    """A class that adds one to every id and whose loop asks ``i in layers_to_capture``; it never reaches layer N."""
    return ClassRule(
        family=family,
        architectures=architectures,
        first=versions[0],
        last=versions[1],
        setter=Setter.PLUS_ONE,
        embedding=embedding,
        reaches_last=False,
        source=source,
        defects=defects,
    )


def flagged(
    family: str, architectures: tuple[str, ...], versions: tuple[str, str], source: Source, *defects: Defect
) -> ClassRule:
    """A class that adds one to every id and sets a flag on ``layers[i]``: Python's indexing decides what i means."""
    rule = plus_one(family, architectures, versions, AtEmbedding.DELIVERS, source, *defects)
    return replace(rule, outside=Outside.FLAGS_BY_INDEX)
