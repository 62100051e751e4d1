"""Tests that the simulated device behaves like a real one. Each test runs a program on it.

    pytest tests/gpu/simulated/test_device.py

The programs contain the assertions. They use the torch of RIDGELINE_TEST_PYTHON, or of this
interpreter if it is not set.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("RIDGELINE_TEST_PYTHON", sys.executable)
SKIP_EXIT_CODE = 77

# Bindings to CUDA runtime functions that PyTorch does not expose.
RUNTIME = """
import ctypes, os, sys
runtime = ctypes.CDLL("libcudart.so.13")
driver = ctypes.CDLL("libcuda.so.1")
runtime.cudaGetErrorString.restype = runtime.cudaGetErrorName.restype = ctypes.c_char_p
def call(name, *arguments):
    return getattr(runtime, name)(*arguments)
def pointer(value):
    return ctypes.byref(value)
def stream(flags=1):
    handle = ctypes.c_void_p()
    assert call("cudaStreamCreateWithFlags", pointer(handle), flags) == 0
    return handle
def event():
    handle = ctypes.c_void_p()
    assert call("cudaEventCreateWithFlags", pointer(handle), 0) == 0
    return handle
def malloc(size):
    memory = ctypes.c_void_p()
    assert call("cudaMalloc", pointer(memory), ctypes.c_size_t(size)) == 0
    return memory
def memset(memory, where, size=1024):
    return call("cudaMemsetAsync", memory, 0, ctypes.c_size_t(size), where)
