"""Every error code of the service has its exception."""

from __future__ import annotations

import pytest

from engine.dds.client_protocol.messages import ErrorCode
from ospltool import client
from ospltool.client import errors

EXCEPTIONS = {
    ErrorCode.INCOMPATIBLE_VERSION: client.IncompatibleVersion,
    ErrorCode.INVALID_START_TIME: client.InvalidTimeRange,
    ErrorCode.INVALID_END_TIME: client.InvalidTimeRange,
    ErrorCode.INVALID_TIME_RANGE: client.InvalidTimeRange,
    ErrorCode.INVALID_MAX_SAMPLES: client.InvalidLimit,
    ErrorCode.INVALID_MAX_INSTANCES: client.InvalidLimit,
    ErrorCode.INVALID_MAX_SAMPLES_PER_INSTANCE: client.InvalidLimit,
    ErrorCode.SERVER_IS_NOT_ALIGNER: client.NotResponsible,
    ErrorCode.NOT_RESPONSIBLE: client.NotResponsible,
    ErrorCode.READER_NOT_KNOWN: client.ReaderNotKnown,
    ErrorCode.NO_MASTER_SELECTED: client.NotResponsible,
    ErrorCode.GROUP_NOT_FOUND: client.GroupNotFound,
    ErrorCode.NO_CLIENTS: client.TooManyClients,
}


@pytest.mark.parametrize(
    "code", [code for code in ErrorCode if code is not ErrorCode.OK], ids=lambda c: c.name
)
def test_a_code_becomes_the_exception_that_says_what_to_do(code: ErrorCode) -> None:
    make = errors.refused if code.is_refusal else errors.timed_out
    plain = client.RequestRefused if code.is_refusal else client.DurabilityTimeout
    with pytest.raises(client.RequestRefused if code.is_refusal else TimeoutError) as raised:
        raise make(code, "the history")
    assert raised.type is EXCEPTIONS.get(code, plain)
    assert code.name in str(raised.value)
