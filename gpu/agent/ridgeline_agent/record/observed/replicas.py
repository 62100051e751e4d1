"""The activity of one rank of data-parallel training: `observed.distributed` of the manifest."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch import nn

from ...program.modules import ModuleTable, parameters_of
from .graph_marks import BackwardPasses, MarkedCall

_MAX_CALLS = 2000
_MAX_MODELS = 16


class _Call(MarkedCall):
    def __init__(self, passes: BackwardPasses, exchanges: bool) -> None:
        super().__init__(passes)
        self.exchanges = exchanges


class _Replica:
    """A model in `DistributedDataParallel`."""

    def __init__(self, module: nn.Module) -> None:
        self.module = weakref.ref(module)
        self.parameters = {id(parameter) for parameter in parameters_of(module)}
        self.calls: list[_Call] = []
        # By object ID of the optimizer.
        self.steps: dict[int, int] = {}


class Replicas:
    """Counts backward passes, gradient exchanges and optimizer steps of replicated models."""

    def __init__(self, passes: BackwardPasses) -> None:
        self._passes = passes
        self._replicas: dict[int, _Replica] = {}

    def gave(self, module: nn.Module, output: Any) -> None:
        """A module returned."""
        # Not imported here unless the program did.
        parallel: Any = sys.modules.get("torch.nn.parallel.distributed")
        if parallel is None or not isinstance(module, parallel.DistributedDataParallel):
            return
        replica = self._replicas.get(id(module))
        if replica is None or replica.module() is not module:
            if len(self._replicas) >= _MAX_MODELS:
                return
            replica = self._replicas[id(module)] = _Replica(module)
        if len(replica.calls) >= _MAX_CALLS:
            return
        # The forward pass prepares the exchange, so `no_sync` matters here.
        exchanges = bool(getattr(module, "require_backward_grad_sync", True))
        call = _Call(self._passes, exchanges and torch.is_grad_enabled())
        call.mark(output, True)
        replica.calls.append(call)

    def stepped(self, optimizer: Any) -> None:
        """An optimizer or gradient scaler has stepped."""
        for replica in self._replicas.values():
            groups = getattr(optimizer, "param_groups", ())
            if any(id(one) in replica.parameters for group in groups for one in group["params"]):
                replica.steps[id(optimizer)] = replica.steps.get(id(optimizer), 0) + 1

    def forget(self) -> None:
        """Discards all observations."""
        self._replicas.clear()

    def json(self, table: ModuleTable) -> dict[str, object] | None:
        """Returns `observed.distributed` for the manifest, or None if this is not one of several
        ranks.
        """
        distributed: Any = getattr(torch, "distributed", None)
        if distributed is None or not distributed.is_available():
            return None
        if not distributed.is_initialized():
            return None
        models = [self._model(replica, table) for replica in self._replicas.values()]
        return {
            "rank": int(distributed.get_rank()),
            "world_size": int(distributed.get_world_size()),
            "backend": str(distributed.get_backend())[:100],
            "models": [model for model in models if model is not None],
        }

    def _model(self, replica: _Replica, table: ModuleTable) -> dict[str, object] | None:
        module = replica.module()
        index = None if module is None else table.index_of(module)
        if index is None:
            return None
        used = set().union(*(call.used_by for call in replica.calls))
        exchanged = set().union(*(call.used_by for call in replica.calls if call.exchanges))
        return {
            "module": index,
            "backwards": len(used),
            "exchanges": len(exchanged),
            "steps": max(replica.steps.values(), default=0),
        }
