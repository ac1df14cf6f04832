"""The explanations of `ospltool explain`: rules, and settings with what OpenSplice does with them."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from engine.config.problems import quoted
from engine.config.schema import Item, Schema, Type, documented, engine_schema, schema
from engine.config.values import did_you_mean
from ospltool.check import cyclone
from ospltool.check.cyclone import CycloneItem, CycloneItems
from ospltool.check.registry import SECTIONS, Rule
from ospltool.check.rule_book import all_rules
from ospltool.output import envelope

if TYPE_CHECKING:
    from ospltool.diagnostics.documents import SettingData

# Comfortable to read; longer lines are left to the terminal.
WIDTH = 100
"""Widest line of an answer."""

_PATH = re.compile(r"^/{0,2}(?:OpenSplice/?)?(.*)$")


_CYCLONE = re.compile(r"^/{0,2}CycloneDDS(?:/Domain)?(?![^/@\[])(.*)$")
_CODE = re.compile(r"DUR\d{3}")


class UnknownSubject(Exception):
    """No rule or setting has this name; the message suggests similar ones."""


def find(subject: str) -> Rule | Item | CycloneItem:
    """Find the rule or setting with a code, a rule's name, or a path in any usual notation.

    A path of OpenSplice needs no root; one of Cyclone DDS begins with `CycloneDDS`.

    Raises:
        UnknownSubject: there is no such rule or setting.
    """
    wanted = subject.strip()
    rules = all_rules()
    by_name = {each.name: each for each in rules.values()}
    found = rules.get(wanted.upper()) or by_name.get(wanted.lower())
    if found:
        return found
    if cyclone := _CYCLONE.match(wanted):
        return _cyclone(wanted, _normal(cyclone[1]))
    path = _normal(wanted)
    known = schema()
    if path in engine_schema():
        return known.get(path) or engine_schema()[path]
    ends = [
        each for each in known.paths() if each.endswith((f"/{path}", f"@{path}")) and each.startswith("Dur")
    ]
    if len(ends) == 1:
        return known[ends[0]]
    if ends:
        raise UnknownSubject(
            f"{quoted(wanted)} is ambiguous: {', '.join(documented(each) for each in ends[:6])}"
        )
    raise UnknownSubject(f"there is no rule and no setting {quoted(wanted)}{_similar(wanted, path)}")


def _cyclone(wanted: str, path: str) -> CycloneItem:
    items = cyclone.table().items
    if path in items:
        return items[path]
    hint = did_you_mean(path, list(items))
    hint = re.sub(r"mean (\S+)\?", lambda found: f"mean {cyclone.subject(found[1])}?", hint)
    raise UnknownSubject(
        f"Cyclone DDS {cyclone.VERSIONS} has no setting {quoted(wanted)}{f'; {hint}' if hint else ''}"
    )


def _normal(subject: str) -> str:
    """Convert a path to the notation of the schema: `DurabilityService/NameSpaces/Policy@aligner`."""
    found = _PATH.match(subject)
    path = found[1] if found else subject
    return path.replace("/@", "@").replace("[@", "@").replace("]", "").strip("/")


def _similar(wanted: str, path: str) -> str:
    if _CODE.fullmatch(wanted.upper()):
        return "; `ospltool explain` lists them"  # a number is not misspelled: a near one is of another rule
    if "/" in path or "@" in path:
        hint = did_you_mean(path, list(schema().paths()))
        hint = re.sub(r"mean (\S+)\?", lambda m: f"mean {documented(m[1])}?", hint)
    else:
        names = (re.split("[/@]", each)[-1] for each in schema().paths() if each.startswith("Dur"))
        rules = (name for each in all_rules().values() for name in (each.code, each.name))
        hint = did_you_mean(wanted, [*dict.fromkeys((*rules, *names))])
    return f"; {hint}" if hint else ""


def as_text(found: Rule | Item | CycloneItem | None) -> str:
    """Render a rule, a setting, or without either a list of all rules, one line each."""
    if found is None:
        rules = all_rules().values()
        longest = max(len(each.name) for each in rules)
        lines = [
            f"{each.code}  {each.severity.label:<7}  {each.name:<{longest}}  {each.summary}" for each in rules
        ]
    elif isinstance(found, Rule):
        lines = _of_rule(found)
    elif isinstance(found, CycloneItem):
        lines = [cyclone.subject(found.path), "", f"A setting of Cyclone DDS ({cyclone.VERSIONS}).", ""]
        lines += [f"  {name + ':':<12} {value}" for name, value in _cyclone_facts(found)]
        lines += _contents(_children(cyclone.table(), found.path))
    else:
        lines = _of_setting(found)
    return "\n".join(lines) + "\n"


def _of_rule(each: Rule) -> list[str]:
    sections = each.sections()
    lines = [f"{each.code} {each.name} ({each.severity.label}, since {each.since})", "", each.summary]
    if each.matters_for:
        lines += ["", each.matters_for]
    for name in SECTIONS:
        title = "What OpenSplice does" if name == "OpenSplice" else name
        body = "\n".join(f"  {line}".rstrip() for line in sections.get(name, "").splitlines())
        lines += ["", f"{title}:", body]
    return lines


def _of_setting(item: Item) -> list[str]:
    lines = [documented(item.path), ""]
    if item.meaning:
        lines += [textwrap.fill(item.meaning, WIDTH), ""]
    lines += [f"  {name + ':':<12} {value}" for name, value in _facts(item)]
    if item.opensplice:
        body = textwrap.fill(item.opensplice, WIDTH, initial_indent="  ", subsequent_indent="  ")
        lines += ["", "What OpenSplice does:", body]
    lines += _contents(_children(schema(), item.path))
    if rules := _rules_about(item):
        lines += ["", "Rules:", *(f"  {each.code} {each.name}" for each in rules)]
    return lines


def _children(known: Schema | CycloneItems, path: str) -> list[str]:
    return [*(f"@{each}" for each in known.attributes(path)), *known.children(path)]


def _contents(names: list[str]) -> list[str]:
    return ["", f"Contains: {', '.join(names)}"] if names else []


def _rules_about(item: Item) -> list[Rule]:
    shown = documented(item.path)
    return [each for each in all_rules().values() if shown in each.sections().get("Reference", "")]


def _cyclone_facts(item: CycloneItem) -> list[tuple[str, str]]:
    """Return what is known of a setting of Cyclone DDS, as names and values."""
    found = [("type", "string"), ("form", cyclone.FORMS[item.type][1])] if item.type in cyclone.FORMS else []
    found = found or [("type", item.type)]
    if item.words:
        only = (f"{word} ({one} only)" if one else word for word, one in item.words.items())
        found.append(("one of" if item.low is None else "or", ", ".join(only)))
    if item.low is not None or item.high is not None:
        low, high = (
            "any" if bound is None else f"{bound:g}" if bound % 1 else f"{bound:.0f}"
            for bound in (item.low, item.high)
        )
        unit = {"duration": " s", "memory": " B"}.get(item.type, "")
        found.append(("range", f"{low} to {high}{unit}"))
    if item.versions:
        known = "builds with TLS, TCP or security" if item.versions == "build" else f"version {item.versions}"
        found.append(("only in", known))
    if item.instead:
        instead = "" if item.instead == "-" else f"; use {cyclone.subject(item.instead)}"
        found.append(("note", f"deprecated{instead}"))
    return found


def _facts(item: Item) -> list[tuple[str, str]]:
    """Return the schema's facts, as names and values."""
    found = [("type", item.type.value)]
    if item.is_attribute:
        found.append(("occurs", "required" if item.minimum else "optional"))
    else:
        most = "any number of times" if item.maximum is None else f"at most {item.maximum}"
        found.append(("occurs", f"at least {item.minimum}, {most}"))
    if item.type is not Type.ELEMENT:
        found.append(("default", item.default or '""'))
    labels = engine_schema()[item.path].labels
    if labels:
        extra = [each for each in labels if each not in item.labels]
        note = f" (and {', '.join(extra)}, which OpenSplice refuses)" if extra else ""
        found.append(("one of", ", ".join(item.labels) + note))
    if item.low or item.high:
        found.append(("range", f"{item.low or 'any'} to {item.high or 'any'}"))
    if item.max_length:
        found.append(("length", f"at most {item.max_length} characters"))
    if item.unit:
        found.append(("unit", item.unit))
    if item.hidden:
        found.append(("note", "deprecated: the schema hides it"))
    if item.commercial:
        found.append(("note", "of the commercial edition"))
    return found


