"""The command ``stream-router``, also as ``python -m stream_router``: ready for a signal before anything is loaded."""

from ucci_runtime.signals import end_while_nothing_runs


def main() -> None:
    """Run the command and end the process with its exit code."""
    end_while_nothing_runs()
    from stream_router.cli import main as command

    command()


if __name__ == "__main__":
    main()
