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
exclude_patterns = ["_build", "log.md"]
smartquotes = False
default_role = "code"


def flags_page() -> str:
    """Every command with its flags, from the dataclasses that they are read from."""
    lines = ["# Commands and flags", "", "Every flag, made from the code.", ""]
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
    """Links to files that are not pages of the site lead nowhere there: their text alone stays."""
    docs = Path(__file__).parent
    folder = (docs / name).parent

    def link(found: re.Match[str]) -> str:
        text, target = found[1], (folder / found[2]).resolve()
        if target.is_relative_to(docs) and target.exists() and target.name not in exclude_patterns:
            return found[0]
        return text if "`" in text else f"`{text}`"

    source[0] = re.sub(r"(?<!!)\[([^\]]+)\]\(([^):#\s]+)(?:#[^)]*)?\)", link, source[0])


def parameters(app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """List items of a docstring that begin with parameters (- `lr`: ...) describe them in Sphinx's own words."""
    items = re.split(r"^(?=- )", "\n".join(lines), flags=re.MULTILINE)
    for number, text in enumerate(items):
        if found := re.match(r"- ((?:`\w+`(?:, )?)+): ((?:.*\n(?:  .*\n?)*)|.*$)", text):
            described = " ".join(found[2].split())
            fields = [f":param {parameter}: {described}" for parameter in re.findall(r"`(\w+)`", found[1])]
            items[number] = "\n".join(fields) + "\n" + text[found.end() :]
    lines[:] = "".join(items).split("\n")


def setup(app: Sphinx) -> None:
    app.connect("source-read", without_files)
    app.connect("autodoc-process-docstring", parameters)
