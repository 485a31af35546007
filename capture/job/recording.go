package job

import (
	"sync"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
)

// recording is where a process's messages go: to the viewers, and to a file if it is recorded.
type recording struct {
	relay *pytorch.Relay

	mu       sync.Mutex
	recorder *capture.Recorder // nil if it is not recorded
	unsaved  error             // why it is not recorded although it should be
}

// begin writes the process to a file from now on.
func (r *recording) begin(o capture.RecordOptions, t capture.Info) error {
	recorder, err := capture.NewRecorder(o)
	if err == nil && t.PID != 0 {
		recorder.Begin(t)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unsaved = err; err == nil {
		r.recorder = recorder
	}
	return err
}

// fails says why the process is not recorded.
func (r *recording) fails(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsaved = err
}

// Files returns the files that the process is recorded to. The error says why it is not recorded although it
// should be.
func (r *recording) Files() ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorder == nil {
		return nil, r.unsaved
	}
	return r.recorder.Files(), nil
}

// Recorded reports whether the process is written to a file.
func (r *recording) Recorded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recorder != nil
}

// Triggered reports whether a trigger of the recording has fired so far.
func (r *recording) Triggered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recorder != nil && r.recorder.Triggered()
}

// sink returns the sink that messages of the process go to.
func (r *recording) sink() capture.Sink {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorder == nil {
		return r.relay
	}
	return capture.Tee(r.relay, r.recorder)
}

func (r *recording) precede(list []capture.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorder != nil {
		r.recorder.Precede(list)
	}
}

// close tells other viewers how the process ended, hangs up on them, and ends the recording.
func (r *recording) close() error {
	r.relay.Close()
	r.mu.Lock()
	recorder := r.recorder
	r.mu.Unlock()
	if recorder == nil {
		return nil
	}
	return recorder.Close()
}
