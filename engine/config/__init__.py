"""Typed settings from OpenSplice XML, with the place of every value.

`load` returns a node's configuration or raises an error with all problems; `read_document` and `interpret`
are its two halves, for tools that need the file itself.
"""

from __future__ import annotations

from engine.config.fleet import Fleet, FleetNode, FleetSpace, load_fleet
from engine.config.loader import Interpreted, interpret, load
from engine.config.problems import ConfigError, Kind, Position, Problem, Span
from engine.config.reader import parse, read_document
from engine.config.settings import Configuration, Origin, Setting
from engine.config.tree import Attribute, Comment, Document, Node, Source, Value

__all__ = [
    "Attribute",
    "Comment",
    "ConfigError",
    "Configuration",
    "Document",
    "Fleet",
    "FleetNode",
    "FleetSpace",
    "Interpreted",
    "Kind",
    "Node",
    "Origin",
    "Position",
    "Problem",
    "Setting",
    "Source",
    "Span",
    "Value",
    "interpret",
    "load",
    "load_fleet",
    "parse",
    "read_document",
]
