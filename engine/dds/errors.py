"""Errors of calls into Cyclone DDS."""

from __future__ import annotations

from typing import Final

OK: Final = 0
# Return codes of ddsrt/retcode.h.
UNSUPPORTED: Final = -2
BAD_PARAMETER: Final = -3
PRECONDITION_NOT_MET: Final = -4
OUT_OF_RESOURCES: Final = -5
ALREADY_DELETED: Final = -9
TIMEOUT: Final = -10

_NAMES: Final = {
    -1: "ERROR",
    UNSUPPORTED: "UNSUPPORTED",
    BAD_PARAMETER: "BAD_PARAMETER",
    PRECONDITION_NOT_MET: "PRECONDITION_NOT_MET",
    OUT_OF_RESOURCES: "OUT_OF_RESOURCES",
    -6: "NOT_ENABLED",
    -7: "IMMUTABLE_POLICY",
    -8: "INCONSISTENT_POLICY",
    ALREADY_DELETED: "ALREADY_DELETED",
    TIMEOUT: "TIMEOUT",
    -11: "NO_DATA",
    -12: "ILLEGAL_OPERATION",
    -13: "NOT_ALLOWED_BY_SECURITY",
}


class UnsupportedCyclone(Exception):
    """Cyclone DDS is not one whose functions and memory layouts this package knows.

    Args:
        text: the reason.
        may_pass: whether another attempt may fare better; otherwise settings or the installation must change.
    """

    def __init__(self, text: str, *, may_pass: bool = False) -> None:
        super().__init__(text)
        self.may_pass = may_pass


class DdsError(Exception):
    """A call into Cyclone DDS failed.

    Attributes:
        code: the DDS return code, negative.
        action: the failed action, as a phrase ("create the topic 'Radar'").
    """

    def __init__(self, code: int, action: str) -> None:
        self.code = code
        self.action = action
        super().__init__(f"cannot {action}: Cyclone DDS answers {_NAMES.get(code, str(code))}")


class DdsTimeout(DdsError):
    """The call timed out; the entity is intact and the call may be repeated."""


class UnusableSettings(DdsError):
    """Settings that are not handed to Cyclone DDS, or whose refusal has a better reason than it gives.

    Args:
        code: the DDS return code that stands for the reason.
        text: the reason, a sentence.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, "use the settings")
        self.args = (text,)


class SettingsRefused(UnusableSettings):
    """Settings that Cyclone DDS refuses.

    Args:
        text: which, where, and in what words.
        may_pass: whether it may accept them later, as a host name that cannot be resolved yet.
    """

    def __init__(self, text: str, *, may_pass: bool) -> None:
        super().__init__(BAD_PARAMETER, text)
        self.may_pass = may_pass


def no_security(domain_id: int, why: str) -> UnusableSettings:
    """Return the error for settings that ask for DDS Security.

    Args:
        domain_id: the domain of these settings.
        why: why it cannot be had, as the rest of a sentence.
    """
    return UnusableSettings(
        UNSUPPORTED,
        f"the settings of Cyclone DDS for domain {domain_id} have <Security>, but {why}, so nothing of"
        " ospltool can take part in a secured domain",
    )


def check(code: int, action: str) -> int:
    """Return a DDS return code that means success, and raise otherwise.

    Raises:
        DdsTimeout: the code is TIMEOUT.
        DdsError: the code is any other error.
    """
    if code >= 0:
        return code
    raise (DdsTimeout if code == TIMEOUT else DdsError)(code, action)
