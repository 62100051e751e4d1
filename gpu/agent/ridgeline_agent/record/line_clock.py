"""The line clock: the current user line of each thread, with Kineto's clock.

Joined to the trace by time, it gives the complete user call stack of every operator, which the
profiler's own `with_stack` does not (docs/recording.md has the format). `sys.monitoring` slows a
loop down by a factor of 1.06, `sys.settrace` (before Python 3.12) by 1.16. With `sys.monitoring`,
the clock also distinguishes the expressions within a line.
"""

from __future__ import annotations

import array
import os
import struct
import sys
import threading
import types
from collections.abc import Callable
from time import perf_counter_ns, time_ns
from typing import Any

from ..program.sources import Sources
from ..system.private_files import private
from .expressions import Expressions

(
    LINE,
    PUSH,
    POP,
    MODULE_ENTER,
    MODULE_EXIT,
    PHASE_ENTER,
    PHASE_EXIT,
    ITERATION,
    RECORDER,
    STARTED,
    EXPRESSION,
) = range(11)
RECORD_BYTES = 24
_HEADER = struct.pack("<8sII", b"RDGLINES", 1, RECORD_BYTES)
_MAX_THREADS = 1 << 16
# Shorter times of the recorder are not worth a record, and longer ones do not fit into one.
_MIN_NS = 1_000
_MAX_NS = (1 << 31) - 1
# Following an expression takes half a microsecond. The rate of a function's expressions is looked
# at after so many of them.
_MIN_NS_PER_EXPRESSION = 10_000
_LOOK_AFTER = 256
# The time of an event is measured on this many, several times.
_CALIBRATION_EVENTS = 400
_CALIBRATION_ROUNDS = 5


class _Threads(dict[int, int]):
    """Maps `threading.get_ident()` to the thread bits of a record's second word. Assigned on first
    use.
    """

    def __init__(self) -> None:
        super().__init__()
        self.native_ids: list[int] = []

    def __missing__(self, identity: int) -> int:
        index = min(len(self.native_ids), _MAX_THREADS - 1)
        if index == len(self.native_ids):
            self.native_ids.append(_native_id(identity))
        self[identity] = index << 16
        return index << 16


def _native_id(identity: int) -> int:
    if identity == threading.get_ident():
        return threading.get_native_id()
    for thread in threading.enumerate():
        if thread.ident == identity:
            return thread.native_id or 0
    return 0


class EventLog:
    """Records in memory. Each has three 64-bit words, which are the 24 bytes in the file.

    The words are: time; kind, thread and `a`; `b`. At most `limit` records are kept, because a
    program may run for ever.
    """

    def __init__(self, limit: int) -> None:
        self.words = array.array("q")
        self.limit_words = 3 * limit
        self.dropped = 0
        self.threads = _Threads()
        self.extend = self.words.extend

    def add(self, kind: int, a: int, b: int = 0) -> None:
        """Logs an event of the calling thread."""
        if len(self.words) < self.limit_words:
            self.extend((time_ns(), kind | self.threads[threading.get_ident()] | a << 32, b))
        else:
            self.dropped += 1

    def recorder_ran(self, began_ns: int) -> None:
        """Logs that the time from `began_ns` until now was the recorder's own."""
        took_ns = time_ns() - began_ns
        if took_ns >= _MIN_NS:
            self.add(RECORDER, min(took_ns, _MAX_NS))

    def position(self) -> int:
        """Returns the position of the next record, for `records`."""
        return len(self.words) // 3

    def records(self, first: int, last: int) -> list[tuple[int, int, int, int]]:
        """Returns `(kind, thread, a, b)` of the records from `first` to before `last`."""
        words = self.words
        return [
            (words[i] & 0xFF, words[i] >> 16 & 0xFFFF, words[i] >> 32, words[i + 1])
            for i in range(3 * first + 1, 3 * last, 3)
        ]

    def save(self, path: str) -> None:
        """Writes `lines.bin`."""
        words = self.words
        if sys.byteorder == "big":
            words = array.array("q", words)
            words.byteswap()
        with open(path, "wb", opener=private) as file:
            file.write(_HEADER)
            words.tofile(file)

    def keep(self, records: int) -> None:
        """Keeps only the first records and the threads."""
        del self.words[3 * records :]
        self.dropped = 0

    def forget(self, first: int, last: int) -> None:
        """Removes the records from `first` to before `last`."""
        del self.words[3 * first : 3 * last]

    def threads_json(self) -> list[dict[str, object]]:
        """Returns `threads` for the manifest."""
        main = os.getpid() if sys.platform.startswith("linux") else None
        main_thread = threading.main_thread().native_id
        return [{"tid": tid, "main": tid in (main, main_thread)} for tid in self.threads.native_ids]

    def json(self) -> dict[str, int]:
        """Returns `line_log` for the manifest."""
        return {"events": self.position(), "dropped": self.dropped}


