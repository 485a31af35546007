# Runs in the target, on its main thread, between two bytecodes of the program. Its globals: source, filename,
# name, report. It must not raise, print or leave anything behind: it only imports modules that every
# interpreter has already loaded.
#
# A signal handler of the program may run while we are in here, and raise. That exception belongs to the
# program, not to the source or to us: we raise it again from a signal handler once the main thread is back in
# the program. A signal sent now would take effect at the very next bytecode, which is still in here. So a
# thread waits some milliseconds until the main one has left, and then sends it.
try:
    try:
        exec(compile(source, filename, "exec", 0, True), {"__name__": name, "__file__": filename})
        outcome = "ok"
    except BaseException as e:
        import _signal
        import _thread
        import sys as _sys

        outcome = "%s: %s" % (type(e).__name__, e)
        theirs = isinstance(e, KeyboardInterrupt)
        where = e.__traceback__
        while where is not None:
            if where.tb_frame.f_code.co_filename == filename:
                outcome = "%s: %s (line %d)" % (type(e).__name__, e, where.tb_lineno)
            for n in _signal.valid_signals():
                h = _signal.getsignal(n)
                if getattr(getattr(h, "__func__", h), "__code__", None) is where.tb_frame.f_code:
                    theirs = True
            where = where.tb_next
        if theirs and _signal.getsignal(2) is not None:
            outcome = "interrupted by " + outcome

            def again(signum, frame, e=e.with_traceback(None), old=_signal.getsignal(2),
                      restore=_signal.signal):
                restore(2, old)
                raise e

            def later(main=_thread.get_ident(), here=_sys._getframe().f_code.co_filename, t=_thread,
                      frames=_sys._current_frames):
                busy = True
                while busy:
                    nap = t.allocate_lock()
                    nap.acquire()
                    nap.acquire(True, 0.001)
                    f, busy = frames().get(main), False
                    while f is not None:
                        busy = busy or f.f_code.co_filename == here
                        f = f.f_back
                t.interrupt_main()

            _signal.signal(2, again)
            _thread.start_new_thread(later, ())
            del again, later
        del where
except BaseException as e:
    outcome = "%s in the bootstrap" % type(e).__name__
report(outcome.encode("utf-8", "replace"))
