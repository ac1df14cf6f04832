"""Bounds on the number and length of expressions in a file.

Comparing two expressions takes time in proportion to both lengths, and each is compared with all others. Real
configurations have a few short ones; a file beyond these bounds is refused before any comparison.
"""

from __future__ import annotations

from engine.config.problems import ByteRange, ConfigError, ProblemKind
from engine.config.tree import Document
from engine.config.validate import problem

MAX_EXPRESSION_CHARS = 256
"""Longest name or expression of a partition, topic, name-space or role; OpenSplice has room for 99."""

MAX_COMPARISON = 5_000_000
"""Largest sum, over all pairs of name-space expressions with wildcards, of the products of their lengths."""

_SERVICE = "DurabilityService/NameSpaces"
_COUNTS = {
    f"{_SERVICE}/NameSpace": 500,
    f"{_SERVICE}/NameSpace/Partition": 2000,
    f"{_SERVICE}/NameSpace/PartitionTopic": 2000,
    f"{_SERVICE}/Policy": 100,
    f"{_SERVICE}/Policy/Merge": 500,
    "Domain/DurablePolicies/Policy": 500,
    "Domain/Filters/Filter/PartitionTopic": 500,
}
_ELEMENTS = frozenset(
    {
        f"{_SERVICE}/NameSpace/Partition",
        f"{_SERVICE}/NameSpace/PartitionTopic",
        "Domain/Filters/Filter/PartitionTopic",
        "Domain/Role",
    }
)
_ATTRIBUTES = frozenset(
    {
        (f"{_SERVICE}/NameSpace", "name"),
        (f"{_SERVICE}/Policy", "nameSpace"),
        (f"{_SERVICE}/Policy/Merge", "scope"),
        ("Domain/DurablePolicies/Policy", "obtain"),
    }
)


def check_bounds(document: Document) -> None:
    """Refuse a document with too many or too long expressions.

    Raises:
        ConfigError: a bound is exceeded; it has the first place.
    """
    counts = dict.fromkeys(_COUNTS, 0)
    cost = _Cost()
    for node in document.root.walk():
        if node.path in counts:
            counts[node.path] += 1
            if counts[node.path] > _COUNTS[node.path]:
                most = _COUNTS[node.path]
                _refuse(
                    document, f"there are more than {most} elements <{node.name}>", node.tag_span, node.path
                )
        if node.path in _ELEMENTS and node.value:
            _check_length(document, node.text, node.value.span, node.path)
        for attribute in node.attributes:
            if (node.path, attribute.name) in _ATTRIBUTES:
                _check_length(document, attribute.text, attribute.value.span, f"{node.path}@{attribute.name}")
        if node.path.startswith(f"{_SERVICE}/NameSpace/") and not cost.is_bearable_with(node.text):
            _refuse(document, "there are too many expressions with wildcards", node.tag_span, node.path)


class _Cost:
    """The cost of comparing each expression with all before it."""

    def __init__(self) -> None:
        self.total = 0
        self.chars = 0

    def is_bearable_with(self, text: str) -> bool:
        if "*" in text or "?" in text:
            self.total += len(text) * self.chars
            self.chars += len(text)
        return self.total <= MAX_COMPARISON


def _check_length(document: Document, text: str, span: ByteRange, path: str) -> None:
    if len(text) > MAX_EXPRESSION_CHARS:
        message = (
            f"a name or expression of {len(text)} characters; at most {MAX_EXPRESSION_CHARS} are allowed"
        )
        _refuse(document, message, span, path)


def _refuse(document: Document, message: str, span: ByteRange, path: str) -> None:
    raise ConfigError([problem(document, ProblemKind.TOO_LARGE, message, span, path)])
