"""Runs `ridgeline` in a terminal and answers its question which script to profile."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 300
ROWS, COLUMNS = 60, 200
QUESTION = re.compile(r"Which one should be profiled\? \[1-\d+(, Enter for 1)?\] $")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command whose input and messages are a terminal; its output is kept apart."""

    def __init__(self, line: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._line, self._folder, self._environment = line, folder, environment
        self.was_asked = False

    def run(self, answer: Callable[[list[str]], int]) -> tuple[int, str, str]:
        """Returns the exit code, the output and the messages. `answer` chooses among scripts."""
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self._line,
                cwd=self._folder,
                env=self._environment,
                stdin=theirs,
                stdout=output,
                stderr=theirs,
                start_new_session=True,
            )
            os.close(theirs)
            messages, is_late = self._messages(process, ours, answer)
            os.close(ours)
            if is_late:
                process.kill()
                messages += f"\ndid not end in {LIMIT_S} s"
            code = process.wait()
            output.seek(0)
            printed = output.read().decode(errors="replace")
        return (-1 if is_late else code), printed, messages

    def _messages(
        self, process: subprocess.Popen[bytes], ours: int, answer: Callable[[list[str]], int]
    ) -> tuple[str, bool]:
        """Reads until the command ends or takes too long."""
        read = b""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.5)[0]:
                if process.poll() is not None:
                    return shown(read), False
                continue
            try:
                chunk = os.read(ours, 65536)
            except OSError:
                # Linux reports the end of a terminal as an error.
                chunk = b""
            if not chunk:
                return shown(read), False
            read += chunk
            if not self.was_asked and QUESTION.search(shown(read)):
                self.was_asked = True
                os.write(ours, f"{answer(listed(shown(read)))}\n".encode())
        return shown(read), True


def shown(read: bytes) -> str:
    """The text that remains in the terminal: progress is erased by a carriage return."""
    text = ESCAPES.sub("", read.decode(errors="replace"))
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.split("\r")[-1] for line in lines)


def listed(text: str) -> list[str]:
    """The scripts of the question, in its order."""
    numbered = (re.match(r" *\d+  (.*)", line) for line in text.splitlines())
    return [found[1].strip() for found in numbered if found]
