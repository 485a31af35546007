// Package say is the catalogue of what gmemtop says to people about a job that it watches. The screen, what
// is printed and what is recorded share its sentences. Programs decide by the types of package capture.
//
// The agent says a code and values, which [Told] makes a sentence. The phases of a trial have theirs in
// replay/live, where the phases are.
package say

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/capture"
)

// Sentence is an entry of the catalogue. The comment of each says what fills its gaps.
type Sentence int

// The sentences.
const (
	// What a job waits for.
	WaitsForTorch       Sentence = iota
	WaitsForAgent                // the process
	WaitsForInterpreter          // once the agent is queued

	// How the agent came, and who has it.
	Attached         // the mechanism, the time for which the job stood still
	AttachedLate     // the same, how much of it was a wait for a processor
	Reached          // the process, its command
	OutOfReach       // the same: another user's, or in a container
	NotReached       // the process, its command, the error
	Beside           // the viewer that has the agent
	BesideOther      // the same, the process that it shows, the one that was asked for
	TookOver         // the viewer that had the agent
	AgentGone        // why
	ConnectionFailed // the error

	// What becomes of output and recordings.
	OutputUnread      // the error
	DiskFull          // the folder
	DiskGivenUp       // the file
	RecordingNotBegun // the error
	RecordingStopped  // the error
	Triggered         // the trigger, why, the step

	// What a viewer tells one that it shows the job to.
	OrderNotPassed // the error
	GoesOnWatching // this process
	LetGo          // this process
	NotRead        // why steps or windows are missing

	// How a process ended that said nothing; see End.
	Vanished

	sentences // is their number
)

// catalogue has each sentence, with the key of the notice that says it; "" where none does.
var catalogue = [sentences]struct{ key, text string }{
	WaitsForTorch: {KeyState, "for the command to load torch"},
	WaitsForAgent: {KeyState, "for process %d to load the agent"},
	WaitsForInterpreter: {KeyState,
		"for the interpreter: its main thread is in a long call outside of Python, or asleep"},

	Attached: {"attached", "attached by %s; the job stood still for %s"},
	AttachedLate: {"attached", "attached by %s; the job stood still for %s, for %s of which it waited " +
		"for a processor: this machine has more to do than it can"},
	Reached: {"reach", "gmemtop's environment did not reach process %d (%s): gmemtop attached once it had " +
		"loaded torch, and did not see what it did before"},
	OutOfReach: {"reach", "process %d (%s) has loaded torch as another user or in a container, where it " +
		"does not reach what gmemtop run listens on: gmemtop attach %[1]d, in another terminal, watches it"},
	NotReached: {"reach",
		"process %d (%s) has loaded torch, no agent came from it, and it was not attached to: %v"},
	Beside: {KeyBeside,
		"watching alongside process %d, which captures this job and keeps running when you leave"},
	BesideOther: {KeyBeside, "watching alongside process %d, which captures this job and keeps running " +
		"when you leave; it shows process %d of the job, not %d"},
	TookOver: {KeyBeside,
		"process %d, which captured this job, is gone; this viewer captures it now"},
	AgentGone:        {"agent", "the agent is gone (%s)"},
	ConnectionFailed: {"connection", "%v"},

	OutputUnread: {"output", "the command's output cannot be shown: %v"},
	DiskFull: {"room",
		"the disk is full, and what the command prints fails from now on: free some of %s"},
	DiskGivenUp: {"room",
		"the disk is full: the beginning of %s is given up, so that the command can go on printing"},
	RecordingNotBegun: {"recording", "%v"},
	RecordingStopped: {"recording", "recording has stopped: %s; what was written can be read, and the " +
		"job goes on: record it again to another file with -o"},
	Triggered: {"trigger", "%s: %s in step %d"},

	OrderNotPassed: {KeyOrder, "the order did not reach the job: %v"},
	GoesOnWatching: {"", "process %d keeps watching"},
	LetGo:          {"", "process %d, which captured it, has detached"},
	NotRead:        {"", "this viewer read too late: they are kept for a limited time"},

	Vanished: {"", "the process ended without saying why: it was killed, or called os._exit"},
}

// Keys of the notices that each viewer says for itself.
const (
	KeyState  = "state" // what a job waits for or does
	KeyBeside = "along" // who watches it as well, or did
	KeyOrder  = "order" // an order of its own that the job never heard
)

// Text returns the sentence with its gaps filled.
func (s Sentence) Text(gaps ...any) string { return fmt.Sprintf(catalogue[s].text, gaps...) }

// Notice returns the sentence as a notice.
func (s Sentence) Notice(gaps ...any) capture.Notice {
	key := catalogue[s].key
	return capture.Notice{Key: key, Text: s.Text(gaps...), State: key == KeyState}
}

// Depth is a means of capturing steps, in words.
type Depth struct {
	How   string // as capture.Depth orders it
	Name  string
	Shows string // "" where people cannot choose it
}

// Depths are the means.
var Depths = []Depth{
	{capture.HowOps, "op by op", "each op, what it reads and writes, and for how long: what swapping and " +
		"recompute are planned on"},
	{capture.HowHistory, "allocator history", "what the GPU's allocator did, segments and Python stacks " +
		"with it, of compiled code as well"},
	{capture.HowProfile, "by the profiler", "what is allocated in which op, by torch's profiler, of " +
		"compiled code as well"},
	{capture.HowEvents, "allocator events", ""},
	{capture.HowProbes, "by probes", ""},
}

// Means says by what means steps were captured.
func Means(how string) string {
	for _, d := range Depths {
		if d.How == how {
			return d.Name
		}
	}
	return how
}

// ends says how a job ended by the reasons that need no more words. It completes "ended: ...".
var ends = map[string]string{
	capture.Detached: "detached; the job is still running",
	capture.Disarmed: "watching failed; the job is still running",
	capture.Refused:  "watching did not begin",
}

// Exited is all that is known of the end of a process that nobody waited for.
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

// stalls says, by the state of a process that the kernel shows, why it does not get on.
var stalls = map[byte]string{
	'T': "the process is stopped, and kill -CONT %d lets it go on",
	't': "a debugger holds the process",
	'D': "the process waits in the kernel, for a disk or a device",
}

// Stall says why a process in such a state does not get on, "" where its state does not tell.
func Stall(state byte, pid int) string {
	if state == 'T' {
		return fmt.Sprintf(stalls[state], pid)
	}
	return stalls[state]
}
