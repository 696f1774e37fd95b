"""Ctrl-C, SIGTERM and SIGUSR1: a loop ends after the step it is at, everything else at once."""

import signal
import threading
from contextlib import contextmanager

# mpirun answers the first two by killing its processes a moment later, and passes the third on.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Interrupted(KeyboardInterrupt):
    """The process was asked to end. number: of the signal."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Request:
    """Whether the process was asked to end while a block ran. number: of the signal, or None."""

    def __init__(self):
        self.number = None


@contextmanager
def interruptible():
    """In this block the signals raise Interrupted at once."""

    def end(number, frame):
        raise Interrupted(number)

    with _handled_by(end):
        yield


@contextmanager
def postponed(say):
    """In this block the first signal is only noted in the Request that it yields, and say is called with a line for
    people; a second one raises Interrupted."""
    request = Request()

    def note(number, frame):
        if request.number is not None:
            raise Interrupted(number)
        request.number = number
        say("ends after this step, with a checkpoint; once more: at once")

    with _handled_by(note):
        yield request


@contextmanager
def _handled_by(handler):
    if threading.current_thread() is not threading.main_thread():  # Python handles signals in no other
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
