package inject

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// halts is held for reading while a process is halted.
var halts sync.RWMutex

// Quiesce waits until no process is halted, and prevents halts from then on. Call it before this program
// ends: the kernel releases a halted process wherever it is, possibly inside a call made on our behalf.
func Quiesce() { halts.Lock() }

// undisturbed calls halt while neither Quiesce nor a signal ends this program. SIGHUP from a closed terminal
// and SIGQUIT take effect afterwards. SIGINT and SIGTERM are the caller's to handle, as package main does;
// nothing can be done about SIGKILL.
func undisturbed(halt func()) {
	halts.RLock()
	defer halts.RUnlock()
	var deadly []os.Signal
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			deadly = append(deadly, s)
		}
	}
	if len(deadly) == 0 {
		halt()
		return
	}
	came := make(chan os.Signal, len(deadly))
	signal.Notify(came, deadly...)
	halt()
	signal.Stop(came)
	select {
	case s := <-came:
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Signal(s)
		}
	default:
	}
}
