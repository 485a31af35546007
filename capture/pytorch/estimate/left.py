"""What a script makes while it is estimated: files and folders that were not there before.

They would pass for those of a training: a checkpoint without weights that the next run resumes from, curves
of made-up losses, a folder that is refused because it is not empty. Each is noted in a file, and gmemtop
removes them once the command has ended (left.go). Caches stay, since they spare the training work.

Rejected: leading what is written to another folder. Libraries also write from their own code, which would not
find it there.
"""

import json
import os

CACHES = ("XDG_CACHE_HOME", "HF_HOME", "HF_DATASETS_CACHE", "TORCH_HOME", "TRITON_CACHE_DIR", "MPLCONFIGDIR")


class Left:
    """What this process and its children made."""

    def __init__(self, run, opening):
        self.folder, self.open = run.folder, opening
        caches = [os.path.expanduser("~/.cache"), run.folder] + [os.environ.get(name) for name in CACHES]
        self.caches = tuple(os.path.join(os.path.abspath(path), "") for path in caches if path)

    def file(self, path, opened):
        """A file was made, and is open, under a number or as an object."""
        try:
            found = os.fstat(opened if isinstance(opened, int) else opened.fileno())
            self._note("file", path, found.st_dev, found.st_ino)
        except (OSError, ValueError):
            pass  # it is no file of the system

    def made_file(self, make):
        """os.open, noting what it makes. tempfile uses it."""

        def opening(path, flags, *args, **kwargs):
            new = flags & os.O_CREAT and kwargs.get("dir_fd") is None and not os.path.exists(path)
            number = make(path, flags, *args, **kwargs)
            if new:
                self.file(path, number)
            return number

        return opening

    def made_folder(self, make, gone):
        """os.mkdir, noting what it makes. For the script, folders that are gone are not there."""

        def mkdir(path, *args, **kwargs):
            if gone and isinstance(path, (str, bytes, os.PathLike)):
                if os.path.abspath(os.fsdecode(path)) in gone and os.path.isdir(path):
                    return
            make(path, *args, **kwargs)
            if isinstance(path, (str, bytes, os.PathLike)) and kwargs.get("dir_fd") is None:
                self._note("folder", path)

        return mkdir

    def moved(self, path, to):
        """A file or a folder has another name now."""
        if isinstance(path, (str, bytes, os.PathLike)) and isinstance(to, (str, bytes, os.PathLike)):
            self._note("moved", path, os.path.abspath(os.fsdecode(to)))

    def _note(self, what, path, *more):
        path = os.path.abspath(os.fsdecode(path))
        if path.startswith(self.caches):
            return
        try:
            with self.open(os.path.join(self.folder, "%d.left" % os.getpid()), "a") as f:
                f.write(json.dumps([what, path, *more]) + "\n")
        except OSError:
            pass  # the estimate has ended
