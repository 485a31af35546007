"""Records the process that this runs in.

The program `gmemtop record` writes the recording in a separate process. It passes the source of its agent
through a pipe, and this process runs it. Unlike `gmemtop attach`, this needs no permission to trace a
process, which containers often refuse.
"""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Sequence

from ._program import Missing, find_program

if TYPE_CHECKING:
    from types import TracebackType

# How long to wait, in seconds: for the agent's source, for its hooks, and for a recording to be complete.
# They bound what a stuck recorder can cost the script.
HANDOVER, HOOKS, COMPLETE = 30.0, 15.0, 30.0
# How long a report may take, in seconds.
REPORT = 300.0


class GmemtopWarning(UserWarning):
    """gmemtop could not do what was asked. The script goes on as if gmemtop were not there."""


_warned: set[str] = set()


def warn(text: str) -> None:
    """Warn, once for each text, and never raise: not even under -W error."""
    if text in _warned:
        return
    _warned.add(text)
    try:
        warnings.warn("gmemtop: " + text, GmemtopWarning, stacklevel=3)
    except Warning:
        sys.stderr.write("gmemtop: %s\n" % text)


class Watch:
    """A recording of this process. As a context manager it ends with its block; otherwise with stop(), or
    with the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owner = os.getpid()
        self._recorder: subprocess.Popen[bytes] | None = None
        self._messages: IO[bytes] | None = None

    @property
    def recording(self) -> bool:
        """Whether steps are being recorded."""
        return self._recorder is not None and self._recorder.poll() is None

    def stop(self) -> Path | None:
        """End the recording and return its path; None if nothing was recorded. A warning says why."""
        try:
            self._stop()
        except Exception as e:
            warn("the recording did not end in good order: %s" % e)
        return self.path if self.path.exists() else None

    def report(self, path: str | os.PathLike[str] | None = None, format: str = "html") -> Path | None:
        """End the recording and write a report: html, svg, png, markdown or another of the formats of
        `gmemtop export`. None if there is nothing to report. It goes beside the recording by default."""
        recording = self.stop()
        if recording is None:
            return None
        extension = {"markdown": "md", "perfetto": "json", "snapshot": "pickle"}.get(format, format)
        out = Path(path) if path is not None else recording.with_name(recording.stem + "." + extension)
        done = _run(["export", str(recording), "--format", format, "--force", "--quiet", "-o", str(out)])
        return out if done is not None and out.exists() else None

    def stats(self) -> dict[str, Any]:
        """End the recording and return its figures, as `gmemtop stats --json` prints them; {} if there are
        none."""
        import json

        recording = self.stop()
        done = _run(["stats", "--json", str(recording)]) if recording is not None else None
        try:
            figures = json.loads(done) if done is not None else {}
        except ValueError as e:
            warn("the figures of %s cannot be read: %s" % (recording, e))
            return {}
        return figures if isinstance(figures, dict) else {}

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __getstate__(self) -> dict[str, Any]:
        """A copy, for example in a process that a framework starts, records nothing."""
        return {"path": self.path, "_owner": 0, "_recorder": None, "_messages": None}

    def _start(self, command: list[str]) -> None:
        self._messages = tempfile.TemporaryFile()
        self._recorder = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            start_new_session=True,  # Ctrl-C is for the script, which tells the recorder when to end
        )
        atexit.register(self.stop)
        pipe = self._recorder.stdout
        assert pipe is not None
        with pipe:
            source = _handed_over(pipe.fileno(), time.monotonic() + HANDOVER)
        if source is None:
            raise RuntimeError("the recorder did not start: %s" % (self._said() or "it did not answer"))
        hooks = _hooks()
        before = len(hooks or ())
        if not source:
            return  # there is an agent already: somebody else is watching this process
        exec(compile(source, "<gmemtop>", "exec", 0, True), {"__name__": "gmemtop_agent"})
        late = time.monotonic() + HOOKS
        while hooks is not None and len(hooks) == before and self.recording and time.monotonic() < late:
            time.sleep(0.001)  # the agent's own thread sets them: steps before that would not be recorded

    def _stop(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None or os.getpid() != self._owner:
            return
        atexit.unregister(self.stop)
        if not _ended(recorder, COMPLETE):
            warn(
                "the recorder did not end within %.0f seconds; %s holds what it had written"
                % (COMPLETE, self.path)
            )
            return
        said = self._said()
        if recorder.returncode != 0 or not self.path.exists():
            warn(said or "nothing was recorded")

    def _give_up(self) -> None:
        """End a recorder that has not recorded anything. It removes its file."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        atexit.unregister(self.stop)
        _ended(recorder, HOOKS)

    def _said(self) -> str:
        """The recorder's last message, without its name."""
        if self._messages is None:
            return ""
        if self._recorder is not None:
            try:
                self._recorder.wait(1)
            except subprocess.TimeoutExpired:
                pass
        self._messages.seek(0)
        lines = self._messages.read().decode("utf-8", "replace").strip().splitlines()
        text = lines[-1] if lines else ""
        return text[len("gmemtop: ") :] if text.startswith("gmemtop: ") else text


