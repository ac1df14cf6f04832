"""Wait until a writer is kept, with `cyclonedds` alone: copy these lines into an application.

A node (and a persistence service) has a reader where it keeps data, and nowhere else. The USER_DATA of that
reader says which node it is: `ospltool-node/1:` and 32 hexadecimal digits. So a writer can tell it from the
reader of a subscriber, and one node from another. Once it is matched, the node captures what is written.
"""

from __future__ import annotations

import re
import time
from typing import Any

from cyclonedds.core import Policy

KEEPER = re.compile(rb"ospltool-(?:node|persistence)/\d+:([0-9a-f]{32})")


def keepers(writer: Any) -> set[bytes]:
    """Return the ids of the nodes and persistence services that capture what this writer writes."""
    found: set[bytes] = set()
    try:
        handles = writer.get_matched_subscriptions()
    except IndexError:  # of cyclonedds 11.0.1, if one more reader matches during the call
        return found
    for handle in handles:
        reader = writer.get_matched_subscription_data(handle)  # None if it has just gone
        tag = reader and reader.qos[Policy.Userdata]
        if tag and (keeper := KEEPER.fullmatch(tag.data)):
            found.add(keeper[1])
    return found


def wait_until_kept(writer: Any, nodes: int = 1, timeout_s: float = 10.0) -> bool:
    """Wait until this number of different nodes captures what is written; False if the time is over."""
    end_s = time.monotonic() + timeout_s
    while not (is_kept := len(keepers(writer)) >= nodes) and time.monotonic() < end_s:
        time.sleep(0.01)
    return is_kept
