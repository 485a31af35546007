package inject

import "time"

// Mechanism is a way of making a process run Python source.
type Mechanism string

// The mechanisms, in the order in which they are tried.
const (
	Ptrace Mechanism = "ptrace"  // one stop of the main thread, the source in mapped memory (linux/amd64)
	PEP768 Mechanism = "pep-768" // CPython's own protocol, 3.14 and later, the source in a file of the target
	GDB    Mechanism = "gdb"     // the debugger, driven in batch mode
)

var mechanisms = []Mechanism{Ptrace, PEP768, GDB}

// Stage is how far an injection has come.
type Stage string

// The stages of an injection, in order.
const (
	// in the queue; the main thread is in a long call outside Python, or asleep
	Queued  Stage = "waiting for the interpreter"
	Running Stage = "running" // the source is being run
)

// Stop is one halt of the target.
type Stop struct {
	For string // what it was for
	// from when the main thread was last seen running until it was released: an upper bound
	Took time.Duration
	// Starved is the part of Took in which the main thread, or the one that halted it, could have run and had
	// no processor, by the kernel's own count. On a busy machine a thread waits like that whether it is
	// halted or not. 0 if unknown.
	Starved time.Duration
}

// Report says what an injection did. After an error it is filled as far as the injection went.
type Report struct {
	PID       int
	Python    string // version, as exactly as known: "3.11.7" or "3.9"
	Mechanism Mechanism
	Stops     []Stop
	Mapped    int64         // bytes of memory mapped into the target for the time being
	Waited    time.Duration // from the queueing until the interpreter began
	Ran       time.Duration // from then until the source had run; polled, so accurate to some milliseconds
	Passed    []*Error      // mechanisms that were passed over, and why
	Left      int64         // bytes that had to stay mapped, since the interpreter may still read them
}

// Stopped returns how long the target was halted in all: an upper bound.
func (r Report) Stopped() time.Duration {
	var sum time.Duration
	for _, s := range r.Stops {
		sum += s.Took
	}
	return sum
}

// Starved returns how much of Stopped was spent waiting for a processor.
func (r Report) Starved() time.Duration {
	var sum time.Duration
	for _, s := range r.Stops {
		sum += s.Starved
	}
	return sum
}
