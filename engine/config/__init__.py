"""OpenSplice XML to typed settings, with the place of every value.

`load` gives a node its configuration or refuses with everything that is wrong; `read_document` and
`interpret` are the two halves of it for tools that look at the file itself.
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
