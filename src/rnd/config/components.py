"""Components by name: bonuses, policy networks and metric writers, each a class with its own options.

A name is one of a registry, or `module:Class` for a class of the user's own. A class declares its flags by a
dataclass in its attribute `Options`, a subclass of the options that all components of its kind have.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from rnd.config.config import BonusOptions, Config, Options, PolicyOptions, WriterOptions, open_options
from rnd.config.ranges import check_types
from rnd.foundation.errors import UserError, nearest

C = TypeVar("C")


class Registry(Generic[C]):
    """The components of a kind by name. Built-in ones are stored as `module:Class`: nothing is imported early."""

    def __init__(self, kind: str, options: type[Options], entries: dict[str, str]):
        self.kind, self.base = kind, options
        self.entries: dict[str, str | type[C]] = dict(entries)
        self._builtin = frozenset(entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def register(self, name: str, component: type[C]) -> None:
        """Make a class known under a name, for configs and the command line of this process."""
        self.entries[name] = component

    def load(self, name: str, base: type = object) -> type[C]:
        """The class behind a name, which must be a subclass of `base`. Imports its module. Refuses a name that is
        neither registered nor of the form `module:Class`."""
        if name not in self.entries and ":" not in name:
            raise UserError(f"unknown {self.kind} {name!r}; {nearest(name, self.entries)}, or your own module:Class")
        entry = self.entries.get(name, name)
        found: type[C] = import_object(entry, self.kind) if isinstance(entry, str) else entry
        if not isinstance(found, type) or not issubclass(found, base):
            what = "class" if base is object else f"subclass of {base.__module__}.{base.__name__}"
            raise UserError(f"{self.kind} {name} is no {what}; docs/architecture.md shows what one looks like")
        return found

    def imported(self, name: str) -> bool:
        """Whether `load` runs no code but ours and what this process has registered."""
        return name in self._builtin or not isinstance(self.entries.get(name, name), str)

    def options(self, name: str, given: Options) -> Options:
        """`given` as the options that the component declares; an option that it does not have is refused."""
        kind: type[Options] = getattr(self.load(name), "Options", self.base)
        if not issubclass(kind, self.base):
            raise UserError(f"{self.kind} {name}: its Options must be a subclass of rnd.config.{self.base.__name__}")
        values = {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}
        known = {f.name for f in dataclasses.fields(kind)}
        check_types(kind, values)
        for unknown in values.keys() - known:
            raise UserError(f"{self.kind} {name} has no option {unknown}; {nearest(unknown, known)}")
        return given if type(given) is kind else kind(**values)


def import_object(name: str, what: str) -> Any:
    """The object that `module:attribute` names."""
    found, attribute = import_module(name, what), name.partition(":")[2]
    if not hasattr(found, attribute):
        choices = nearest(attribute, dir(found))
        raise UserError(f"cannot load the {what} {name}: its module has no attribute {attribute!r}; {choices}")
    return getattr(found, attribute)


def import_module(name: str, what: str) -> Any:
    """The module that `module:name` names; those in the working directory are found, as by `python -m`."""
    module, _, inside = name.partition(":")
    if module.endswith(".py"):
        raise UserError(f"cannot load the {what} {name}: nearest: {module_of(module)}:{inside or 'NAME'}")
    if not inside or not all(name.isidentifier() for name in module.split(".")):
        raise UserError(f"cannot load the {what} {name}: it is not of the form module:name")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        ours = (error.name or "").partition(".")[0] == module.partition(".")[0]  # not what the module itself imports
        where = f"; it is neither in {Path.cwd()} nor installed" if ours else ""
        raise UserError(f"cannot load the {what} {name}: {error}{where}") from error
    except ImportError as error:
        raise UserError(f"cannot load the {what} {name}: {error}") from error
    except (Exception, SystemExit) as error:  # of the user's own code: the traceback says where
        wrong = UserError(f"cannot load the {what} {name}: its module raised {type(error).__name__}: {error}")
        wrong.add_note("".join(traceback.format_exception(error)).rstrip())
        raise wrong from error


def module_of(path: str) -> str:
    """The name under which a file of Python is imported from the working directory."""
    return ".".join(Path(path.removesuffix(".py")).parts)


BONUSES: Registry[Any] = Registry(
    "bonus",
    BonusOptions,
    {
        "rnd": "rnd.bonus.rnd:RND",
        "dynamics": "rnd.bonus.dynamics:Dynamics",
        "autoencoder": "rnd.bonus.autoencoder:Autoencoder",
        "count": "rnd.bonus.count:Count",
        "snd-v": "rnd.bonus.snd:SNDV",
        "snd-vic": "rnd.bonus.snd:SNDVIC",
        "drnd": "rnd.bonus.drnd:DRND",
        "noveld": "rnd.bonus.noveld:NovelD",
        "e3b": "rnd.bonus.e3b:E3B",
        "zero": "rnd.bonus.zero:Zero",
        "none": "rnd.bonus.none:NoBonus",
    },
)
POLICIES: Registry[Any] = Registry(
    "policy",
    PolicyOptions,
    {"cnn": "rnd.models.policy.cnn:CNN", "gru": "rnd.models.policy.gru:GRU", "mlp": "rnd.models.policy.mlp:MLP"},
)
WRITERS: Registry[Any] = Registry(
    "writer",
    WriterOptions,
    {"tensorboard": "rnd.metrics.tensorboard:TensorBoardWriter", "wandb": "rnd.metrics.wandb:WandbWriter"},
)


def writer_names(config: Config) -> list[str]:
    """The metric writers of a run, beside metrics.csv."""
    return [name for name in config.writers.split(",") if name not in ("", "none")]


def option_group(writer: str) -> str:
    """The name of a writer's options, as in `--writer-options.wandb.project`: that of its class in lower case."""
    return writer.rpartition(":")[2].lower().replace("-", "_")


def resolve(config: Config, import_all: bool = True) -> Config:
    """`config` with the options that its components declare, their defaults filled in.

    Imports the modules of the components. With `import_all=False` only our own and registered ones: the options of
    others stay as they are, and reading a stranger's config runs none of their code.
    """
    changes: dict[str, Any] = {}
    for field, registry, name in (
        ("bonus_options", BONUSES, config.bonus),
        ("policy_options", POLICIES, config.policy),
    ):
        if import_all or registry.imported(name):
            changes[field] = registry.options(name, getattr(config, field))
    if import_all:
        changes["writer_options"] = _writer_options(config)
    return dataclasses.replace(config, **changes)


def _writer_options(config: Config) -> WriterOptions:
    """One group of options per writer that declares some."""
    groups = {}
    for name in writer_names(config):
        own = WRITERS.options(name, getattr(config.writer_options, option_group(name), WriterOptions()))
        if dataclasses.fields(own):
            groups[option_group(name)] = own
    options = open_options(WriterOptions, groups)
    assert isinstance(options, WriterOptions)
    return options