"""

# PyTorch's autograd threads may abort while Python exits (README.md, "What the simulator shows, and
# what it cannot").
EXIT = """
import os, sys
sys.stdout.flush(), sys.stderr.flush()
os._exit(0)
"""


@pytest.fixture(scope="session", autouse=True)
def build_simulator() -> None:
    """Builds the simulator first, so that a build of minutes does not count against a program's
    timeout.
    """
    result = subprocess.run(
        [HERE / "run", "--python", PYTHON, "true"], capture_output=True, text=True, timeout=900
    )
    if result.returncode == SKIP_EXIT_CODE:
        pytest.skip(result.stdout.strip())
    assert result.returncode == 0, result.stdout + result.stderr


def run(program: str, runtime: bool = False, **variables: str) -> str:
    """Runs the program on the simulated device. Returns its output."""
    source = (RUNTIME if runtime else "import torch\n") + textwrap.dedent(program) + EXIT
    reserved = ("SIMGPU", "CUDA_", "PYTORCH_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(reserved)}
    environment.update(variables)
    result = subprocess.run(
        [HERE / "run", "--python", PYTHON, PYTHON, "-c", source],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


# --- errors ---


def test_errors_have_the_names_and_texts_of_the_runtime() -> None:
    run(
        """
        assert call("cudaSetDevice", 5) == 101
        assert runtime.cudaGetErrorName(101) == b"cudaErrorInvalidDevice"
        text = runtime.cudaGetErrorString(900)
        assert text == b"operation not permitted when stream is capturing", text
        assert runtime.cudaGetErrorString(700) == b"an illegal memory access was encountered"
        name = ctypes.c_char_p()
        assert driver.cuGetErrorName(2, pointer(name)) == 0
        assert name.value == b"CUDA_ERROR_OUT_OF_MEMORY"
        assert call("cudaGetLastError") == 101 and call("cudaGetLastError") == 0
        """,
        runtime=True,
    )


def test_a_fork_after_initialization_cannot_use_cuda() -> None:
    run(
        """
        memory = malloc(1 << 20)
        child = os.fork()
        if child == 0:
            other = ctypes.c_void_p()
            os._exit(call("cudaMalloc", pointer(other), ctypes.c_size_t(16)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert call("cudaFree", memory) == 0
        """,
        runtime=True,
    )


def test_a_fork_before_initialization_can_use_cuda() -> None:
    run(
        """
        child = os.fork()
        if child == 0:
            malloc(1 << 20)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        malloc(1 << 20)
        """,
        runtime=True,
    )


def test_an_illegal_access_is_reported_by_every_later_call() -> None:
    run(
        """
        x = torch.ones(1 << 20, device="cuda")
        try:
            y = x.sigmoid()
        except RuntimeError as error:
            # The check after the launch sees the error if the kernel has already run.
            assert "an illegal memory access was encountered" in str(error), error
        for _ in range(2):
            try:
                torch.cuda.synchronize()
            except RuntimeError as error:
                assert "an illegal memory access was encountered" in str(error), error
            else:
                raise AssertionError("no error")
        """,
        SIMGPU_FAIL_KERNEL="sigmoid:1",
    )


def test_an_injected_device_side_assertion_has_the_text_of_pytorch() -> None:
    output = run(
        """
        table = torch.ones(10, 4, device="cuda")
        indices = torch.tensor([0, 3, 10], device="cuda")
        try:
            torch.nn.functional.embedding(indices, table).sum().item()
        except RuntimeError as error:
            assert "device-side assert triggered" in str(error), error
        else:
            raise AssertionError("no error")
        """,
        SIMGPU_ASSERT_KERNEL="indexSelect",
    )
    assert "Assertion `srcIndex < srcSelectDimSize` failed" in output


def test_out_of_memory() -> None:
    run(
        """
        held = torch.empty(1000 << 20, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(600 << 20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            assert "total capacity of 1.95 GiB" in str(error), error
        else:
            raise AssertionError("no error")
        del held
        torch.empty(1400 << 20, dtype=torch.uint8, device="cuda")
        """,
        SIMGPU_MEMORY_MB="2000",
    )


# --- stream capture and graphs ---

CAPTURE = """
memory, where = malloc(1 << 20), stream()
graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
def begin(mode=0):
    assert call("cudaStreamBeginCapture", where, mode) == 0
def end():
    return call("cudaStreamEndCapture", where, pointer(graph))
"""


@pytest.mark.parametrize(
    ("prohibited", "error"),
    [
        ("call('cudaDeviceSynchronize')", 900),
        ("call('cudaStreamSynchronize', where)", 900),
        ("call('cudaStreamQuery', where)", 900),
        ("call('cudaMalloc', pointer(ctypes.c_void_p()), ctypes.c_size_t(16))", 900),
        ("call('cudaFree', memory)", 900),
        ("call('cudaEventQuery', before)", 900),
        ("call('cudaEventSynchronize', within)", 907),
        ("call('cudaStreamWaitEvent', where, before, 0)", 905),
        ("call('cudaMemcpyAsync', memory, b'12345678', ctypes.c_size_t(8), 1, where)", 900),
    ],
)
def test_prohibited_calls_invalidate_a_capture(prohibited: str, error: int) -> None:
    run(
        CAPTURE
        + f"""
before, within = event(), event()
assert call("cudaEventRecord", before, where) == 0
begin()
assert memset(memory, where) == 0
assert call("cudaEventRecord", within, where) == 0
answer = {prohibited}
assert answer == {error}, answer
assert memset(memory, where) == 901, "a launch into an invalid capture"
assert end() == 901 and graph.value is None
assert call("cudaDeviceSynchronize") == 0, "the stream works again"
""",
        runtime=True,
    )


def test_a_relaxed_capture_allows_allocations() -> None:
    run(
        CAPTURE
        + """
begin(2)
malloc(1 << 20)
assert memset(memory, where) == 0 and end() == 0
begin(0)
mode = ctypes.c_int(2)
assert call("cudaThreadExchangeStreamCaptureMode", pointer(mode)) == 0 and mode.value == 0
malloc(1 << 20)
assert end() == 0
""",
        runtime=True,
    )


def test_only_a_global_capture_restricts_other_threads() -> None:
    run(
        CAPTURE
        + """
import threading
def malloc_in_thread():
    answers = []
    def body():
        answers.append(call("cudaMalloc", pointer(ctypes.c_void_p()), ctypes.c_size_t(16)))
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return answers[0]
begin(1)
assert malloc_in_thread() == 0 and end() == 0
begin(0)
assert malloc_in_thread() == 900 and end() == 901
""",
        runtime=True,
    )


def test_a_capture_spreads_over_events_and_forked_streams_must_join() -> None:
    run(
        CAPTURE
        + """
side, forked, joined = stream(), event(), event()
status = ctypes.c_int()
for joins in (True, False):
    begin()
    assert memset(memory, where) == 0
    assert call("cudaEventRecord", forked, where) == 0
    assert call("cudaStreamWaitEvent", side, forked, 0) == 0
    assert call("cudaStreamIsCapturing", side, pointer(status)) == 0 and status.value == 1
    assert memset(memory, side) == 0
    if joins:
        assert call("cudaEventRecord", joined, side) == 0
        assert call("cudaStreamWaitEvent", where, joined, 0) == 0
        assert end() == 0
        count = ctypes.c_size_t()
        assert call("cudaGraphGetNodes", graph, None, pointer(count)) == 0 and count.value == 2
    else:
        assert end() == 904, "unjoined work"
    assert call("cudaStreamIsCapturing", side, pointer(status)) == 0 and status.value == 0
""",
        runtime=True,
    )


def test_branches_of_a_graph_overlap() -> None:
    run(
        """
        side = torch.cuda.Stream()
        def work():
            main = torch.cuda.current_stream()
            side.wait_stream(main)
            torch.cuda._sleep(10_000_000)
            with torch.cuda.stream(side):
                torch.cuda._sleep(10_000_000)
            main.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        one = 10_000_000 / 1.98e9 * 1e3
        assert 0.9 * one < start.elapsed_time(end) < 1.5 * one, (start.elapsed_time(end), one)
        """
    )


def test_pytorch_cannot_synchronize_during_a_capture() -> None:
    run(
        """
        graph = torch.cuda.CUDAGraph()
        x = torch.ones(8, device="cuda")
        try:
            with torch.cuda.graph(graph):
                (x + 1).sum().item()
        except RuntimeError as error:
            assert "capturing" in str(error) or "capture" in str(error), error
        else:
            raise AssertionError("no error")
        torch.cuda.synchronize()
        """
    )


def test_a_replay_is_one_launch_with_all_its_kernels() -> None:
    run(
        """
        import json, os, tempfile
        from torch.profiler import ProfilerActivity, profile
        layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)]
        x, sample = (torch.randn(8, 64, device="cuda", requires_grad=True) for _ in range(2))
        step = torch.cuda.make_graphed_callables(torch.nn.Sequential(*layers).cuda(), (sample,))
        step(x).sum().backward()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            step(x).sum().backward()
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "trace.json")
            profiler.export_chrome_trace(file)
            events = json.load(open(file))["traceEvents"]
        launches = {e["args"]["correlation"] for e in events if e.get("name") == "cudaGraphLaunch"}
        kernels = [e for e in events if e.get("cat") == "kernel"]
        of_graphs = [k for k in kernels if k["args"]["correlation"] in launches]
        assert len(launches) == 2, launches
        assert len(of_graphs) > 5 and len(of_graphs) < len(kernels), (len(of_graphs), len(kernels))
        """
    )


# --- time ---


def test_copies_overlap_with_kernels_but_not_with_each_other() -> None:
    run(
        """
        host = [torch.zeros(64 << 20, dtype=torch.uint8).pin_memory() for _ in range(2)]
        sides = [torch.cuda.Stream() for _ in range(2)]
        device = [torch.empty_like(h, device="cuda") for h in host]
        torch.cuda.synchronize()
        def timed(*works):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(1_000_000_000)  # everything is enqueued before the device reaches it
            start.record()
            for side in sides:
                side.wait_stream(torch.cuda.current_stream())
            for work in works:
                work()
            for side in sides:
                torch.cuda.current_stream().wait_stream(side)
            end.record()
            end.synchronize()
            return start.elapsed_time(end)
        def copy(i, back=False):
            with torch.cuda.stream(sides[i]):
                if back:
                    host[i].copy_(device[i], non_blocking=True)
                else:
                    device[i].copy_(host[i], non_blocking=True)
        one = timed(lambda: copy(0))
        kernel = lambda: torch.cuda._sleep(int(one * 1.98e6))
        assert 1.2 < one < 1.6, one  # 64 MiB at 50 GB/s
        assert timed(lambda: copy(0), lambda: copy(1)) > 1.9 * one
        assert timed(lambda: copy(0), lambda: copy(1, back=True)) < 1.8 * one
        assert timed(kernel, lambda: copy(0)) < 1.8 * one
        """
    )


def test_only_pageable_copies_block_the_host() -> None:
    run(
        """
        pageable = torch.zeros(64 << 20, dtype=torch.uint8)
        pinned = pageable.pin_memory()
        device = torch.empty_like(pageable, device="cuda")
        stream = torch.cuda.current_stream()
        torch.cuda.synchronize()
        torch.cuda._sleep(1_000_000_000)
        device.copy_(pinned, non_blocking=True)
        assert not stream.query(), "the host is ahead of the device"
        device.copy_(pageable, non_blocking=True)
        assert stream.query(), "the host waited"
        """
    )


def test_host_functions_block_their_stream() -> None:
    run(
        """
        import threading
        go, seen, where = threading.Event(), [], stream()
        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def function(_):
            go.wait(30)
            seen.append(True)
        memory = malloc(1 << 20)
        assert call("cudaLaunchHostFunc", where, function, None) == 0
        assert memset(memory, where) == 0
        assert call("cudaStreamQuery", where) == 600
        assert not seen
        go.set()
        assert call("cudaStreamSynchronize", where) == 0 and seen == [True]
        """,
        runtime=True,
    )


def test_the_legacy_stream_waits_for_blocking_streams() -> None:
    run(
        """
        import threading
        for flags, waits in ((0, True), (1, False)):
            go, other = threading.Event(), stream(flags)
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(30) and None)
            memory = malloc(1 << 20)
            assert call("cudaLaunchHostFunc", other, function, None) == 0
            assert memset(memory, None) == 0
            if waits:
                assert call("cudaStreamQuery", None) == 600
                go.set()
            assert call("cudaStreamSynchronize", None) == 0
            go.set()
            assert call("cudaDeviceSynchronize") == 0
        """,
        runtime=True,
    )


# --- memory ---


@pytest.mark.parametrize(
    "backend", ["expandable_segments:True", "backend:cudaMallocAsync", "max_split_size_mb:64"]
)
def test_allocators(backend: str) -> None:
    run(
        """
        net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
        for _ in range(3):
            net(torch.randn(256, 512, device="cuda")).sum().backward()
        torch.cuda.synchronize()
        used, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        assert 4 << 20 <= used <= torch.cuda.max_memory_allocated()
        assert used <= reserved, (used, reserved)
        free, total = torch.cuda.mem_get_info()
        assert total - free >= reserved
        big = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        assert torch.cuda.mem_get_info()[0] <= free - (3 << 30) + reserved
        del big, net
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        assert torch.cuda.mem_get_info()[0] > free, (torch.cuda.mem_get_info(), free)
        try:
            torch.empty(80 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("no error")
        """,
        PYTORCH_CUDA_ALLOC_CONF=backend,
        PYTORCH_ALLOC_CONF=backend,
    )


def test_expandable_segments_map_what_they_need() -> None:
    run(
        """
        torch.cuda.memory._record_memory_history()
        x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        (segment,) = torch.cuda.memory_snapshot()
        assert segment["is_expandable"] and segment["total_size"] == 100 << 20, segment
        actions = [e["action"] for e in torch.cuda.memory._snapshot()["device_traces"][0]]
        assert "segment_map" in actions and "alloc" in actions, actions
        """,
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
        PYTORCH_ALLOC_CONF="expandable_segments:True",
    )


def test_processes_share_the_memory_of_a_gpu() -> None:
    run(
        """
        import os, subprocess, sys
        code = (
            "import torch; x = torch.empty(1 << 30, dtype=torch.uint8, device='cuda'); "
            "print('ready', flush=True); input()"
        )
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        other = subprocess.Popen([sys.executable, "-c", code], **pipes)
        torch.cuda.init()
        before = torch.cuda.mem_get_info()[0]
        assert other.stdout.readline() == b"ready\\n"
        during = torch.cuda.mem_get_info()[0]
        other.communicate(b"\\n")
        after = torch.cuda.mem_get_info()[0]
        assert before - during > 1 << 30 and after == before, (before, during, after)
        """
    )


# --- devices ---


def visible(value: str | None, count: str = "3", **variables: str) -> str:
    selection = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    program = """
    count, uuids = ctypes.c_int(), []
    driver.cuInit(0)
    driver.cuDeviceGetCount(pointer(count))
    for device in range(count.value):
        uuid = (ctypes.c_ubyte * 16)()
        driver.cuDeviceGetUuid_v2(pointer(uuid), device)
        uuids.append(bytes(uuid).hex())
    print("devices", *uuids)
    """
    output = run(program, runtime=True, SIMGPU_COUNT=count, **selection, **variables)
    found = re.search(r"^devices(.*)$", output, re.MULTILINE)
    assert found
    return found[1].strip()


def test_visible_devices() -> None:
    first, second, third = visible(None).split()

    def text(uuid: str, prefix: str = "GPU-") -> str:
        return prefix + "-".join([uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]])

    assert visible("2,0") == f"{third} {first}"
    assert visible("1") == second
    assert visible("") == visible("-1") == visible("none") == ""
    assert visible("0,-1,1") == visible("0,7,1") == first, "an invalid entry ends the list"
    assert visible("0,1,0") == "", "a device named twice"
    assert visible(text(second)) == second
    assert visible(text(second)[:10] + "," + text(first)) == f"{second} {first}"
    assert visible("GPU-") == "", "ambiguous"
    instance = visible(None, SIMGPU_MIG="1")
    assert instance and " " not in instance and instance not in (first, second, third)
    assert visible(text(instance, "MIG-"), SIMGPU_MIG="1") == instance


@pytest.mark.parametrize(
    ("key", "name", "capability"),
    [
        ("a100", "A100-SXM4-80GB", (8, 0)),
        ("rtx4090", "RTX 4090", (8, 9)),
        ("b200", "B200", (10, 0)),
    ],
)
def test_models(key: str, name: str, capability: tuple[int, int]) -> None:
    run(
        f"""
        properties = torch.cuda.get_device_properties(0)
        assert properties.name.endswith({name!r}), properties
        assert (properties.major, properties.minor) == {capability}, properties
        (torch.randn(64, 64, device="cuda") @ torch.randn(64, 64, device="cuda")).cpu()
        """,
        SIMGPU=key,
    )


def test_two_devices() -> None:
    run(
        """
        assert torch.cuda.device_count() == 2 and torch.cuda.can_device_access_peer(0, 1)
        x = torch.arange(4.0).to("cuda:1")
        y = x.to("cuda:0")
        assert y.cpu().tolist() == [0, 1, 2, 3] and y.device.index == 0
        with torch.cuda.device(1):
            torch.cuda._sleep(200_000_000)
        torch.cuda.synchronize(0)
        assert not torch.cuda.current_stream(1).query(), "devices run independently"
        """,
        SIMGPU_COUNT="2",
    )


NVML = """
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
def by_uuid(uuid):
    handle = ctypes.c_void_p()
    return nvml.nvmlDeviceGetHandleByUUID(uuid, pointer(handle)), handle
def by_index(index):
    handle = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, pointer(handle)) == 0
    return handle
