"""Running the user's program: a script, a module, or a provider file."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import io
import itertools
import os
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any, Protocol

from ..failure.exception import EntryError
from ..protocol.spec import RunSpec
from . import notebook
from .interpreter import Interpreter

# The prefixes of Skyline, and of its successor DeepView.
_PREFIXES = ("skyline", "deepview")


class Provided(Protocol):
    """Receives the events of a provider's run. The recorder implements it."""

    def provided(
        self, batch_size: int, inputs: object, iterations: tuple[Callable[..., Any], ...]
    ) -> None:
        """The inputs for this batch size were created. `iterations` are the function that runs an
        iteration with them, and the function that created it.
        """

    def iteration_ended(self) -> None:
        """An iteration has ended."""


def run_entry(spec: RunSpec, interpreter: Interpreter, recorder: Provided) -> None:
    """Runs the program to its end. Its exceptions propagate unchanged, including SystemExit."""
    if spec.entry.kind == "module":
        _run_module(spec, interpreter)
    elif spec.entry.kind == "provider":
        _run_provider(spec, interpreter, recorder)
    else:
        _run_script(spec, interpreter)


def provider_loop(spec: RunSpec, module: ModuleType, recorder: Provided) -> None:
    """Runs a provider's iterations for ever. The recorder ends the process when it has enough."""
    make_model = _provider(module, "model_provider")
    make_inputs = _provider(module, "input_provider")
    make_iteration = _provider(module, "iteration_provider")
    batch_size = _batch_size(spec, make_inputs)
    model = make_model()
    inputs = make_inputs(batch_size=batch_size)
    if not isinstance(inputs, (tuple, list)):
        raise EntryError(
            f"{make_inputs.__name__} must return a tuple with the arguments of one iteration, "
            f"not {type(inputs).__name__}",
            *_definition(make_inputs),
        )
    iteration = make_iteration(model)
    # An iteration may be a library's function; then the provider is the one in the user's file.
    recorder.provided(batch_size, inputs, (iteration, make_iteration))
    for _ in itertools.count():
        iteration(*inputs)
        recorder.iteration_ended()


def _run_script(spec: RunSpec, interpreter: Interpreter) -> None:
    path = spec.entry.target
    interpreter.become_program(spec, os.path.dirname(os.path.realpath(path)), path)
    if path.endswith(notebook.SUFFIX):
        notebook.Notebook(path, _new_main().__dict__).run()
        return
    code = _compiled(path)
    main = _new_main()
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__["__cached__"] = None
    if "get_ipython" in code.co_names:
        # A script that was exported from a notebook.
        main.__dict__["get_ipython"] = lambda: notebook.Shell(main.__dict__)
    exec(code, main.__dict__)


def _run_module(spec: RunSpec, interpreter: Interpreter) -> None:
    name, _, function = spec.entry.target.partition(":")
    if function:
        _run_function(spec, interpreter, name, function)
        return
    interpreter.become_program(spec, spec.cwd, "-m")
    found = _find_module(name)
    if found is not None and found.submodule_search_locations is not None:
        # `python -m package` runs its __main__ module.
        name += ".__main__"
        found = _find_module(name)
    get_code = getattr(found.loader if found is not None else None, "get_code", None)
    code = get_code(name) if get_code is not None else None
    if found is None or not isinstance(code, CodeType):
        raise EntryError(f"module {name} was not found from {os.path.basename(spec.cwd)}/")
    main = _new_main()
    main.__spec__ = found
    main.__file__ = found.origin
    main.__loader__ = found.loader
    main.__package__ = found.parent
    main.__dict__["__cached__"] = found.cached
    sys.argv[0] = found.origin or name
    exec(code, main.__dict__)


def _run_function(spec: RunSpec, interpreter: Interpreter, module: str, function: str) -> None:
    """Calls a function, like a console script of a package."""
    interpreter.become_program(spec, spec.cwd, module)
    _new_main()
    target: Any = importlib.import_module(module)
    for part in function.split("."):
        target = getattr(target, part, None)
    if not callable(target):
        raise EntryError(f"{module} has no function {function}")
    sys.exit(target())


def _run_provider(spec: RunSpec, interpreter: Interpreter, recorder: Provided) -> None:
    path = spec.entry.target
    folder = os.path.dirname(os.path.realpath(path))
    interpreter.become_program(spec, folder, path)
    if os.path.realpath(spec.root) != folder:
        sys.path.append(spec.root)  # Skyline's providers may import from the project's root.
    # Not as __main__: code under that guard is only for running the file directly.
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:
        name = "provider_" + name
    code = _compiled(path)
    module = ModuleType(name)
    module.__file__ = path
    module.__spec__ = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module
    exec(code, module.__dict__)
    provider_loop(spec, module, recorder)


def _compiled(path: str) -> CodeType:
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        name = os.path.basename(path)
        raise EntryError(f"{name} cannot be read: {error.strerror or error}") from None
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except ValueError as error:
        # Before Python 3.12, a NUL byte in the source raises a ValueError without a location.
        raise SyntaxError(str(error), (path, 1, None, None)) from None


def _new_main() -> ModuleType:
    """Creates an empty `__main__`. Pickling and spawned workers look up names there."""
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def _find_module(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # The module itself or a parent package is missing, rather than another module that they
        # import.
        if error.name is not None and (name + ".").startswith(error.name + "."):
            return None
        raise


def _provider(module: ModuleType, what: str) -> Callable[..., Any]:
    for prefix in _PREFIXES:
        function = getattr(module, f"{prefix}_{what}", None)
        if callable(function):
            return function  # type: ignore[no-any-return]
    names = " or ".join(f"{prefix}_{what}" for prefix in _PREFIXES)
    raise EntryError(f"the file defines no function {names}", module.__file__, 1)


def _batch_size(spec: RunSpec, make_inputs: Callable[..., Any]) -> int:
    name = make_inputs.__name__
    parameter = inspect.signature(make_inputs).parameters.get("batch_size")
    if parameter is None:
        raise EntryError(f"{name} must take the argument batch_size", *_definition(make_inputs))
    if spec.batch_size is not None:
        return spec.batch_size
    if isinstance(parameter.default, int):
        return parameter.default
    raise EntryError(
        f"the default of batch_size in {name} is not a number: write batch_size=32, or set "
        "batch_size in the "
        "configuration",
        *_definition(make_inputs),
    )


def _definition(function: Callable[..., Any]) -> tuple[str | None, int]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else (None, 1)
