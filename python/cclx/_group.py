"""Groups: calls that are made together, and what they use until then."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ._library import call

if TYPE_CHECKING:
    from .stream import Stream


class _Open(threading.local):
    """What the calls of this thread's open groups use, which are made at the outermost end."""

    def __init__(self) -> None:
        self.depth = 0
        self.kept: list[Any] = []
        self.on_streams: list[tuple[Stream, tuple[Any, ...]]] = []

    def let_go(self) -> None:
        """The calls have been made. Those on streams run from now on."""
        self.kept.clear()
        on_streams, self.on_streams = self.on_streams, []
        with contextlib.ExitStack() as all_of_them:
            for stream, things in on_streams:
                all_of_them.callback(stream.redeem, things)


_open = _Open()


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Calls within are checked at once and made together when the outermost group ends. If the block raises, the group ends
    too, and the calls before are made, for other ranks wait for them: unless the library refused one of the group's calls.
    Then it makes none of them. The block's own error is the one that is seen; if the group's end failed as well, that is
    among the errors before it (``__context__``)."""
    call("onecclGroupStart")
    _open.depth += 1
    with _ending_with(_end_group):
        yield


def _end_group() -> None:
    # Whose error is of a stream that was closed in the group; what became of the calls comes first.
    with _ending_with(_end_one):
        call("onecclGroupEnd")


@contextlib.contextmanager
def _ending_with(end: Callable[[], None]) -> Iterator[None]:
    """Ends whatever becomes of the block, whose own error is the one that is seen."""
    try:
        yield
    except BaseException as error:
        try:
            end()
        except Exception as of_end:
            _put_before(error, of_end)
        raise
    end()


def _end_one() -> None:
    _open.depth -= 1
    if _open.depth == 0:
        _open.let_go()


def _put_before(error: BaseException, earlier: BaseException) -> None:
    """Makes an error the first of those in whose handling another was raised."""
    # As the interpreter has set it: the error that it is raised in the handling of.
    last = earlier
    while last.__context__ is not None and last.__context__ is not error:
        last = last.__context__
    last.__context__ = None
    while error.__context__ is not None:
        error = error.__context__
    error.__context__ = earlier


def is_open() -> bool:
    """Whether this thread has a group open."""
    return _open.depth > 0


def issue(name: str, *arguments: Any, keep: tuple[Any, ...]) -> None:
    """Makes a call, which uses ``keep`` until it returns, within a group until that has ended."""
    if _open.depth:
        _open.kept.append(keep)
    call(name, *arguments)


def issue_on(stream: Stream, name: str, *arguments: Any, keep: tuple[Any, ...]) -> None:
    """The same on a stream, on which the call uses ``keep`` until it has run."""
    if _open.depth:
        # Before the call, which may be in the group though it fails.
        _open.on_streams.append((stream, keep))
        stream.promise(keep)
        call(name, *arguments)
        return
    try:
        call(name, *arguments)
    finally:
        # Though it fails it may be on the stream. Not before the call: another thread's wait, which doesn't wait for it, would
        # let go.
        stream.keep(*keep)