def watch(
    output: str | os.PathLike[str] | None = None,
    *,
    every: int | None = None,
    depth: str | None = None,
    trigger: str | Sequence[str] = (),
    force: bool = False,
) -> Watch:
    """Record this process's training from now on.

    output is the file to write, gmemtop-DATE-TIME.gmt by default; a rank of a distributed training adds its
    number. One step in `every` (100) is captured whole, op by op. depth and trigger are those of
    `gmemtop record --help`. An existing file is only overwritten with force.

    Import torch first. If something goes wrong, you get a warning, and nothing is recorded."""
    out = Watch(_path(output))
    try:
        if not sys.platform.startswith("linux"):
            raise RuntimeError("a running training can be recorded on Linux only")
        if "torch" not in sys.modules:
            raise RuntimeError("import torch before gmemtop.watch()")
        if out.path.exists() and not force:
            raise RuntimeError("%s exists: name another file, or use force=True" % out.path)
        command = [find_program(), "record", "--invited", "-o", str(out.path)]
        command += ["--every", str(every)] if every is not None else []
        command += ["--depth", depth] if depth is not None else []
        for event in [trigger] if isinstance(trigger, str) else trigger:
            command += ["--trigger", event]
        command += ["--force"] if force else []
        out._start([*command, str(os.getpid())])
    except Exception as e:
        warn("nothing is recorded: %s" % e)
        out._give_up()
    return out


def _ended(recorder: subprocess.Popen[bytes], patience: float) -> bool:
    """Interrupt a recorder; if it does not end within patience seconds, kill it and return False."""
    try:
        if recorder.poll() is None:
            recorder.send_signal(signal.SIGINT)
        recorder.wait(patience)
    except subprocess.TimeoutExpired:
        recorder.kill()
        recorder.wait()
        return False
    return True


def _path(output: str | os.PathLike[str] | None) -> Path:
    path = Path(output) if output is not None else Path(time.strftime("gmemtop-%Y%m%d-%H%M%S.gmt"))
    rank = os.environ.get("RANK", "")
    if rank.isdigit() and rank != "0":
        path = path.with_name("%s-rank%s%s" % (path.stem, rank, path.suffix))
    return Path(os.path.abspath(path))  # the script may change its working folder later


def _handed_over(fd: int, late: float) -> str | None:
    """The source that the recorder writes, after a line with its length; None if it ends early or is late."""
    got, size = b"", -1
    with selectors.DefaultSelector() as ready:
        ready.register(fd, selectors.EVENT_READ)
        while size < 0 or len(got) < size:
            if not ready.select(max(late - time.monotonic(), 0)):
                return None
            piece = os.read(fd, 1 << 20)
            if not piece:
                return None
            got += piece
            if size < 0 and b"\n" in got:
                line, _, got = got.partition(b"\n")
                size = int(line)
    return got[:size].decode()


def _hooks() -> dict[Any, Any] | None:
    """The hooks that all optimizers of torch call before a step, None if unknown. Once one of these is the
    agent's, it sees every step."""
    return getattr(sys.modules.get("torch.optim.optimizer"), "_global_optimizer_pre_hooks", None)


def _run(arguments: list[str]) -> bytes | None:
    """The output of the program, None if it fails: a warning says why."""
    try:
        done = subprocess.run(
            [find_program(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=REPORT
        )
    except (OSError, Missing, subprocess.TimeoutExpired) as e:
        warn("gmemtop %s failed: %s" % (arguments[0], e))
        return None
    if done.returncode != 0:
        warn("gmemtop %s failed: %s" % (arguments[0], done.stderr.decode("utf-8", "replace").strip()))
        return None
    return done.stdout
