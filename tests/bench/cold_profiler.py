"""What users do today: start a new process and run torch.profiler around iterations of the GPT
demo.

Run as `python cold_profiler.py DEMO_FOLDER ITERATIONS`. The iterations run the demo's own code.
"""

import sys

sys.path.insert(0, sys.argv[1])
iterations = int(sys.argv[2])

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from corpus import batches  # noqa: E402
from model import GPT, Config  # noqa: E402

config = Config()
model = GPT(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
with profile(
    activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True
) as profiler:
    for tokens, targets in batches(config, 8, iterations):
        _, loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
print(profiler.key_averages().table(sort_by="cpu_time_total", row_limit=20))
