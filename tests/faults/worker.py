"""A thread that works until it is closed; what ends it before is raised in whoever asks."""

from __future__ import annotations

from threading import Event, Thread


class Worker:
    """To be derived from: ``work`` is to end once :attr:`closing` is set."""

    def __init__(self, name: str) -> None:
        self.closing = Event()
        self._failure: Exception | None = None
        self._thread = Thread(target=self.run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def work(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        """Work in the thread."""
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 raised again in whoever waits
            self._failure = error

    def raise_failure(self) -> bool:
        """Raise what has ended the thread; False where nothing has."""
        if self._failure is not None:
            raise self._failure
        return False

    def close(self) -> None:
        """End; waits for the thread."""
        self.closing.set()
        if self._thread.ident is not None:
            self._thread.join()
