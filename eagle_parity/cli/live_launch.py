"""``--launch-flags`` and ``--export-hook``: what a server is started with, so that it can be captured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eagle_parity.cli.live_options import AUTO, parse_asked, version_of
from eagle_parity.cli.streams import say_on_stderr, write_stdout
from eagle_parity.errors import InputError, UsageError
from eagle_parity.files import write_atomically
from eagle_parity.reporters.escaping import visible
from eagle_parity.results import ExitStatus

if TYPE_CHECKING:
    from eagle_parity.capture.reference_launch import ReferenceLaunch


class Launch(NamedTuple):
    """What ``--launch-flags`` and ``--export-hook`` print is for: the options as they were given."""

    engine: str
    spool: str | None
    boundaries: str | None
    target: str | None
    export_hook: str | None = None
    overwrite: bool = False

    def reference(self, name: str) -> ReferenceLaunch | None:
        """The launch that records a reference, where that is asked for."""
        from eagle_parity.capture.reference_launch import reference_launch
        from eagle_parity.engines import newest_engines, parse_engine
        from eagle_parity.targets import read_target

        asked = parse_asked(self.boundaries)
        if asked is None or self.target is None:
            if asked is not None or self.target is not None:
                raise UsageError(
                    "--launch-flags takes --boundaries and --target together: whose layers they are counts"
                )
            return None
        version_of(self.engine, name)
        engine = next(e for e in newest_engines() if e.engine == name)
        if self.engine != AUTO:
            engine = parse_engine(self.engine)
        return reference_launch(
            engine,
            read_target(self.target),
            asked.boundaries,
            self.spool or _default_folder(),
            exported=self.export_hook is not None,
        )


def prepare_sglang(launch: Launch) -> int:
    """Prints the flags of an SGLang server, and writes the hook as one file where that is asked for."""
    from eagle_parity.capture import launching

    reference = launch.reference("sglang")
    exported = launch.export_hook is not None
    if launch.export_hook is not None:
        _export(launch.export_hook, launching.exported_sglang_hook().encode(), overwrite=launch.overwrite)
        say_on_stderr(
            f"# {visible(launch.export_hook)}: its folder goes to PYTHONPATH of the server, where the file has to be"
            f" called {launching.EXPORTED_NAME}\n"
        )
    _say_release(launch, "sglang")
    if reference is not None:
        return _print_reference(reference)
    version = version_of(launch.engine, "sglang")
    flags = launching.sglang_flags(version, launch.spool or _default_folder(), exported=exported)
    write_stdout(launching.as_shell(flags) + "\n")
    return int(ExitStatus.PARITY)


def prepare_vllm(launch: Launch) -> int:
    """Prints the environment of a vLLM server, and the flags where it is to record a reference."""
    from eagle_parity.capture import launching

    reference = launch.reference("vllm")
    _say_release(launch, "vllm")
    if reference is not None:
        return _print_reference(reference)
    environment = launching.vllm_environment(version_of(launch.engine, "vllm"), launch.spool or _default_folder())
    write_stdout(launching.as_shell([f"{name}={value}" for name, value in environment.items()]) + "\n")
    return int(ExitStatus.PARITY)


def _export(path: str, hook: bytes, *, overwrite: bool) -> None:
    """Writes the hook, over no file but an earlier export of the same.

    Raises:
        InputError: another file is there, or it can't be written.
    """
    if not overwrite and os.path.lexists(path) and not _holds(path, hook):
        raise InputError(path, "already there", expected="a free name", remedy="choose another one or --overwrite")
    write_atomically(path, hook)


def _holds(path: str, content: bytes) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(content) + 1) == content
    except OSError:
        return False


def _say_release(launch: Launch, name: str) -> None:
    """On stderr, for which release it is, where nobody has named one, or one that isn't known."""
    from eagle_parity.engines import BY_NAME

    version = version_of(launch.engine, name)
    known = BY_NAME[name].versions
    if version is not None and version not in known:
        say_on_stderr(
            f"# {name} {visible(version)} is no release whose rules are known ({known[0]} to {known[-1]}): these are"
            " the flags of the nearest one\n"
        )
    if launch.engine == AUTO:
        say_on_stderr(f"# for the newest release that is known; --engine {name}@VERSION names another\n")


def _print_reference(launch: ReferenceLaunch) -> int:
    """Environment and flags, a line each, and on stderr what they record: a shell takes the first alone."""
    from eagle_parity.capture.launching import as_shell
    from eagle_parity.wiring import format_boundaries

    lines = [[f"{name}={value}" for name, value in launch.environment.items()], launch.flags]
    say_on_stderr(f"# records the boundaries {format_boundaries(launch.records)}, and post_norm as the last state\n")
    if launch.missing:
        say_on_stderr(f"# not {format_boundaries(launch.missing)}: no id gives them in this release\n")
    for note in launch.notes:
        say_on_stderr(f"# {visible(note)}\n")
    write_stdout("".join(as_shell(words) + "\n" for words in lines if words))
    return int(ExitStatus.INCONCLUSIVE if launch.missing else ExitStatus.PARITY)


def _default_folder() -> str:
    from eagle_parity.capture.spool.folder import default_spool

    return str(default_spool())
