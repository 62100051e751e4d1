"""The recorder's hooks into torch.

Every hook passes its call through unchanged, and none is an attribute of a user's object, so
copies, pickles and state dictionaries are unaffected. Outside of profiled iterations, each costs
well under a microsecond. Modules are hooked only while requested, because a model may call
thousands of them in an iteration.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
import torch.utils.data
from torch import nn
from torch.optim import optimizer as optim
from torch.utils.data import dataloader

from .replacements import on_restore, replace

DATA, FORWARD, BACKWARD, OPTIMIZER = range(4)

# Returns the callback with which Dynamo compiles the functions that this thread calls, or None if
# it does not compile. Older versions of torch do not expose it.
compiles_with: Callable[[], object] | None = getattr(
    getattr(torch._C._dynamo, "eval_frame", None), "get_eval_frame_callback", None
)
# Returns the open transforms of `torch.func`, outermost first, or None if there are none.
_transforms: Any = getattr(getattr(torch._C, "_functorch", None), "get_interpreter_stack", None)


class Listener(Protocol):
    """Receives the hooks' calls. None of these methods may raise."""

    def phase_entered(self, phase: int) -> bool:
        """A phase begins on this thread. Returns whether it is the outermost of its kind."""

    def phase_left(self, phase: int) -> None:
        """The phase ended, normally or not."""

    def loaded(self, loader: object, batch: object) -> None:
        """A data loader returned a batch."""

    def ran_out(self, loader: object) -> None:
        """A data loader has no more batches. Called within the phase."""

    def went_backward(self, extends_graph: bool) -> None:
        """An outermost backward pass has completed. `extends_graph` is whether it only returned
        gradients that can be differentiated again.
        """

    def optimizer_created(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer's constructor was entered."""

    def stepped(self, optimizer: object) -> None:
        """A step of an optimizer or gradient scaler has completed."""

    def module_entered(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A module is called."""

    def module_left(self, module: nn.Module) -> None:
        """The module returned or raised."""


def install(listener: Listener, optimizers: Iterable[type] = ()) -> None:
    """Installs all hooks except those of `ModuleCalls`.

    Args:
        optimizers: The classes of existing optimizers.
    """
    _wrap_loader(listener)
    for owner, name in (
        (torch.Tensor, "backward"),
        (torch.autograd, "backward"),
        (torch.autograd, "grad"),
    ):
        _wrap_backward(listener, owner, name)
    _wrap_optimizers(listener, optimizers)


def _wrap_loader(listener: Listener) -> None:
    iterator: Any = dataloader._BaseDataLoaderIter
    original = iterator.__next__

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        listener.phase_entered(DATA)
        try:
            batch = original(self)
        except StopIteration:
            listener.ran_out(self)
            raise
        finally:
            listener.phase_left(DATA)
        listener.loaded(self, batch)
        return batch

    replace(iterator, "__next__", __next__)


def _wrap_backward(listener: Listener, owner: Any, name: str) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        outermost = listener.phase_entered(BACKWARD)
        try:
            result = original(*args, **kwargs)
        finally:
            listener.phase_left(BACKWARD)
        if outermost:
            listener.went_backward(name == "grad" and _extends_graph(args, kwargs))
        return result

    replace(owner, name, backward)


def _extends_graph(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the gradients of `torch.autograd.grad` are to be differentiated again."""
    if not (args[4] if len(args) > 4 else kwargs.get("create_graph")):
        return False
    # `torch.func.grad` always asks for it. The outermost one returns the gradients of the training.
    transforms = () if _transforms is None else _transforms() or ()
    return sum(1 for transform in transforms if transform.key().name == "Grad") != 1


def _wrap_optimizers(listener: Listener, existing: Iterable[type]) -> None:
    original_init: Any = torch.optim.Optimizer.__init__

    @functools.wraps(original_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        listener.optimizer_created(self)
        original_init(self, *args, **kwargs)

    replace(torch.optim.Optimizer, "__init__", __init__)

    # torch calls this for every new, copied and unpickled optimizer, to wrap the `step` of its
    # class. Our wrapper goes around torch's, so the phase lasts from call to return: torch's own
    # step hooks run within its wrapper, and their work belongs to the step too.
    original_patch: Any = torch.optim.Optimizer._patch_step_function
    wrapped: set[object] = set()
    steps = _Steps()

    @functools.wraps(original_patch)
    def _patch_step_function(self: Any) -> None:
        original_patch(self)
        wrap(type(self))

    def wrap(kind: Any) -> None:
        for name in ("step", "zero_grad"):
            method = getattr(kind, name)
            # A subclass may inherit a method that is already wrapped.
            if isinstance(method, types.FunctionType) and method not in wrapped:
                replace(kind, name, _optimizer_method(listener, method, name, steps))
                wrapped.add(getattr(kind, name))

    replace(torch.optim.Optimizer, "_patch_step_function", _patch_step_function)
    for kind in existing:
        wrap(kind)

    # A function that is compiled with a step in it skips our wrapper, but not torch's hooks. What
    # they call must not be compiled.
    def left(optimizer: Any) -> None:
        listener.phase_left(OPTIMIZER)
        listener.stepped(optimizer)

    enter: Any = torch._disable_dynamo(lambda: listener.phase_entered(OPTIMIZER))
    leave: Any = torch._disable_dynamo(left)

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if steps.open == 0:
            enter()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if steps.open == 0:
            leave(optimizer)

    on_restore(optim.register_optimizer_step_pre_hook(before).remove)
    on_restore(optim.register_optimizer_step_post_hook(after).remove)

    # A gradient scaler skips steps if gradients overflow; that counts as an iteration too.
    original_step: Any = torch.amp.GradScaler.step

    @functools.wraps(original_step)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        listener.phase_entered(OPTIMIZER)
        try:
            return original_step(self, optimizer, *args, **kwargs)
        finally:
            listener.phase_left(OPTIMIZER)
            listener.stepped(optimizer)

    replace(torch.amp.GradScaler, "step", step)


class _Steps(threading.local):
    """The number of steps in progress on this thread."""

    open = 0


def _optimizer_method(listener: Listener, original: Any, name: str, steps: _Steps) -> Any:
    is_step = name == "step"

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(self, *args, **kwargs)
        listener.phase_entered(OPTIMIZER)
        steps.open += is_step
        try:
            result = original(self, *args, **kwargs)
        finally:
            steps.open -= is_step
            listener.phase_left(OPTIMIZER)
        if is_step:
            listener.stepped(self)
        return result

    return method


class ModuleCalls:
    """Hooks `nn.Module.__call__` from `start` to `stop`. `gave` receives the results of modules of
    the types `of`, or of every module while `of_all` is set.
    """

    def __init__(
        self,
        listener: Listener,
        of: frozenset[type] = frozenset(),
        gave: Callable[[nn.Module, Any], None] | None = None,
    ) -> None:
        self._listener = listener
        self._of = of if gave is not None else frozenset()
        self._gave = gave
        self.of_all = False
        self._is_on = False
        self._original: Any = None
        # The patched function, once it has been installed.
        self.function: Any = None

    def start(self) -> None:
        """Starts listening. Calls in progress are not seen."""
        self._is_on = True
        if self._original is not None:
            return
        original: Callable[..., Any] = nn.Module.__call__
        entered, left = self._listener.module_entered, self._listener.module_left
        is_compiling = torch.compiler.is_compiling
        # TorchScript's tracer adds everything that is computed meanwhile to the program's graph,
        # and sizes are tensors.
        is_tracing: Callable[[], bool] = torch._C._is_tracing
        compiles = compiles_with or (lambda: None)
        reported_types, gave, calls = self._of, self._gave, self

        @functools.wraps(original)
        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            # Dynamo treats this as a constant and skips the rest in compiled code.
            if is_compiling() or not calls._is_on or is_tracing() or compiles() is not None:
                return original(self, *args, **kwargs)
            entered(self, args, kwargs)
            try:
                result = original(self, *args, **kwargs)
                if gave is not None and (calls.of_all or type(self) in reported_types):
                    gave(self, result)
            finally:
                left(self)
            return result

        self._original = original
        self.function = __call__
        nn.Module.__call__ = __call__  # type: ignore[method-assign]

    def stop(self, keep: bool = False) -> None:
        """Restores the original method.

        With `keep`, the patch stays but reports nothing, because Dynamo recompiles code that was
        compiled with another `__call__`.
        """
        self._is_on = False
        if self._original is not None and not keep:
            nn.Module.__call__ = self._original  # type: ignore[method-assign]
            self._original = None
