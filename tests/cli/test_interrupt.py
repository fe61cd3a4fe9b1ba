"""Ctrl-C that a library swallows is an interrupt all the same."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from eagle_parity.cli import app
from eagle_parity.cli.interrupt import Interrupt

if TYPE_CHECKING:
    from pathlib import Path


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_it_is_raised_and_noted_and_the_handler_goes_again() -> None:
    interrupt = Interrupt()
    with pytest.raises(KeyboardInterrupt), interrupt:
        press()
    assert interrupt.came
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whoever_has_a_handler_keeps_it() -> None:
    seen: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        with Interrupt() as interrupt:
            press()
        assert (seen, interrupt.came) == ([signal.SIGINT], False)
    finally:
        signal.signal(signal.SIGINT, former)


def test_a_thread_sets_none() -> None:
    def enter() -> None:
        with Interrupt():
            handlers.append(signal.getsignal(signal.SIGINT))

    handlers: list[object] = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


@pytest.mark.parametrize("pressed", [True, False])
def test_what_fails_after_it_is_no_bug(
    pressed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def half_there(*_: object, **__: object) -> None:
        try:
            if pressed:
                press()
        except KeyboardInterrupt:
            pass
        raise AttributeError("module 'numpy' has no attribute 'multiply'")

    monkeypatch.setattr(app, "app", half_there)
    assert app.run(["inspect", str(tmp_path)]) == (130 if pressed else 2)
    assert ("internal error" in capsys.readouterr().err) != pressed
