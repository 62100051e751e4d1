"""A launcher of two ranks that imported torch before they were two: `fork_ranks.py SCRIPT WORDS`.

torchrun and each of its ranks import torch for themselves, which is most of the time of a short
run. Where a test is about what a rank does, and not about what starts it, this one does.
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
    # torch 2.4 wants to know this as well.
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
