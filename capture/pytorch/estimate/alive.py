"""A thread that ends a process once the gmemtop that estimates it is gone, and until then says where it is.

gmemtop holds a lock on a file as long as it lives, which its kernel lets go however it ends. A launcher's
children are not gmemtop's own, so each process looks for itself.
"""

import fcntl
import json
import os
import shutil
import threading

LOOK_EVERY = 1.0  # seconds


def stay_with_gmemtop(run, launches):
    """Begin to look. A launcher says nothing of where it is."""
    try:
        lock = os.open(os.path.join(run.folder, "alive"), os.O_RDONLY)
    except OSError:
        return  # what started this process holds no lock
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
                pass  # the estimate has come to its end
        wait.wait(LOOK_EVERY)
