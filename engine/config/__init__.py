"""Typed settings from OpenSplice XML, with the place of every value.

`load` returns a node's configuration or raises an error with all problems; `read_document` and `interpret`
are its two halves, for tools that need the file itself.
"""

from __future__ import annotations

from engine.config.loader import Interpreted, interpret, load
from engine.config.problems import ByteRange, ConfigError, Position, Problem, ProblemKind
from engine.config.reader import parse, read_document
from engine.config.settings import Configuration, Setting, SettingOrigin
from engine.config.tree import Attribute, Comment, Document, SourceFile, Value, XmlElement

__all__ = [
    "Attribute",
    "ByteRange",
    "Comment",
    "ConfigError",
    "Configuration",
    "Document",
    "Interpreted",
    "Position",
    "Problem",
    "ProblemKind",
    "Setting",
    "SettingOrigin",
    "SourceFile",
    "Value",
    "XmlElement",
    "interpret",
    "load",
    "parse",
    "read_document",
]
