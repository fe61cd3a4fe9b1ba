"""Option values from a YAML file, so that a CI job states them once."""

from __future__ import annotations

import difflib
from typing import Any

import yaml

from eagle_parity.config_files import MAX_CONFIG_BYTES
from eagle_parity.errors import InputError, UsageError
from eagle_parity.input_files import read_bounded
from eagle_parity.quoting import quoted

_EXPECTED = "YAML such as  check-config: {target: ./target, engine: [sglang@0.5.23]}"


def read_defaults(source: str, program: Any) -> dict[str, Any]:
    """Values by subcommand and parameter, as the command line library takes them.

    Options are named with ``-`` or ``_``. One that may be given several times takes a list, or a single value.

    Args:
        source: the file.
        program: the command whose subcommands and options the file is held against.

    Raises:
        InputError: no such file, not YAML, or not a mapping of mappings.
        UsageError: a subcommand or an option that there isn't, or a value of a kind that the option doesn't take.
    """
    try:
        values = yaml.safe_load(read_bounded(source, MAX_CONFIG_BYTES, expected=_EXPECTED))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(source, f"not YAML ({' '.join(str(error).split())[:120]})", expected=_EXPECTED) from error
    return _by_command(source, program, values)


def _by_command(source: str, group: Any, values: object, path: str = "") -> dict[str, Any]:
    if not isinstance(values, dict):
        what = f"{path}is no mapping" if path else "not a mapping"
        raise InputError(source, f"{what} of subcommands to options", expected=_EXPECTED)
    made: dict[str, Any] = {}
    for name, options in values.items():
        command = group.commands.get(str(name))
        if command is None:
            raise UsageError(f"{source}: no subcommand {path}{quoted(name)}{_nearest(str(name), list(group.commands))}")
        deeper = f"{path}{name}: "
        if hasattr(command, "commands"):
            made[str(name)] = _by_command(source, command, options, deeper)
        elif isinstance(options, dict):
            made[str(name)] = _by_parameter(source, command, options, deeper)
        else:
            raise InputError(source, f"{deeper}not a mapping of options to values", expected=_EXPECTED)
    return made


def _by_parameter(source: str, command: Any, options: dict[Any, Any], path: str) -> dict[str, Any]:
    known = {
        name.lstrip("-"): parameter
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    }
    made: dict[str, Any] = {}
    for name, value in options.items():
        parameter = known.get(str(name).replace("_", "-"))
        if parameter is None:
            raise UsageError(f"{source}: {path}no option {quoted(name)}{_nearest(str(name), list(known))}")
        given = value if isinstance(value, list) else [value]
        if not all(isinstance(entry, str | int | float) for entry in given):
            raise UsageError(f"{source}: {path}{name}: {quoted(value)}; expected a text, a number, or yes or no")
        if isinstance(value, list) and not parameter.multiple:
            raise UsageError(
                f"{source}: {path}{name}: a list, but the option takes one value, such as 3,31,59 in quotes"
            )
        made[parameter.name] = given if parameter.multiple else value
    return made


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.replace("_", "-"), known, n=2)
    return f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(sorted(known))}"
