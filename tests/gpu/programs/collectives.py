"""Checks the results of NCCL's collectives: torchrun --nproc-per-node N collectives.py

Values are written and compared on the host, because kernels of the simulated device compute
nothing.
"""
# test: {"ranks": 2, "row": "ranks", "trains": false}

import os

import torch
import torch.distributed as dist

LOCAL = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(LOCAL)
DEVICE = torch.device("cuda", LOCAL)
dist.init_process_group("nccl", device_id=DEVICE)
RANK, SIZE = dist.get_rank(), dist.get_world_size()
RANKS = range(SIZE)


def on_gpu(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).to(DEVICE)


def empty(count, dtype=torch.float32):
    return torch.zeros(count, dtype=dtype).to(DEVICE)


def assert_equals(tensor, values):
    found = tensor.cpu().double().tolist()
    assert found == [float(value) for value in values], (RANK, found, values)


def reductions():
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.int64,
        torch.uint8,
    ):
        tensor = on_gpu([RANK + 1, 2, 3 - RANK % 2], dtype)
        dist.all_reduce(tensor)
        assert_equals(tensor, [sum(r + 1 for r in RANKS), 2 * SIZE, sum(3 - r % 2 for r in RANKS)])
    tensor = on_gpu([RANK, -RANK])
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    assert_equals(tensor, [SIZE - 1, 0])
    tensor = on_gpu([RANK, -RANK])
    dist.all_reduce(tensor, dist.ReduceOp.MIN)
    assert_equals(tensor, [0, 1 - SIZE])
    tensor = on_gpu([2 * RANK])
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert_equals(tensor, [SIZE - 1])
    tensor = on_gpu([RANK + 1])
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    assert_equals(tensor, [sum(r + 1 for r in RANKS) / 2])
    tensor = on_gpu([RANK + 1, 1])
    dist.reduce(tensor, 1)
    if RANK == 1:
        assert_equals(tensor, [sum(r + 1 for r in RANKS), SIZE])
    part = empty(2)
    dist.reduce_scatter_tensor(part, on_gpu([r * 10 + RANK for r in RANKS for _ in range(2)]))
    assert_equals(part, [RANK * 10 * SIZE + sum(RANKS)] * 2)


def gathers():
    whole = empty(2 * SIZE)
    dist.all_gather_into_tensor(whole, on_gpu([RANK, 10 * RANK]))
    assert_equals(whole, [value for r in RANKS for value in (r, 10 * r)])
    parts = [empty(3) for _ in RANKS]
    dist.all_gather(parts, on_gpu([RANK] * 3))
    tensor = on_gpu([RANK, RANK])
    dist.broadcast(tensor, SIZE - 1)
    assert_equals(tensor, [SIZE - 1] * 2)
    parts = [empty(2) for _ in RANKS] if RANK == 0 else None
    dist.gather(on_gpu([RANK, 7]), parts)
    if RANK == 0:
        for r in RANKS:
            assert_equals(parts[r], [r, 7])
    part = empty(1)
    dist.scatter(part, [on_gpu([r + 5]) for r in RANKS] if RANK == 0 else None)
    assert_equals(part, [RANK + 5])


def messages():
    if RANK == 0:
        dist.send(on_gpu([41, 42]), 1)
    elif RANK == 1:
        tensor = empty(2)
        dist.recv(tensor, 0)
        assert_equals(tensor, [41, 42])
    # A ring, with more messages per rank than there are slots.
    next_rank, previous_rank = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    received = [empty(1) for _ in range(9)]
    work = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, on_gpu([100 * RANK + i]), next_rank) for i in range(9)]
        + [dist.P2POp(dist.irecv, received[i], previous_rank) for i in range(9)]
    )
    for request in work:
        request.wait()
    for i in range(9):
        assert_equals(received[i], [100 * previous_rank + i])
    result = empty(SIZE)
    dist.all_to_all_single(result, on_gpu([10 * RANK + r for r in RANKS]))
    assert_equals(result, [10 * r + RANK for r in RANKS])


def order():
    """Many collectives at once on separate streams, with one late rank."""
    tensors = [on_gpu([RANK + i]) for i in range(50)]
    work = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    if RANK == 0:
        torch.cuda._sleep(20_000_000)
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):
        other = on_gpu([RANK])
        dist.all_reduce(other)
    for request in work:
        request.wait()
    for i, tensor in enumerate(tensors):
        assert_equals(tensor, [sum(r + i for r in RANKS)])
    side_stream.synchronize()
    assert_equals(other, [sum(RANKS)])
    with dist._coalescing_manager(device=DEVICE):
        few = [on_gpu([RANK + i]) for i in range(20)]
        for tensor in few:
            dist.all_reduce(tensor)
    for i, tensor in enumerate(few):
        assert_equals(tensor, [sum(r + i for r in RANKS)])


def subgroups():
    if SIZE % 2:
        return
    groups = [dist.new_group([r, r + 1]) for r in range(0, SIZE, 2)]
    mine = groups[RANK // 2]
    tensor = on_gpu([RANK])
    dist.all_reduce(tensor, group=mine)
    first = RANK - RANK % 2
    assert_equals(tensor, [2 * first + 1])


for check in (reductions, gathers, messages, order, subgroups):
    check()
    dist.barrier()
torch.cuda.synchronize()
print(f"rank {RANK} of {SIZE}: all collectives are correct", flush=True)
dist.destroy_process_group()