def as_json(found: Rule | Item | CycloneItem | None) -> str:
    """Render a rule, a setting, or the list of all rules as JSON."""
    if found is None:
        return envelope.document("rules", [_rule_data(each) for each in all_rules().values()])
    if isinstance(found, Rule):
        return envelope.document("rule", _rule_data(found))
    if isinstance(found, CycloneItem):
        known = {"path": cyclone.subject(found.path), "facts": dict(_cyclone_facts(found))}
        contains = _children(cyclone.table(), found.path)
        return envelope.document("cyclone-setting", {**known, "contains": contains})
    data: SettingData = {
        "path": documented(found.path),
        "meaning": found.meaning,
        "opensplice": found.opensplice,
        "facts": dict(_facts(found)),
        "contains": [each.removeprefix("@") for each in _children(schema(), found.path)],
        "rules": [each.code for each in _rules_about(found)],
    }
    return envelope.document("setting", data)


def _rule_data(each: Rule) -> dict[str, object]:
    sections = each.sections()
    return {
        "code": each.code,
        "name": each.name,
        "severity": each.severity.label,
        "since": each.since,
        "scope": each.takes.value,
        "targets": sorted(each.targets),
        "refused_by": sorted(each.blocks),
        "summary": each.summary,
        **{name.lower().replace(" ", "_"): sections.get(name, "") for name in SECTIONS},
    }
