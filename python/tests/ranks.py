"""Ranks as processes of their own, started as vLLM starts its workers."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from typing import Any, Callable


def _run(body: Callable[..., Any], rank: int, size: int, results: Any, arguments: tuple[Any, ...]) -> None:
    try:
        results.put((rank, None, body(rank, size, *arguments)))
    except BaseException:
        results.put((rank, traceback.format_exc(), None))
        raise SystemExit(1) from None


def run(body: Callable[..., Any], size: int, *arguments: Any, limit: float = 120.0) -> list[Any]:
    """Calls ``body(rank, size, *arguments)`` in ``size`` processes; what each returned, or the first failure."""
    spawn = multiprocessing.get_context("spawn")
    if "TEST_PYTHON" in os.environ:
        # An interpreter on another C library, which the children need too.
        spawn.set_executable(os.environ["TEST_PYTHON"])
    results = spawn.Queue()
    processes = [spawn.Process(target=_run, args=(body, rank, size, results, arguments)) for rank in range(size)]
    until = time.monotonic() + limit
    told: dict[int, tuple[str | None, Any]] = {}
    try:
        for process in processes:
            process.start()
        while len(told) < size:
            # A process that was killed tells nothing.
            dead = [rank for rank, process in enumerate(processes) if process.exitcode is not None and rank not in told]
            try:
                rank, failure, result = results.get(timeout=0.2)
            except Exception:
                if dead:
                    codes = {rank: processes[rank].exitcode for rank in dead}
                    raise AssertionError(f"ranks ended without a word: {codes}; the others told {told}") from None
                if time.monotonic() > until:
                    raise AssertionError(f"ranks still run after {limit} s; told so far: {told}") from None
                continue
            told[rank] = (failure, result)
        for rank, process in enumerate(processes):
            process.join(max(1.0, until - time.monotonic()))
            failure = told[rank][0]
            assert failure is None, f"rank {rank}: {failure}"
            assert process.exitcode == 0, f"rank {rank} ended with {process.exitcode}"
    finally:
        for process in processes:
            if process.pid is not None and process.exitcode is None:
                process.kill()
                process.join()
    return [told[rank][1] for rank in range(size)]
