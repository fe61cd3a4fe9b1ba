"""What a person is told when an input can't be used: the file, what was expected, what was found, what to do."""

from __future__ import annotations

from typing import Any


class ParityError(Exception):
    """Base of every error that the command line turns into one line and exit status 2."""


class UsageError(ParityError):
    """The call itself is wrong: an option's value doesn't parse, two options exclude each other."""


class NotTrainedSoError(UsageError):
    """The trainer that was named would not have trained this draft with the ids that its config has.

    The call is right; what it states can't be true of this draft, so that the trained wiring stays unknown.
    """


class InputError(ParityError):
    """An input can't be read.

    Args:
        subject: the file, folder or name that was given.
        found: what is wrong with it.
        expected: what would have been readable.
        remedy: what to do, if that isn't plain from the rest.
    """

    def __init__(self, subject: object, found: str, *, expected: str = "", remedy: str = "") -> None:
        self.subject = str(subject)
        self.found = found
        self.expected = expected
        self.remedy = remedy
        parts = [f"{self.subject}: {found}"]
        if expected:
            parts.append(f"expected {expected}")
        if remedy:
            parts.append(remedy)
        super().__init__("; ".join(parts))

    def __reduce__(self) -> tuple[Any, ...]:
        """From its parts: a worker's error comes to whoever asked."""
        return _input_error, (type(self), self.subject, self.found, self.expected, self.remedy)


class MissingExtraError(ParityError):
    """A command needs an optional part of the installation."""

    def __init__(self, command: str, extra: str, module: str) -> None:
        self.extra = extra
        self._parts = command, extra, module
        super().__init__(f"{command} needs {module}: install it with  pip install 'eagle-parity[{extra}]'")

    def __reduce__(self) -> tuple[Any, ...]:
        """As an input's error."""
        return type(self), self._parts


def _input_error(kind: type[InputError], subject: str, found: str, expected: str, remedy: str) -> InputError:
    return kind(subject, found, expected=expected, remedy=remedy)
