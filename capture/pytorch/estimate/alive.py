"""A thread that ends the process once the gmemtop that estimates it is gone, and reports progress until then.

gmemtop holds a lock on a file while it lives; the kernel releases it however gmemtop ends. A launcher's
children are not gmemtop's children, so each process checks for itself.
"""

import fcntl
import json
import os
import shutil
import threading

from .training import end_children

LOOK_EVERY = 1.0  # seconds


def stay_with_gmemtop(run, launches):
    """Start the thread. A launcher reports no progress."""
    try:
        lock = os.open(os.path.join(run.folder, "alive"), os.O_RDONLY)
    except OSError:
        return  # whatever started this process holds no lock
    tidy, replace = shutil.rmtree, os.replace
    threading.Thread(target=_look, args=(run, lock, tidy, None if launches else replace), daemon=True).start()


def _look(run, lock, tidy, replace):
    said, wait = None, threading.Event()
    while run.pid == os.getpid():
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            pass
        else:
            tidy(run.folder, ignore_errors=True)
            end_children()
            os._exit(1)
        now = run.where() if replace is not None else None
        if now != said:
            said = now
            path = os.path.join(run.folder, "%d.at" % run.pid)
            try:
                with run.open(path + ".part", "w") as f:
                    json.dump(now, f)
                replace(path + ".part", path)
            except OSError:
                pass  # the estimate has ended
        wait.wait(LOOK_EVERY)
