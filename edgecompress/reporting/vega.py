"""Vega-Lite specs into static SVG that lives inside a page: its own ids, the page's colours, a title on every mark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from typing import Any

SVG = "http://www.w3.org/2000/svg"
LINK = "{http://www.w3.org/1999/xlink}href"
WIDTH = 340
Spec = dict[str, Any]
FONT = "Arial, 'Helvetica Neue', Helvetica, 'Liberation Sans', sans-serif"  # all as wide as what Vega measures with

INHERITED = {"font-family": FONT, "font-size": "11px"}  # of every text, said once
DEFAULTS = {("opacity", "1"), ("stroke-width", "1"), ("fill-opacity", "1")}
GEOMETRY = ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height")
_LONG = re.compile(r"-?\d+\.\d{2,}(?:e-?\d+)?")

_AXIS = {
    "labelColor": "var(--muted)",
    "titleColor": "var(--muted)",
    "gridColor": "var(--grid)",
    "domainColor": "var(--line)",
    "tickColor": "var(--line)",
    "titleFontWeight": "normal",
    "titleFontSize": 11,
    "labelFontSize": 11,
    "tickSize": 3,
    "titlePadding": 6,
    "labelOverlap": True,
}
CONFIG = {
    "font": FONT,
    "axis": _AXIS,
    "view": {"stroke": None},
    "background": "transparent",
    "padding": {"left": 4, "right": 8, "top": 4, "bottom": 2},
}


def unit(height: int, layers: Sequence[Spec], **rest: object) -> Spec:
    """One picture of the page's width made of layers, each with its own data."""
    fit = {"type": "fit", "contains": "padding"}
    return {"width": WIDTH, "height": height, "autosize": fit, "config": CONFIG, "layer": list(layers), **rest}


def layer(values: Sequence[Mapping[str, object]], mark: Mapping[str, object], **encoding: object) -> Spec:
    """Marks that carry no words of their own."""
    return {"data": {"values": list(values)}, "mark": {"aria": False, **mark}, "encoding": encoding}


def described(
    values: Sequence[Mapping[str, object]], mark: Mapping[str, object], what: str, **encoding: object
) -> Spec:
    """Marks that stand for data: `what` names one of them; its field "says" is read aloud and shown on hover."""
    named = {"aria": True, "ariaRoleDescription": what, **mark}
    return layer(values, named, description={"field": "says", "type": "nominal"}, **encoding)


def svg(spec: Spec, name: str) -> str:
    """The picture as an <svg> element; `name` is unique in the page and becomes part of its ids."""
    import vl_convert

    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(spec))
    for element in root.iter():
        if picture := element.attrib.pop(LINK, ""):  # HTML knows no other prefix than xlink, and needs none
            element.set("href", picture)
        _own_ids(element, name)
        _titled(element)
    _without_hidden(root)
    for element in root.iter():
        _lean(element)
    root.attrib.pop("width"), root.attrib.pop("height")
    root.attrib |= {"class": "plot", **INHERITED}
    ElementTree.register_namespace("", SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _own_ids(element: ElementTree.Element, name: str) -> None:
    """Vega counts its clip paths from 1 in every picture: two in one page would clip each other."""
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif value.startswith("url(#"):
            element.set(key, f"url(#{name}-{value[5:]}")


def _titled(element: ElementTree.Element) -> None:
    if element.get("role") == "graphics-symbol" and element.get("aria-roledescription") not in ("axis", "legend"):
        title = ElementTree.Element(f"{{{SVG}}}title")
        title.text = element.get("aria-label", "")
        element.insert(0, title)
        element.set("role", "img")


def _lean(element: ElementTree.Element) -> None:
    """A third of the bytes: what is the default or inherited anyway, and digits that no screen shows."""
    for key, value in list(element.attrib.items()):
        if key in ("class", "pointer-events") or (key, value) in DEFAULTS or INHERITED.get(key) == value:
            del element.attrib[key]
        elif key in GEOMETRY:
            element.set(key, _LONG.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value))


def _without_hidden(root: ElementTree.Element) -> None:
    """Labels that overlapped and empty outlines are only bytes."""
    for parent in list(root.iter()):
        for child in list(parent):
            empty = child.get("aria-hidden") == "true" and child.get("d") == ""
            if child.get("opacity") == "0" or child.get("class") == "background" or empty:
                parent.remove(child)
