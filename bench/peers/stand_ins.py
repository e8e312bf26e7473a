"""Stand-ins for heavy modules that the peers import and no measured call runs."""

import importlib.abc
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any


class Anything:
    """Can be called, decorated with, subscripted, iterated and inherited from."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        is_decorator = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if is_decorator else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, _: Any) -> Any:
        return Anything()

    def __or__(self, _: Any) -> Any:
        return Anything()

    __ror__ = __or__

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return (object,)

    def __iter__(self) -> Any:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __lt__(self, _: Any) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


class AnyClass(type):
    """Classes of stand-in modules have any attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class StandIn(types.ModuleType):
    """A module in which everything can be found."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        inner = sys.modules.get(f"{self.__name__}.{name}")
        if inner is not None:
            return inner
        if name == "constexpr":  # used as an annotation that is evaluated
            return int
        value: Any = Anything()
        if name[:1].isupper():
            value = AnyClass(name, (), {"__init__": lambda self, *_, **__: None})
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for each of `names` and whatever is inside them."""

    def __init__(self, names: list[str]) -> None:
        self._names = tuple(names)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if any(name == known or name.startswith(f"{known}.") for known in self._names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = StandIn(spec.name)
        module.__path__ = []
        module.__version__ = "0"  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def where_missing(names: list[str]) -> None:
    """Stand-ins for modules that are not installed."""
    sys.meta_path.append(Finder(names))


def instead_of(names: list[str]) -> None:
    """Stand-ins even for modules that are there."""
    sys.meta_path.insert(0, Finder(names))


def bare_package(name: str, root: Path) -> None:
    """A package whose own `__init__` does not run, so that only what is asked for is imported."""
    package = types.ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")))]
    sys.modules[name] = package
