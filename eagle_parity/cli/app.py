"""The ``eagle-parity`` program: its subcommands, and what happens to an error.

Subcommand modules import only what their signature needs; the work is imported inside the function, so that
``check-config`` starts without torch and ``--help`` without anything.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from eagle_parity import __version__
from eagle_parity.cli import COMMANDS, GROUPS
from eagle_parity.cli.interrupt import Interrupt
from eagle_parity.cli.streams import discard, is_of_stdout, mend_streams, say_on_stderr, write_stdout
from eagle_parity.errors import ParityError, UsageError
from eagle_parity.results import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""

BROKEN_PIPE = 141
"""128 + SIGPIPE: not 0, or a result that nobody read to its end would pass for parity under ``pipefail``."""

app = typer.Typer(
    name="eagle-parity",
    help="Is an EAGLE-3 draft head fed, in production, the hidden states it was trained on?",
    epilog="Exit status: 0 parity, 1 a finding at or above --fail-on, 2 wrong usage or no input, 3 inconclusive.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        write_stdout(f"eagle-parity {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  handled by its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[  # noqa: ARG001  taken out of the arguments by run()
        bool, typer.Option("--debug", help="Show a traceback instead of one line; works anywhere in the call.")
    ] = False,
    defaults: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            # No square brackets: rich would read them as markup.
            help="YAML with option values by subcommand, e.g. 'check-config: {engine: sglang@0.5.23}'. For CI.",
        ),
    ] = None,
) -> None:
    """Take the options that come before a subcommand."""
    if defaults is not None:
        from eagle_parity.cli.defaults import read_defaults

        context.default_map = read_defaults(defaults, context.command)


class Command(TyperCommand):
    """A subcommand that takes no empty text.

    A path, an engine or a list of boundaries is never empty; an empty path would be read as the current folder. It is
    what an unset variable of a shell looks like: ``--output "$OUT"``.
    """

    def invoke(self, ctx: Any) -> Any:
        """Runs it, if no argument and no option is empty.

        Raises:
            UsageError: one is.
        """
        for parameter in self.get_params(ctx):
            value = ctx.params.get(parameter.name)
            if value == "" or (isinstance(value, list | tuple) and "" in value):
                label = max(parameter.opts, key=len)
                label = label if label.startswith("-") else parameter.metavar or label.upper()
                raise UsageError(f"{label} is empty: give it a value, or leave it out")
        return super().invoke(ctx)


for _name, _command in COMMANDS.items():
    app.command(_name, cls=Command, no_args_is_help=False)(_command)
for _name, _group in GROUPS.items():
    _subcommands = typer.Typer(no_args_is_help=True)
    for _subname, _command in _group.commands.items():
        _subcommands.command(_subname, cls=Command, no_args_is_help=False)(_command)
    # A group of one would otherwise be merged into its only subcommand.
    _subcommands.callback()(lambda: None)
    app.add_typer(_subcommands, name=_name, help=_group.help)


def run(arguments: Sequence[str]) -> int:
    """Runs one call and returns its exit status; prints an error as one line on stderr."""
    mend_streams()
    try:
        status = call(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read stdout has seen enough; the interpreter must not try to flush it again.
        discard(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        # Of all that can fail to be read or written, only stdout gets here: see call().
        discard(sys.stdout)
        return _fail(f"stdout: can't be written ({error.strerror or error}); expected a place for the result")
    return status


def call(arguments: Sequence[str]) -> int:
    """As ``run``, for a caller that has written to stdout itself and has to know when that fails.

    Raises:
        OSError: stdout can't be written to; BrokenPipeError where nobody reads it any more.
    """
    debug = "--debug" in arguments or bool(os.environ.get("EAGLE_PARITY_DEBUG"))
    arguments = [argument for argument in arguments if argument != "--debug"]
    interrupt = Interrupt()
    try:
        with interrupt:
            status = app(args=list(arguments), prog_name="eagle-parity", standalone_mode=False)
    except ParityError as error:
        if debug:
            raise
        return _fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except SystemExit as stop:
        # typer and rich turn a broken pipe into exit status 1, which here means that something was found.
        if isinstance(stop.__context__, BrokenPipeError):
            raise stop.__context__ from None
        raise
    except Exception as error:  # the last stop: a bug is told in one line
        if debug or is_of_stdout(error):
            raise
        if interrupt.came and _usage_error(error) is None:
            return INTERRUPTED  # it hit a library while that was being imported, and what is half there fails later
        return _fail_by(error)
    return status if isinstance(status, int) else 0


def _fail_by(error: Exception) -> int:
    told = _usage_error(error)
    if told is not None:
        return _fail(told) if told else ExitStatus.USAGE
    return _fail(f"internal error, please report it: {type(error).__name__}: {error} (--debug shows where)")


def _usage_error(error: Exception) -> str | None:
    """A usage error of typer's own in one line; "" where it was the help and is printed, None for any other error.

    typer carries its own copy of click, or uses the package, by version: the errors are known by what they can do.
    """
    show, format_message = getattr(error, "show", None), getattr(error, "format_message", None)
    if not callable(show) or not callable(format_message):
        return None
    if type(error).__name__ == "NoArgsIsHelpError":
        show()
        return ""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "eagle-parity"
    return f"{format_message()} (`{path} -h` shows the usage)"


def _fail(message: str) -> int:
    from eagle_parity.reporters.escaping import visible

    say_on_stderr(f"eagle-parity: error: {visible(' '.join(message.split()))}\n")
    return ExitStatus.USAGE


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))
