// Package say is the catalogue of sentences that gmemtop shows people about a job that it watches. The
// screen, printed output and recordings share them. Programs decide by the types of package capture.
//
// The agent sends a code and values, which [Told] turns into a sentence. The sentences about the phases of a
// trial are in replay/live, next to the phases.
package say

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/capture"
)

// Sentence is an entry of the catalogue. The comment on each says what fills its gaps.
type Sentence int

// The sentences.
const (
	// What a job waits for.
	WaitsForTorch       Sentence = iota
	WaitsForAgent                // the process
	WaitsForInterpreter          // once the agent is queued

	// How the agent got in, and which viewer has it.
	Attached         // the mechanism, how long the job stood still
	AttachedLate     // the same, how much of it was a wait for a processor
	Reached          // the process, its command
	OutOfReach       // the same: another user's, or in a container
	NotReached       // the process, its command, the error
	Beside           // the viewer that has the agent
	BesideOther      // the same, the process that it shows, the one that was asked for
	TookOver         // the viewer that had the agent
	AgentGone        // why
	ConnectionFailed // the error

	// Output and recordings.
	OutputUnread      // the error
	DiskFull          // the folder
	DiskGivenUp       // the file
	RecordingNotBegun // the error
	RecordingStopped  // the error
	Triggered         // the trigger, why, the step

	// What a viewer tells another one that it serves.
	OrderNotPassed // the error
	GoesOnWatching // this process
	LetGo          // this process
	NotRead        // why steps or windows are missing

	// The end of a process that gave no reason; see End.
	Vanished

	sentences // the number of sentences
)

// catalogue has each sentence and the key of its notice, "" if it is not a notice.
var catalogue = [sentences]struct{ key, text string }{
	WaitsForTorch: {KeyState, "for the command to load torch"},
	WaitsForAgent: {KeyState, "for process %d to load the agent"},
	WaitsForInterpreter: {KeyState, "for the interpreter: its main thread is in a long call outside " +
		"Python, or asleep"},

	Attached: {"attached", "attached by %s; the job stood still for %s"},
	AttachedLate: {"attached", "attached by %s; the job stood still for %s, and for %s of that it " +
		"waited for a processor: this machine is overloaded"},
	Reached: {"reach", "process %d (%s) did not get gmemtop's environment: gmemtop attached once it " +
		"had loaded torch, and did not see what it did before"},
	OutOfReach: {"reach", "process %d (%s) has loaded torch as another user or in a container, where " +
		"it cannot reach gmemtop run: to watch it, run gmemtop attach %[1]d in another terminal"},
	NotReached: {"reach", "process %d (%s) has loaded torch, but no agent reported from it and " +
		"gmemtop could not attach: %v"},
	Beside: {KeyBeside,
		"watching alongside process %d, which captures this job and keeps running when you leave"},
	BesideOther: {KeyBeside, "watching alongside process %d, which captures this job and keeps running " +
		"when you leave; it shows process %d of the job, not %d"},
	TookOver: {KeyBeside,
		"process %d, which captured this job, is gone; this viewer captures it now"},
	AgentGone:        {"agent", "the agent is gone (%s)"},
	ConnectionFailed: {"connection", "%v"},

	OutputUnread: {"output", "cannot show the command's output: %v"},
	DiskFull: {"room", "the disk is full, so whatever the command prints from now on fails: free " +
		"some space in %s"},
	DiskGivenUp: {"room", "the disk is full: the beginning of %s was deleted so that the command can " +
		"go on printing"},
	RecordingNotBegun: {"recording", "%v"},
	RecordingStopped: {"recording", "recording has stopped: %s; what was written can be read, and " +
		"the job goes on: use -o to record it to another file"},
	Triggered: {"trigger", "%s: %s in step %d"},

	OrderNotPassed: {KeyOrder, "the order did not reach the job: %v"},
	GoesOnWatching: {"", "process %d keeps watching"},
	LetGo:          {"", "process %d, which captured it, has detached"},
	NotRead:        {"", "this viewer read too late: they are only kept for a limited time"},

	Vanished: {"", "the process ended without giving a reason: it was killed, or it called os._exit"},
}

// Keys of the notices that each viewer makes for itself.
const (
	KeyState  = "state" // what a job waits for or does
	KeyBeside = "along" // other viewers of the job, past and present
	KeyOrder  = "order" // an order of the viewer's that never reached the job
)

// Text returns the sentence with its gaps filled.
func (s Sentence) Text(gaps ...any) string { return fmt.Sprintf(catalogue[s].text, gaps...) }

// Notice returns the sentence as a notice.
func (s Sentence) Notice(gaps ...any) capture.Notice {
	key := catalogue[s].key
	return capture.Notice{Key: key, Text: s.Text(gaps...), State: key == KeyState}
}

// Depth describes one way of capturing steps.
type Depth struct {
	How   string // as capture.Depth orders it
	Name  string
	Shows string // "" where people cannot choose it
}

// Depths are the ways of capturing steps.
var Depths = []Depth{
	{capture.HowOps, "op by op", "each op, what it reads and writes, and how long it takes: what " +
		"swapping and recompute are planned on"},
	{capture.HowHistory, "allocator history", "what the GPU's allocator did, with segments and " +
		"Python stacks; works with compiled code too"},
	{capture.HowProfile, "by the profiler", "which op allocates what, by torch's profiler; works " +
		"with compiled code too"},
	{capture.HowEvents, "allocator events", ""},
	{capture.HowProbes, "by probes", ""},
}

// Means returns in words how steps were captured.
func Means(how string) string {
	for _, d := range Depths {
		if d.How == how {
			return d.Name
		}
	}
	return how
}

// ends has the words for reasons that need no details. They complete "ended: ...".
var ends = map[string]string{
	capture.Detached: "detached; the job is still running",
	capture.Disarmed: "watching failed; the job is still running",
	capture.Refused:  "watching did not begin",
}

// Exited is all that is known about the end of a process that nobody waited for.
const Exited = "it has exited"

// End says how a job ended. It completes "ended: ...".
func End(e capture.End) string {
	text, ok := ends[e.Reason]
	switch {
	case ok:
	case e.Reason != capture.Exited:
		text = e.Reason
	case e.Code.IsKnown():
		text = "exit code " + e.Code.String()
	case e.Detail == "":
		text = Exited
	}
	if e.Reason == capture.Exited && e.OutOfMemory {
		text = strings.TrimPrefix(text+", out of memory", ", ")
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return strings.TrimPrefix(text, ": ")
}

// stalls says why a process makes no progress, by its state as the kernel reports it.
var stalls = map[byte]string{
	'T': "the process is stopped: kill -CONT %d resumes it",
	't': "a debugger has stopped the process",
	'D': "the process is waiting in the kernel for a disk or a device",
}

// Stall says why a process in this state makes no progress, "" if the state does not show why.
func Stall(state byte, pid int) string {
	if state == 'T' {
		return fmt.Sprintf(stalls[state], pid)
	}
	return stalls[state]
}
