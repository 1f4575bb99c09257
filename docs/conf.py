"""The docs site: `make docs` writes docs/_build/html. The pages are Markdown and are also read on the forge."""

import ast
import dataclasses
import inspect
import itertools
import re
import sys
import textwrap
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import rnd  # noqa: E402
from rnd.commands.completion import tables  # noqa: E402

project, author = "rnd", "the rnd authors"
copyright = "the rnd authors, MIT licence"
release = rnd.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"rnd {release}"
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_mock_imports = ["stable_baselines3", "torchrl", "tensordict"]
exclude_patterns = ["_build"]


def flags_page() -> str:
    """Every command with its flags, from the dataclasses that they are read from."""
    lines = ["# Commands and flags", "", "After reading this page you know every flag. It is made from the code.", ""]
    for name, (options, description) in tables().items():
        table = rows(options, "--")
        lines += [f"## `rnd {name}`", "", description, ""]
        lines += ["| flag | default | meaning |", "| --- | --- | --- |", *table, ""] if table else []
    return "\n".join(lines)


def rows(options: object, prefix: str) -> list[str]:
    """A table row per flag of a dataclass, or of an instance; its defaults are then those of the instance."""
    cls = options if inspect.isclass(options) else type(options)
    texts, found = field_texts(cls), []
    for field in dataclasses.fields(cls):
        value = getattr(options, field.name, "")
        flag = prefix + field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            found += rows(value, flag + ".")
        else:
            found.append(f"| `{flag}` | `{value}` | {texts.get(field.name, '').replace('|', chr(92) + '|')} |")
    return found


def field_texts(cls: type) -> dict[str, str]:
    """The string below each field, which is the text of --help."""
    texts: dict[str, str] = {}
    for base in reversed([base for base in cls.__mro__ if dataclasses.is_dataclass(base)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[field.target.id] = " ".join(text.value.value.split())
    return texts


(Path(__file__).parent / "reference").mkdir(exist_ok=True)
(Path(__file__).parent / "reference" / "commands.md").write_text(flags_page())


def without_files(app: Sphinx, name: str, source: list[str]) -> None:
    """Links to files of the repository lead nowhere on the site: their text alone stays."""
    source[0] = re.sub(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]*\)", lambda m: m[1] if "`" in m[1] else f"`{m[1]}`", source[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", without_files)
