"""Modules that a notebook's kernel has, for an environment without them.

Many notebooks import `IPython.display` or `ipywidgets`, whose output a run does not show. The
environment that runs the notebook need not be that of its kernel.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

_PACKAGES = ("IPython", "ipywidgets")


class Nothing:
    """Accepts any call and has any attribute: a widget, an object to display, or a function that
    displays one.
    """

    # An attribute that nobody set is like None: `if bar.colour`.
    _is_set = True

    def __init__(self, *arguments: object, **attributes: object) -> None:
        self.__dict__.update(attributes)

    def __bool__(self) -> bool:
        return self._is_set

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.__dict__[name] = Nothing(_is_set=False)
        return value

    def __call__(self, *arguments: Any, **options: object) -> Any:
        # `@interact(rate=(0, 1))` before a function.
        is_decorator = len(arguments) == 1 and isinstance(arguments[0], types.FunctionType)
        return arguments[0] if is_decorator else Nothing()

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class MissingModules(MetaPathFinder, Loader):
    """Finds the modules of these packages that are not installed."""

    def install(self) -> None:
        """Adds it after the finders of installed modules."""
        sys.meta_path.append(self)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        package = sys.modules.get(name.partition(".")[0])
        is_installed = package is not None and getattr(package, "__loader__", None) is not self
        if name.partition(".")[0] not in _PACKAGES or is_installed:
            return None
        return ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__.update(
            __version__="9.0.0", version_info=(9, 0, 0), __getattr__=self._attribute
        )
        if module.__name__ == "IPython":
            # There is no shell outside of a kernel.
            module.__dict__["get_ipython"] = lambda: None

    def _attribute(self, name: str) -> Nothing | type[Nothing]:
        if name.startswith("__"):
            raise AttributeError(name)
        # A class may be the base of another. Anything else is a function or a module.
        return Nothing if name[0].isupper() else Nothing()
