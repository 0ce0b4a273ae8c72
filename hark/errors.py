"""Every error hark shows a person, with its exit code.

Rules: an error says what could not be done, why, and what to try. Only ``hark.cli`` catches these
and prints them as ``hark: error / cause / hint``. Anything else that escapes is a bug.
"""

from __future__ import annotations

__all__ = [
    "AlreadyTold",
    "BundleInvalid",
    "HarkError",
    "InputError",
    "InternalError",
    "KernelUnsupported",
    "LaunchError",
    "PolicyError",
    "RecordingFailed",
]


class HarkError(Exception):
    """Base of all errors a person may see.

    ``what`` is a short lower-case sentence, ``cause`` what the system said, ``hint`` what to do.
    """

    exit_code = 1

    def __init__(self, what: str, cause: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.hint = hint

    def lines(self) -> list[str]:
        """The lines to print, without colour; empty parts are left out.

        Parts may repeat what an agent wrote, such as a key of its hark.toml: each stays one line,
        and can neither move the cursor nor change colours.
        """
        parts = [("error", self.what), ("cause", self.cause), ("hint", self.hint)]
        return [f"hark: {name}: {_visible(text)}" for name, text in parts if text]


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class AlreadyTold(HarkError):
    """A child of this process has printed what is wrong; nothing more is to be said."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("")
        self.exit_code = exit_code


class InputError(HarkError):
    """An argument or a file that was named cannot be used."""

    exit_code = 2


class PolicyError(HarkError):
    """The policy does not parse, or asks for something impossible."""

    exit_code = 2


class KernelUnsupported(HarkError):
    """The kernel or the host lacks something this run must have."""

    exit_code = 125


class LaunchError(HarkError):
    """The sandbox could not be built or the agent not started."""

    exit_code = 125


class RecordingFailed(HarkError):
    """The record could not be written; the agent was stopped."""

    exit_code = 125


class BundleInvalid(HarkError):
    """A bundle, proof or key file does not hold what its format demands."""

    exit_code = 1


class InternalError(HarkError):
    """A bug in hark."""

    exit_code = 125
