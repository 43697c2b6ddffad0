"""Records programs with nopal, and reads its traces as tables.

    trace = nopal.record(["./program"])
    trace.functions().to_pandas()
    polars.from_arrow(trace.calls(range=("50%", None), function="parse_*"))

The package runs the binary that comes with it, which reads the trace. Tables need pyarrow: `pip install 'nopal[tables]'`."""

from __future__ import annotations

import builtins
import json
import os
import pathlib
import shutil
import subprocess
import sysconfig
import tempfile
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Error", "Incomplete", "Trace", "find_nopal", "open", "record"]

Path = str | os.PathLike[str]
Moment = str | float | None
"""A moment of a trace: seconds since its beginning, or an argument of `--from` and `--until` ("50%", "2.5s", a marker's name)."""
Range = tuple[Moment, Moment]

DAMAGED = 3
"""The exit status of nopal if it could read only a part of a trace."""


class Error(Exception):
    """A failure, in nopal's words."""


class Incomplete(UserWarning):
    """Losses of a trace, and estimates that follow from them, in nopal's words."""


def find_nopal() -> str:
    """The path of the binary that comes with this package, or else of one in PATH."""
    schemes = [sysconfig.get_default_scheme(), f"{os.name}_user"]
    for path in (os.path.join(sysconfig.get_path("scripts", scheme), "nopal") for scheme in schemes):
        if os.path.isfile(path):
            return path
    found = shutil.which("nopal")
    if found is None:
        raise FileNotFoundError("nopal")
    return found


class Trace(NamedTuple):
    """A trace, by its directory."""

    path: pathlib.Path
    status: int | None = None
    """After a recording, the exit status of the program, as in subprocess (a negative number is a signal)."""

    def functions(self, range: Range = (None, None), function: str | None = None) -> pyarrow.Table:
        """A row for each function, as in `nopal report`. The columns are those of `nopal report --json`."""
        return self._report([], range, function)

    def threads(self, range: Range = (None, None)) -> pyarrow.Table:
        """A row for each thread, as in `nopal report --threads`."""
        return self._report(["--threads"], range, None)

    def calls(self, range: Range = (None, None), function: str | None = None) -> pyarrow.Table:
        """A row for each call, as in `nopal export --as parquet`. docs/exports.md describes the columns.

        A function (a glob, as for `-F`) selects its calls, and the calls in them."""
        _need_pyarrow()
        calls, losses, said = self._calls_and_losses(range, function)
        _tell([said, *losses], 3)
        return calls

    def _report(self, options: list[str], range: Range, function: str | None) -> pyarrow.Table:
        _need_pyarrow()
        import pyarrow

        def ask(selection: list[str]) -> tuple[list[Any], str]:
            text, said = _ask(["report", "--json", *options, *selection, "--", str(self.path)])
            return json.loads(text), said

        rows, said = ask(_selection(range, function))
        # The report has the losses in its first row, and may have no row.
        _, losses, _ = self._calls_and_losses(("0%", "0%"), None)
        _tell([said, *losses], 4)
        # A table without rows gets the columns of the whole trace.
        known = rows or ask([])[0]
        # Some rows have members that others lack.
        names = dict.fromkeys(name for row in known for name in row if name != "losses")
        return pyarrow.table({name: [row.get(name) for row in known] for name in names})[: len(rows)]

    def _calls_and_losses(self, range: Range, function: str | None) -> tuple[pyarrow.Table, list[str | None], str]:
        import pyarrow.parquet

        with tempfile.TemporaryDirectory() as directory:
            options = ["--as", "parquet", f"--output={directory}", *_selection(range, function)]
            _, said = _ask(["export", *options, "--", str(self.path)])

            def table(name: str) -> pyarrow.Table:
                [file] = pathlib.Path(directory).glob(f"{name}/**/*.parquet")
                return pyarrow.parquet.ParquetFile(file).read()

            return table("calls"), table("traces")["losses"].to_pylist(), said


def open(path: Path = "nopal.data") -> Trace:
    """Opens an existing trace."""
    trace = Trace(pathlib.Path(path))
    # A directory that is no trace fails here, not at the first table.
    with builtins.open(trace.path / "metadata", "rb"):
        return trace


def record(command: Sequence[Path], path: Path = "nopal.data", options: Sequence[str] = ()) -> Trace:
    """Runs a program as `nopal record` with these options does, and returns its trace.

    The program has the input and output of this one. An older trace at that path is kept as `….old`.

    At KeyboardInterrupt, this function waits until the program ends, and the trace is complete. At a second one, it sends
    SIGTERM to the program."""
    place = pathlib.Path(path)
    before = _identity(place)
    words = [find_nopal(), "record", f"--output={place}", *options, "--", *(os.fspath(word) for word in command)]
    status = _wait(subprocess.Popen(words))
    if _identity(place) in (None, before):
        raise Error(f"nothing was recorded: nopal ended with status {status}")
    return Trace(place, status)


def _wait(nopal: subprocess.Popen[bytes]) -> int:
    interrupt = None
    while nopal.returncode is None:
        try:
            nopal.wait()
        except KeyboardInterrupt as another:
            # Ctrl-C and Jupyter send SIGINT to the process group, and so to the program. If only this process got it, the
            # program knows nothing of it, since nopal passes on SIGTERM but not SIGINT.
            if interrupt is not None:
                nopal.terminate()
            interrupt = another
    if interrupt is not None:
        raise interrupt
    return nopal.returncode


def _identity(path: pathlib.Path) -> tuple[int, int] | None:
    try:
        found = (path / "metadata").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _selection(range: Range, function: str | None) -> list[str]:
    words = []
    for name, moment in zip(("--from", "--until"), range):
        if moment is not None:
            words.append(f"{name}={moment if isinstance(moment, str) else _time(moment)}")
    if function is not None:
        words.append(f"--filter={function}")
    return words


def _time(seconds: float) -> str:
    # nopal accepts no time of 0.
    return f"{round(seconds * 1e9)}ns" if seconds else "0%"


def _ask(words: list[str]) -> tuple[str, str]:
    words = [find_nopal(), *words]
    found = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8")
    said = found.stderr.strip()
    if found.returncode not in (0, DAMAGED):
        raise Error(said or f"nopal ended with status {found.returncode}")
    return found.stdout, said


def _tell(said: list[str | None], level: int) -> None:
    for text in filter(None, said):
        warnings.warn(text, Incomplete, stacklevel=level)


def _need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError("tables need pyarrow: pip install 'nopal[tables]'") from error
