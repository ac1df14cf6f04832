"""The diagnosis of a domain: all findings, and their sum."""

from __future__ import annotations

import dataclasses
from typing import Final

from ospltool.doctor import endpoints, nodes
from ospltool.doctor.picture import DoctorCause, DoctorFinding, DomainPicture, Weight

CLOCK_BOUND_NS: Final = 100_000_000
MAX_FINDINGS: Final = 1_000

_ORDER: Final = {Weight.ERROR: 0, Weight.WARNING: 1, Weight.INFO: 2}
_DECIDING: Final = (Weight.ERROR, Weight.WARNING)


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a diagnosis.

    Attributes:
        picture: the domain.
        findings: by topic, nodes first; the gravest first.
        left_out: number of findings beyond a thousand; they are the least grave ones.
    """

    picture: DomainPicture
    findings: tuple[DoctorFinding, ...]
    left_out: int = 0

    @property
    def is_good(self) -> bool:
        """Whether there are no findings other than information."""
        return not any(each.weight in _DECIDING for each in self.findings)

    def inconsistent(self, *, writers: bool) -> int:
        """Count the writers or readers that cannot become consistent."""
        return len(
            {
                endpoint.guid
                for each in self.findings
                if each.weight in _DECIDING and each.cause is not DoctorCause.WRITERS_DISAGREE
                for endpoint in each.endpoints
                if endpoint.is_writer is writers
            }
        )


def diagnose(picture: DomainPicture, clock_bound_ns: int = CLOCK_BOUND_NS) -> Diagnosis:
    """Apply every rule.

    Args:
        picture: the domain.
        clock_bound_ns: tolerated difference of clocks.
    """
    found = list(nodes.findings(picture, clock_bound_ns))
    for topic in picture.topics():
        found += endpoints.findings(topic)
    found.sort(key=lambda each: _ORDER[each.weight])
    kept = found[:MAX_FINDINGS]
    kept.sort(key=lambda each: (each.topic, _ORDER[each.weight], each.cause))
    return Diagnosis(picture, tuple(kept), len(found) - len(kept))
