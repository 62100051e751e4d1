"""Process groups of torch.distributed in an estimate, without connections: collectives return
immediately and change nothing.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch


def install() -> None:
    """From now on, `init_process_group` does not connect or open a socket."""
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return
    initialize = distributed.init_process_group

    @functools.wraps(initialize)
    def init_fake_group(
        backend: Any = None,
        init_method: Any = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        *_: Any,
        **__: Any,
    ) -> None:
        # Part of torch, used in its own tests and in its documentation of tracing.
        from torch.testing._internal.distributed.fake_pg import FakeStore

        rank = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
        world_size = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
        initialize("fake", rank=rank, world_size=world_size, store=FakeStore())

    distributed.init_process_group = distributed.distributed_c10d.init_process_group = (
        init_fake_group
    )