def number(name, handle, *arguments, kind=ctypes.c_uint):
    value = kind()
    error = getattr(nvml, name)(handle, *arguments, pointer(value))
    return value.value if error == 0 else -error
"""


def test_nvml_of_a_mig_instance() -> None:
    run(
        NVML
        + """
gpu, instance = by_index(0), ctypes.c_void_p()
assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, pointer(instance)) == 0
text = ctypes.create_string_buffer(96)
assert nvml.nvmlDeviceGetUUID(instance, text, 96) == 0 and text.value.startswith(b"MIG-")
assert by_uuid(text.value)[0] == 0
no_gpu = text.value.replace(b"MIG-", b"GPU-")
assert by_uuid(no_gpu)[0] == 6, "the UUID of an instance is not that of a GPU"
parent = ctypes.c_void_p()
assert nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance, pointer(parent)) == 0
assert parent.value == gpu.value
assert number("nvmlDeviceGetClockInfo", instance, 1) == -3, "not supported"
assert number("nvmlDeviceGetClockInfo", gpu, 1) == 1980
""",
        runtime=True,
        SIMGPU_MIG="1",
    )


def test_nvml_reports_what_limits_the_clock() -> None:
    run(
        NVML
        + """
gpu = by_index(0)
assert number("nvmlDeviceGetCurrentClocksEventReasons", gpu, kind=ctypes.c_ulonglong) == 0x4
assert number("nvmlDeviceGetClockInfo", gpu, 1) < number("nvmlDeviceGetMaxClockInfo", gpu, 1)
assert number("nvmlDeviceGetPowerUsage", gpu) == number("nvmlDeviceGetEnforcedPowerLimit", gpu)
count, processes = ctypes.c_uint(8), (ctypes.c_ulonglong * 24)()
assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu, pointer(count), processes) == 0
assert count.value == 1 and processes[0] & 0xFFFFFFFF == 4242 and processes[1] == 3 << 30
""",
        runtime=True,
        SIMGPU_LIMITED_BY="power",
        SIMGPU_OTHER_PROCESSES="4242:3072",
    )


def test_device_files() -> None:
    program = """
    print("files", *(os.path.exists("/dev/nvidia" + name) for name in ("ctl", "1", "2")))
    """
    assert "files True True False" in run(program, runtime=True, SIMGPU_COUNT="2")
    output = run(program, runtime=True, SIMGPU_COUNT="2", SIMGPU_NO_DEVICE_FILES="1")
    assert "files False False False" in output


def test_occupancy_of_compiled_ptx() -> None:
    run(
        """
        ptx = b'''.version 7.8
        .target sm_90
        .address_size 64
        .visible .entry holder(.param .u64 out) { .shared .align 4 .b8 held[40000]; .reg .b64 %a;
          .reg .b32 %v; mov.u64 %a, held; cvt.u32.u64 %v, %a; st.shared.u32 [held], %v; ret; }'''
        assert driver.cuInit(0) == 0
        context, module, function = (ctypes.c_void_p() for _ in range(3))
        assert driver.cuDevicePrimaryCtxRetain(pointer(context), 0) == 0
        assert driver.cuCtxSetCurrent(context) == 0
        assert driver.cuModuleLoadData(pointer(module), ptx) == 0
        assert driver.cuModuleGetFunction(pointer(function), module, b"absent") == 500
        assert driver.cuModuleGetFunction(pointer(function), module, b"holder") == 0
        number = ctypes.c_int()
        def attribute(which):
            assert driver.cuFuncGetAttribute(pointer(number), which, function) == 0
            return number.value
        def blocks(threads, shared):
            ask = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
            return ask(pointer(number), function, threads, ctypes.c_size_t(shared)), number.value
        assert attribute(1) == 40000, number
        assert 4 <= attribute(4) < 32, number
        assert blocks(128, 0) == (0, 5), "233472 / (40000 + 1024, in units of 128)"
        assert driver.cuFuncSetAttribute(function, 8, 200_000) == 1, "more than the limit per block"
        assert driver.cuFuncSetAttribute(function, 8, 100_000) == 0
        assert blocks(128, 100_000) == (0, 1)
        assert driver.cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, None, None, None) == 9
        """,
        runtime=True,
    )
