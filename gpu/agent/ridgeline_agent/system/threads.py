"""The threads of this process."""

from __future__ import annotations

import threading


def is_of_autograd() -> bool:
    """Whether this thread is one of autograd's: Python did not start it."""
    return threading.get_ident() not in {
        thread.ident
        for thread in threading.enumerate()
        if not isinstance(thread, threading._DummyThread)
    }
