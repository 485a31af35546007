package inject

import "context"

// Residue is memory that had to be left mapped in a target, since its interpreter may still read it. Nothing
// runs in it.
type Residue struct {
	PID     int
	Address uint64
	Bytes   int64
	// remove waits until the interpreter has reached the queue or ctx is done, and unmaps the memory. It
	// returns nil if the process has ended.
	remove func(context.Context) error
}
