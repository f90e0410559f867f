"""A thread that works until it is closed, and whose failure the caller sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import Event, Thread


class Worker(ABC):
    """Derive from it, and define :meth:`work`."""

    def __init__(self, name: str) -> None:
        self.closing = Event()
        self._failure: Exception | None = None
        self._thread = Thread(target=self.run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @abstractmethod
    def work(self) -> None:
        """Do the work, and return once :attr:`closing` is set."""

    def run(self) -> None:
        """Work in the thread."""
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 raised again by raise_failure
            self._failure = error

    def raise_failure(self) -> bool:
        """Raise the error that ended the thread; return False if none did."""
        if self._failure is not None:
            raise self._failure
        return False

    def end(self) -> None:
        """Close, and raise what ended it before: what comes of half the time must not pass for all of it."""
        self.close()
        self.raise_failure()

    def close(self) -> None:
        """End; waits for the thread."""
        self.closing.set()
        if self._thread.ident is not None:
            self._thread.join()
