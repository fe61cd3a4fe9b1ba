"""A command that takes a set of options as one value, and still says each of them to typer."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable


def spread(command: Callable[..., int]) -> Callable[..., int]:
    """The command with every parameter that is a dataclass replaced by its fields, in their place.

    typer reads options from a function's signature; sets of options that several commands share stand in a dataclass,
    whose fields are annotated as parameters are, and the command gets it whole.

    Args:
        command: annotated with names that its module has at run time.
    """
    hints = get_type_hints(command, include_extras=True)
    sets: dict[str, Any] = {}
    shown: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            sets[parameter.name] = kind
            shown += _parameters(kind)
        else:
            shown.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    def call(**given: Any) -> int:
        taken = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind) if field.name in given})
            for name, kind in sets.items()
        }
        return command(**taken, **given)

    spread_out: Any = wraps(command)(call)
    spread_out.__signature__ = inspect.Signature(shown, return_annotation=hints["return"])
    spread_out.__annotations__ = {each.name: each.annotation for each in shown} | {"return": hints["return"]}
    told: Callable[..., int] = spread_out
    return told


def _parameters(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]
