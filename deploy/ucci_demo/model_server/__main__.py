"""``python -m ucci_demo.model_server``: serve one checkpoint.

Example: python -m ucci_demo.model_server --model small --served-model-name photo-small --port 8001
"""

from __future__ import annotations

import argparse
import os
import sys

# One core a server: BLAS threads of matrices this small only wait for each other. Set before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m ucci_demo.model_server", description=__doc__)
    parser.add_argument("--model", required=True, help="small, large or the folder of a checkpoint")
    parser.add_argument("--served-model-name", help="the name that requests give; by default that of --model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--no-memo", action="store_true", help="compute every answer, also the recorded ones")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="added to every answer")
    options = parser.parse_args()

    from aiohttp import web

    from ucci_demo.model_server.checkpoint import Checkpoint
    from ucci_demo.model_server.memo import Memo
    from ucci_demo.model_server.server import SLOTS, ModelServer

    try:
        checkpoint = Checkpoint.open(options.model, SLOTS)
    except ValueError as error:
        sys.stderr.write(f"--model: {error}\n")
        return 2
    memo = None if options.no_memo else Memo.of(options.model)
    name = options.served_model_name or options.model
    server = ModelServer(checkpoint, name, memo, options.latency_ms / 1000.0)

    def say_ready(_line: str) -> None:
        print(f"serving {name} on http://{options.host}:{options.port}", flush=True)  # noqa: T201 for who starts it

    web.run_app(
        server.application(),
        host=options.host,
        port=options.port,
        print=say_ready,
        access_log=None,
        # A client that leaves ends its generation.
        handler_cancellation=True,
        keepalive_timeout=5.0,
        shutdown_timeout=5.0,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