class LineClock:
    """Logs the lines of user code from `start` to `stop`."""

    def __init__(self, log: EventLog, sources: Sources) -> None:
        self.log = log
        self.sources = sources

    def start(self) -> None:
        """Logs the frames on every thread's stack, outermost first, and from now on every line."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stops logging. Does nothing if the clock is not running."""
        raise NotImplementedError

    def line_event(self) -> Callable[[], object]:
        """Returns a function that logs a line event as the interpreter does it. Call it only on a
        clock that is not running.
        """
        raise NotImplementedError

    def _push_stack(self, frame: types.FrameType | None, thread: int) -> list[types.FrameType]:
        """Logs the user's frames from `frame` outwards as entered, outermost first."""
        stack = []
        while frame is not None:
            if self.sources.code(frame.f_code) is not None:
                stack.append(frame)
            frame = frame.f_back
        stack.reverse()
        for user_frame in stack:
            code = self.sources.code(user_frame.f_code)
            if code is not None:
                word = PUSH | self.log.threads[thread] | code << 32
                self.log.extend((time_ns(), word, user_frame.f_lineno))
        return stack


def _stacks() -> dict[int, types.FrameType | None]:
    """Returns each thread's innermost frame; for this thread, the frame that called our caller.

    A frame must not refer to itself in a variable: the cycle would keep all outer frames, and so
    the user's tensors, alive until the next garbage collection.
    """
    frames: dict[int, types.FrameType | None] = dict(sys._current_frames())
    frames[threading.get_ident()] = sys._getframe(2)
    return frames


def line_clock(
    log: EventLog, sources: Sources, expressions: Expressions | None = None
) -> LineClock:
    """Returns the cheapest line clock for this Python.

    Args:
        expressions: Also logs expressions, if this Python can. None: lines only.
    """
    if hasattr(sys, "monitoring"):
        return MonitoringClock(log, sources, expressions)
    return TraceClock(log, sources)


def event_ns(sources: Sources) -> int:
    """Returns the time of a line event in nanoseconds, without that of the interpreter around it.

    It depends on the machine: 200 to 1,200 were measured.
    """
    rounds = []
    for _ in range(_CALIBRATION_ROUNDS):
        event = line_clock(EventLog(_CALIBRATION_EVENTS), sources).line_event()
        began_ns = perf_counter_ns()
        for _ in range(_CALIBRATION_EVENTS):
            event()
        rounds.append(perf_counter_ns() - began_ns)
    return min(rounds) // _CALIBRATION_EVENTS


