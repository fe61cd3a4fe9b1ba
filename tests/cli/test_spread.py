from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import pytest
import typer

from eagle_parity.cli.spread import spread

SizeOption: TypeAlias = Annotated[int, typer.Option("--size", help="How many.")]


@dataclass(frozen=True, kw_only=True)
class Common:
    name: str
    size: SizeOption = 3


@dataclass(frozen=True, kw_only=True)
class Shown:
    quiet: bool = False


@spread
def command(common: Common, *, own: str | None = None, shown: Shown) -> int:
    """What it does."""
    return 0 if (common, own, shown) == (Common(name="a", size=5), "b", Shown(quiet=True)) else 1


def test_each_field_is_a_parameter_in_its_place() -> None:
    parameters = inspect.signature(command, eval_str=True).parameters
    assert list(parameters) == ["name", "size", "own", "quiet"]
    assert parameters["name"].default is inspect.Parameter.empty
    assert (parameters["size"].default, parameters["size"].annotation) == (3, SizeOption)
    assert command.__doc__ == "What it does."


def test_the_command_gets_its_sets_whole() -> None:
    assert command(name="a", size=5, own="b", quiet=True) == 0
    assert command(name="a") == 1


def test_what_is_no_option_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown"):
        command(name="a", unknown=1)


def test_typer_reads_it() -> None:
    app = typer.Typer()
    app.command()(command)
    assert app(["a", "--size", "5", "--own", "b", "--quiet"], standalone_mode=False) == 0
