"""Profilers and debugging modes left enabled by a program, and the time they cost."""

from __future__ import annotations

import pytest

from observed_helpers import START, observed, place, record_complete
from recording import Recording
from ridgeline_agent.record.switched_off import anomaly_detection, rounds


def test_torch_profiler_left_enabled() -> None:
    recording = record_complete(
        START
        + """
    with torch.profiler.profile() as profiler:  # here
        while True:
            train()
            profiler.step()
    """
    )
    result = recording.manifest["observed"]["profilers"]
    assert result == [{"name": "torch.profiler", "at": place(recording, "# here")}]
    assert recording.operators("aten::addmm"), "Ridgeline's profiler must record instead"


def test_torch_profiler_with_schedule() -> None:
    recording = record_complete(
        START
        + """
    schedule = torch.profiler.schedule(wait=3, warmup=1, active=1)
    with torch.profiler.profile(schedule=schedule) as profiler:
        while True:
            train()
            profiler.step()
    """
    )
    # It is disabled when the timing starts.
    assert recording.manifest["observed"]["profilers"] == []
    assert recording.operators("aten::addmm")


def test_cprofile_left_enabled() -> None:
    recording = record_complete(
        START
        + """
    import cProfile
    profile = cProfile.Profile()
    profile.enable()  # here
    while True:
        train()
    """
    )
    result = recording.manifest["observed"]["profilers"]
    assert result == [{"name": "cProfile", "at": place(recording, "# here")}]


def test_settrace_left_enabled() -> None:
    recording = record_complete(
        START
        + """
    import sys
    # sys.settrace(None) would disable it
    sys.settrace(lambda frame, event, argument: None)  # here
    while True:
        train()
    """
    )
    result = recording.manifest["observed"]["profilers"]
    assert result == [{"name": "sys.settrace", "at": place(recording, "# here")}]


def test_disabled_profilers_are_not_reported() -> None:
    result = observed(
        START
        + """
    import cProfile, sys
    profile = cProfile.Profile()
    profile.enable()
    sys.settrace(lambda frame, event, argument: None)
    with torch.profiler.profile():
        train()
    sys.settrace(None)
    profile.disable()
    while True:
        train()
    """
    )
    assert result["profilers"] == []


def switched_off(recording: Recording) -> list[str]:
    """The names of the tools that were switched off, after checking their iteration times."""
    result = recording.manifest["observed"]["switched_off"]
    for tool in result:
        assert len(tool["without_ns"]) == 10 and min(tool["without_ns"]) > 0
        assert len(tool["with_ns"]) == len(tool["without_ns"]) or tool["name"] == "torch.profiler"
    return [tool["name"] for tool in result]


PRINT_ENABLED_TOOLS = """
    def print_enabled_tools():
        monitoring = getattr(sys, "monitoring", None)
        profiles = sys.getprofile() or (monitoring and monitoring.get_tool(monitoring.PROFILER_ID))
        enabled = {"cProfile": profiles, "sys.settrace": sys.gettrace() is trace,
                   "anomaly": torch.is_anomaly_enabled()}
        names = sorted(name for name, is_enabled in enabled.items() if is_enabled)
        print("enabled", names, flush=True)
"""


def test_enabled_tools_are_switched_off_in_turn() -> None:
    recording = record_complete(
        START
        + "    import cProfile, sys\n"
        + PRINT_ENABLED_TOOLS
        + """
    def trace(frame, event, argument):
        return None
    sys.settrace(trace)
    torch.autograd.set_detect_anomaly(True)
    profile = cProfile.Profile()
    profile.enable()
    while True:
        train()
        print_enabled_tools()
    """
    )
    assert sorted(switched_off(recording)) == ["anomaly", "cProfile", "sys.settrace"]
    lines = recording.printed.splitlines()
    states = [line[8:] for line in lines if line.startswith("enabled ")]
    # Only the end of the last iteration is observed.
    expected_states = [
        ["anomaly", "cProfile", "sys.settrace"],
        ["anomaly", "cProfile"],
        ["anomaly", "sys.settrace"],
        ["cProfile", "sys.settrace"],
    ]
    last = states[-12:]
    assert sorted(set(last)) == sorted(str(state) for state in expected_states)
    assert last[:4] * 3 == last, "must alternate"
    assert recording.manifest["settings"]["anomaly"], "must be enabled again at the end"


def test_profiler_that_cannot_be_enabled_again() -> None:
    recording = record_complete(
        START
        + """
    with torch.profiler.profile() as profiler:
        while True:
            train()
            profiler.step()
    """
    )
    assert switched_off(recording) == ["torch.profiler"]
    (result,) = recording.manifest["observed"]["switched_off"]
    assert result["with_ns"] == recording.manifest["iterations"]["timed_ns"]


@pytest.mark.parametrize("end", ["break", "raise RuntimeError('late')"])
def test_program_that_ends_while_anomaly_detection_is_off(end: str) -> None:
    recording = record_complete(
        START
        + f"""
    torch.autograd.set_detect_anomaly(True)
    for step in range(1000):
        train()
        if step == 11:
            {end}
    """
    )
    assert recording.manifest["status"] == "complete"
    (result,) = recording.manifest["observed"]["switched_off"]
    # After three warm-up, two timed and two profiled iterations.
    assert (len(result["with_ns"]), len(result["without_ns"])) == (3, 2)


@pytest.mark.parametrize(
    ("timed_ms", "seconds_left", "expected"),
    [
        ([1, 1, 1], None, 10),
        ([50, 50, 50], None, 5),
        ([1000, 1000], None, 3),
        ([1700, 1700], None, 0),
        ([1000, 1000], 20.0, 0),
        ([], None, 0),
    ],
)
def test_rounds(timed_ms: list[int], seconds_left: float | None, expected: int) -> None:
    timed_ns = [time_ms * 1_000_000 for time_ms in timed_ms]
    assert rounds(timed_ns, [anomaly_detection()], seconds_left) == expected
    assert rounds(timed_ns, [], seconds_left) == 0
