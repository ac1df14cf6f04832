"""Name expressions against brute force over small alphabets (deployment guide, 5.2.1 and 5.2.2)."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import expressions
from engine.core.name_spaces import Element, Group, NameSpace, compare, kept_partitions, overlap

LONGEST = 5
NAMES = tuple("".join(chars) for n in range(LONGEST + 1) for chars in itertools.product("a.", repeat=n))
EXPRESSIONS = st.text("aa.*?", max_size=5)
# A shortest common name has no more characters than both expressions have positions that need one.
WITNESS_NAMES = tuple("".join(c) for n in range(LONGEST * 2 + 1) for c in itertools.product("ab", repeat=n))


def accepts(expression: str, name: str) -> bool:
    """The meaning of an expression, as slow and as obvious as can be."""
    if not expression:
        return not name
    if expression[0] == "*":
        return any(accepts(expression[1:], name[start:]) for start in range(len(name) + 1))
    return bool(name) and expression[0] in ("?", name[0]) and accepts(expression[1:], name[1:])


@given(EXPRESSIONS)
def test_an_expression_accepts_the_names_that_its_meaning_says(expression: str) -> None:
    assert [n for n in NAMES if expressions.matches(expression, n)] == [
        n for n in NAMES if accepts(expression, n)
    ]


@given(st.text(), st.text())
def test_any_text_is_an_expression_that_accepts_what_its_meaning_says(expression: str, name: str) -> None:
    assert expressions.matches(expression, name) == accepts(expression, name)
    assert expressions.matches(expression, expression.replace("*", name).replace("?", "\n"))


@given(EXPRESSIONS)
def test_a_literal_accepts_itself_only(expression: str) -> None:
    accepted = [name for name in NAMES if accepts(expression, name)]
    assert (accepted == [expression]) == expressions.is_literal(expression)
    assert (len(accepted) == 1) == expressions.is_literal(expression)


@given(st.text("ab*?", max_size=LONGEST), st.text("ab*?", max_size=LONGEST))
def test_intersection_is_a_shortest_common_name_or_there_is_none(left: str, right: str) -> None:
    witness = expressions.intersection(left, right)
    common = [n for n in WITNESS_NAMES if accepts(left, n) and accepts(right, n)]
    if witness is None:
        assert common == []
    else:
        assert accepts(left, witness)
        assert accepts(right, witness)
        assert len(witness) == len(common[0])
    assert (witness is None) == (expressions.intersection(right, left) is None)


@pytest.mark.parametrize("name", ["a" * 40, "a" * 40 + "b", "ab" * 20])
def test_many_wildcards_do_not_take_for_ever(name: str) -> None:
    # Such an expression may come from a fellow; a matcher that tries every split never ends.
    expression = "*a" * 20 + "*c"
    started = time.process_time()
    assert not expressions.matches(expression, name)
    assert expressions.matches(expression[:-2], name[:-1] + "a")
    assert time.process_time() - started < 1.0


ELEMENTS = st.builds(Element, st.text("ab*", max_size=3), st.text("ab*", min_size=1, max_size=3))
SHORT = tuple("".join(chars) for n in range(4) for chars in itertools.product("abx", repeat=n))


def name_spaces(names: str = "NM") -> st.SearchStrategy[NameSpace]:
    """Name-spaces of up to three elements."""
    elements = st.lists(ELEMENTS, min_size=1, max_size=3, unique=True)
    return st.builds(lambda name, items: NameSpace(name, tuple(items)), st.sampled_from(names), elements)


def _accepted(name_space: NameSpace) -> set[tuple[str, str]]:
    return {
        (partition, topic)
        for element in name_space.elements
        for partition in SHORT
        if accepts(element.partition, partition)
        for topic in SHORT
        if accepts(element.topic, topic)
    }


@given(name_spaces(), name_spaces())
def test_overlap_names_a_group_that_lies_in_both_or_there_is_none(left: NameSpace, right: NameSpace) -> None:
    group = overlap(left, right)
    if group is None:
        assert not _accepted(left) & _accepted(right)
    else:
        assert left.contains(group)
        assert right.contains(group)
    assert (group is None) == (overlap(right, left) is None)


@given(name_spaces(), name_spaces())
def test_definitions_conflict_when_one_name_means_two_things_or_two_names_share_a_group(
    left: NameSpace, right: NameSpace
) -> None:
    conflict = compare(left, right)
    if left.name == right.name:
        assert (conflict is None) == (set(left.elements) == set(right.elements))
    else:
        assert (conflict is None) == (overlap(left, right) is None)
    assert (conflict is None) == (compare(right, left) is None)
    if conflict:
        assert conflict.witness == overlap(left, right)
        told = conflict.described("n1", "n2")
        assert told.index("n1 ") < told.index(f"{left}, n2") < told.rindex(str(right))


@given(name_spaces(), name_spaces(), st.sampled_from(SHORT))
def test_a_reader_s_partitions_contain_its_group_and_nothing_that_is_not_kept(
    kept: NameSpace, single: NameSpace, topic: str
) -> None:
    for partition in SHORT:
        group = Group(partition, topic)
        if not kept.contains(group):
            continue
        found = kept_partitions(group, kept.elements, single.elements)
        assert any(accepts(each, partition) for each in found)
        met = {Group(other, topic) for other in SHORT if any(accepts(each, other) for each in found)} - {
            group
        }
        assert all(kept.contains(other) and not single.contains(other) for other in met)


@given(name_spaces("N"), st.permutations(range(3)))
def test_the_order_of_elements_means_nothing(name_space: NameSpace, order: list[int]) -> None:
    elements = name_space.elements
    shuffled = NameSpace("N", tuple(elements[i] for i in order if i < len(elements)))
    assert compare(name_space, shuffled) is None


@given(ELEMENTS)
def test_an_element_reads_what_it_writes(element: Element) -> None:
    assert Element.parse(str(element)) == element


@given(st.text("ab.", max_size=4), st.text("ab", min_size=1, max_size=3))
def test_the_last_dot_parts_partition_and_topic(partition: str, topic: str) -> None:
    element = Element.parse(f"{partition}.{topic}")
    assert element == (partition, topic)
    assert element.contains(Group(partition, topic))
