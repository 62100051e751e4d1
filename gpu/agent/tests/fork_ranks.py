"""A launcher that imports torch and then forks two ranks: `fork_ranks.py SCRIPT [ARGUMENTS]`.

torchrun and each of its ranks import torch separately, which takes most of the time of a short run.
Tests that do not depend on the launcher use this one instead.
"""

from __future__ import annotations

import os
import runpy
import sys

import torch.distributed
import torch.profiler

RANKS = 2


def main() -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", WORLD_SIZE=str(RANKS))
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ.update(MASTER_PORT=str(store.port), TORCHELASTIC_USE_AGENT_STORE="True")
    # Required by torch 2.4.
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "0"
    for rank in range(RANKS):
        if os.fork() == 0:
            os.environ["RANK"] = str(rank)
            sys.argv[:] = sys.argv[1:]
            runpy.run_path(sys.argv[0], run_name="__main__")
            os._exit(0)
    codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(RANKS)]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
