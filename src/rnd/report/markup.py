"""HTML that cannot be broken by a name: every value that is put into a template is escaped."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from typing import Any


class Html(str):
    """Text that is HTML already. Only `markup` and constants of ours make it."""


def markup(template: str, *values: Any, **named: Any) -> Html:
    """`template.format(...)`, where numbers and `Html` stay as they are, lists are joined, and all else is escaped."""
    return Html(template.format(*map(_safe, values), **{name: _safe(value) for name, value in named.items()}))


def _safe(value: Any) -> Any:
    if isinstance(value, Html | int | float):
        return value
    if isinstance(value, str):
        return Html(html.escape(value))
    if isinstance(value, Iterable):
        return Html("".join(map(_safe, value)))
    return Html(html.escape(str(value)))


def data_url(data: bytes, kind: str) -> Html:
    """A file within the page."""
    return Html(f"data:{kind};base64,{base64.b64encode(data).decode()}")


def content_policy(script: str, style: str) -> Html:
    """The browser loads nothing from elsewhere, and runs no script and no style but these two."""
    rules = {"img-src": "data:", "media-src": "data:", "script-src": _hash(script), "style-src": _hash(style)}
    rules |= {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}
    return Html("; ".join(f"{name} {value}" for name, value in rules.items()))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