class MonitoringClock(LineClock):
    """Uses `sys.monitoring`, since Python 3.12.

    Functions are found with the global start events, which are disabled for each function that is
    not the user's. Lines, returns and expressions are enabled only in user functions, so that
    torch's own Python code runs at full speed.
    """

    def __init__(self, log: EventLog, sources: Sources, expressions: Expressions | None) -> None:
        super().__init__(log, sources)
        self._expressions = expressions
        self._tool: int | None = None
        self._words: dict[int, int] = {}
        # By function: its expressions by the offset of their instruction.
        self._numbers: dict[int, dict[int, int]] = {}
        # By function: how many more expressions until the next look at their rate, and the time of
        # the last look.
        self._looks: dict[int, list[int]] = {}
        self._codes: list[types.CodeType] = []
        self._events: list[int] = []
        self._resume_lines: dict[tuple[int, int], int] = {}

    def start(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        events = monitoring.events
        # 3 and 4 have no owner. The named ones are used if the user's tools have those.
        for tool in (4, 3, monitoring.PROFILER_ID, monitoring.OPTIMIZER_ID):
            if monitoring.get_tool(tool) is None:
                break
        else:
            raise RuntimeError("all sys.monitoring tool IDs are in use")
        monitoring.use_tool_id(tool, "ridgeline")
        self._tool = tool
        on_line, on_expression, on_start, on_resume, on_leave, on_unwind = self._callbacks(
            monitoring
        )
        callbacks = (
            (events.LINE, on_line),
            (events.INSTRUCTION, on_expression),
            (events.PY_START, on_start),
            (events.PY_RESUME, on_resume),
            (events.PY_THROW, on_resume),
            (events.PY_RETURN, on_leave),
            (events.PY_YIELD, on_leave),
            (events.PY_UNWIND, on_unwind),
        )
        self._events = [event for event, _ in callbacks]
        for event, callback in callbacks:
            monitoring.register_callback(tool, event, callback)
        self.log.add(STARTED, 0)
        for thread, frame in _stacks().items():
            for user_frame in self._push_stack(frame, thread):
                self._follow(user_frame.f_code)
        monitoring.set_events(
            tool, events.PY_START | events.PY_RESUME | events.PY_THROW | events.PY_UNWIND
        )
        monitoring.restart_events()

    def stop(self) -> None:
        if self._tool is None:
            return
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        monitoring.set_events(self._tool, 0)
        for code in self._codes:
            monitoring.set_local_events(self._tool, code, 0)
        for event in self._events:
            # Before Python 3.14, the interpreter would keep them.
            monitoring.register_callback(self._tool, event, None)
        monitoring.free_tool_id(self._tool)
        self._tool = None
        self._words.clear()
        self._numbers.clear()
        self._looks.clear()
        self._codes.clear()

    def line_event(self) -> Callable[[], object]:
        code = _stacks.__code__
        self._words[id(code)] = 0
        on_line = self._callbacks(sys.monitoring)[0]  # type: ignore[attr-defined,unused-ignore]
        return lambda: on_line(code, 1)

    def _follow(self, code: types.CodeType) -> int | None:
        """Enables line events for `code` if it is the user's. Returns its word."""
        word = self._words.get(id(code))
        if word is not None:
            return word
        index = self.sources.code(code)
        if index is None or self._tool is None:
            return None
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        events = monitoring.events
        lines = events.LINE | events.PY_RETURN | events.PY_YIELD
        numbers = self._expressions.of(code, index) if self._expressions is not None else {}
        if numbers:
            self._numbers[id(code)] = numbers
            self._looks[id(code)] = [_LOOK_AFTER, time_ns()]
            monitoring.set_local_events(self._tool, code, lines | events.INSTRUCTION)
        else:
            monitoring.set_local_events(self._tool, code, lines)
        self._codes.append(code)
        self._words[id(code)] = index << 32
        return index << 32

    def _look_at_rate(self, code: types.CodeType, look: list[int]) -> None:
        """Stops following the expressions of a function whose expressions are so short and many
        that following them would take a relevant part of their time.
        """
        now = time_ns()
        if now - look[1] >= _LOOK_AFTER * _MIN_NS_PER_EXPRESSION:
            look[:] = [_LOOK_AFTER, now]
            return
        self._numbers[id(code)] = {}
        index = self.sources.code(code)
        if self._expressions is not None and index is not None:
            self._expressions.drop(index)

    def _resume_line(self, code: types.CodeType, offset: int) -> int:
        key = (id(code), offset)
        line = self._resume_lines.get(key)
        if line is None:
            lines: Any = code.co_lines()  # type: ignore[attr-defined,unused-ignore]
            line = next((at for start, end, at in lines if start <= offset < end and at), 0)
            line = self._resume_lines[key] = line or code.co_firstlineno
        return line

    def _callbacks(self, monitoring: Any) -> tuple[Any, ...]:
        # Local names, because these run for every line of the user's program.
        disable = monitoring.DISABLE
        log, words, follow, resume_line = self.log, self._words, self._follow, self._resume_line
        numbers_of, looks, look_at_rate = self._numbers, self._looks, self._look_at_rate
        records, extend, limit = log.words, log.extend, log.limit_words
        threads, get_ident = log.threads, threading.get_ident

        def on_line(code: types.CodeType, line: int) -> object:
            word = words.get(id(code))
            if word is None:
                return disable
            if len(records) < limit:
                extend((time_ns(), word | threads[get_ident()], line))
                return None
            log.dropped += 1
            return disable

        def on_expression(code: types.CodeType, offset: int) -> object:
            # Another thread may stop the clock meanwhile.
            identity = id(code)
            numbers, word, look = numbers_of.get(identity), words.get(identity), looks.get(identity)
            number = None if numbers is None else numbers.get(offset)
            if number is None or word is None or look is None:
                # Only this instruction, and until the clock starts again.
                return disable
            if len(records) < limit:
                extend((time_ns(), EXPRESSION | threads[get_ident()] | word, number))
                look[0] -= 1
                if look[0] <= 0:
                    look_at_rate(code, look)
                return None
            log.dropped += 1
            return disable

        def on_start(code: types.CodeType, offset: int) -> object:
            word = words.get(id(code))
            if word is None:
                word = follow(code)
                if word is None:
                    return disable
            if len(records) < limit:
                extend((time_ns(), PUSH | threads[get_ident()] | word, code.co_firstlineno))
            else:
                log.dropped += 1
            return None

        def on_resume(code: types.CodeType, offset: int, thrown: object = None) -> object:
            word = words.get(id(code))
            if word is None:
                word = follow(code)
                if word is None:
                    # A throw event cannot be disabled for a single function.
                    return None if thrown is not None else disable
            if len(records) < limit:
                line = resume_line(code, offset)
                extend((time_ns(), PUSH | threads[get_ident()] | word, line))
            else:
                log.dropped += 1
            return None

        def on_leave(code: types.CodeType, offset: int, value: object) -> object:
            word = words.get(id(code))
            if word is None:
                return disable
            if len(records) < limit:
                extend((time_ns(), POP | threads[get_ident()] | word, 0))
            else:
                log.dropped += 1
            return None

        def on_unwind(code: types.CodeType, offset: int, error: object) -> object:
            word = words.get(id(code))
            if word is not None:
                if len(records) < limit:
                    extend((time_ns(), POP | threads[get_ident()] | word, 0))
                else:
                    log.dropped += 1
            return None

        return on_line, on_expression, on_start, on_resume, on_leave, on_unwind


class TraceClock(LineClock):
    """Uses `sys.settrace`, before Python 3.12."""

    def __init__(self, log: EventLog, sources: Sources) -> None:
        super().__init__(log, sources)
        self._running = False
        self._words: dict[int, int | None] = {}

    def start(self) -> None:
        on_call, on_event = self._callbacks()
        self._running = True
        here = threading.get_ident()
        self.log.add(STARTED, 0)
        for thread, frame in _stacks().items():
            stack = self._push_stack(frame, thread)
            if thread == here:
                for user_frame in stack:
                    user_frame.f_trace = on_event
        threading.settrace(on_call)
        sys.settrace(on_call)

    def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type,unused-ignore]
        # Search again, because storing a frame would keep the user's tensors alive.
        frame: types.FrameType | None = sys._getframe()
        while frame is not None:
            frame.f_trace = None
            frame = frame.f_back

    def line_event(self) -> Callable[[], object]:
        frame = sys._getframe()
        self._words[id(frame.f_code)] = 0
        self._running = True
        _, on_event = self._callbacks()
        return lambda: on_event(frame, "line", None)

    def _callbacks(self) -> tuple[Any, Any]:
        # Local names, because these run for every line of the user's program.
        clock, log, sources = self, self.log, self.sources
        records, extend, limit = log.words, log.extend, log.limit_words
        threads, get_ident = log.threads, threading.get_ident
        words = self._words

        def on_call(frame: types.FrameType, event: str, arg: object) -> object:
            code = frame.f_code
            try:
                word = words[id(code)]
            except KeyError:
                index = sources.code(code)
                word = words[id(code)] = None if index is None else index << 32
            if word is None or not clock._running:
                return None
            if len(records) < limit:
                extend((time_ns(), PUSH | threads[get_ident()] | word, frame.f_lineno))
            else:
                log.dropped += 1
            return on_event

        def on_event(frame: types.FrameType, event: str, arg: object) -> object:
            if not clock._running:
                return None
            code = frame.f_code
            word = words.get(id(code))
            if word is None:
                index = sources.code(code)
                if index is None:
                    return None
                word = words[id(code)] = index << 32
            if event == "line":
                if len(records) < limit:
                    extend((time_ns(), threads[get_ident()] | word, frame.f_lineno))
                else:
                    log.dropped += 1
            elif event == "return":
                if len(records) < limit:
                    extend((time_ns(), POP | threads[get_ident()] | word, 0))
                else:
                    log.dropped += 1
            return on_event

        return on_call, on_event
