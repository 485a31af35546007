package autopsy

import (
	"context"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Result explains why the run ran out of memory or, if it did not, what its peak consists of.
type Result struct {
	OOM      bool // an oom event is in the trace
	Inferred bool // no event, but the state looks like one (taken after it, or full)
	At       timeline.Moment
	Asked    maybe.Int // rounded bytes of the failed request
	Tried    maybe.Int // bytes that the allocator then asked the driver for
	Free     maybe.Int // bytes that the driver had free
	State    *timeline.AllocatorState
	Sentence string
	// Advice is the end of the sentence, about levers that were not tried; "" for none.
	Advice string
	// Savings are the candidates for the sentence's biggest saving, as far as known before anything is tried.
	// If there are any, Advice begins with the first.
	Savings []Saving
	// Named are the names of the levers that Sentence tells the reader to try.
	Named   []string
	Causes  []Cause
	Holders []sites.Group // by stack, descending
	Levers  []Lever       // those that help most come first; see worth
}

// Cause is one part of the explanation of an out-of-memory error or of a high peak. Bytes is unknown if the
// trace cannot show it.
type Cause struct {
	// Kind is one of the allocator (capacity, too_large, limit, fragmentation, stranded_pool, pending_frees,
	// outside_pytorch, rounding) or a fault of the training (see detectors.go).
	Kind  string
	Bytes maybe.Int
	Text  string
	// Main marks the cause that alone would have been enough.
	Main bool
	// Certainty is how far the recording shows it, Reason why no further.
	Certainty Certainty
	Reason    string
}

// Said returns the text of a cause with its bytes in units u. Most texts name them, so a table of causes
// needs no column for them.
func (c *Cause) Said(u timeline.Units) string {
	n, known := c.Bytes.Value()
	if !known || strings.Contains(c.Text, u.Bytes(n)) {
		return c.Text
	}
	return u.Bytes(n) + ": " + c.Text
}

// Lever is something that the user can do about the peak.
type Lever struct {
	Name    string // expandable_segments, chunked_loss, micro_batch, checkpoint, shard_optimizer...
	Text    string // what to do, one sentence
	Command string // the exact setting or line of code, "" for none
	// Saves is how many bytes it saves of this peak, or of reserved; unknown if the trace cannot show it.
	Saves     maybe.Int
	Exactness timeline.Exactness
	// Frees is how many bytes of blocks it ends by the moment of a failure.
	Frees     int64
	atFailure int64 // what it saves at the moment of a failure; Saves is less if the peak comes before
	before    int64 // the peak before a failure with it
	beside    int64 // what the run then has in addition to what was recorded, such as gradients
	remains   int64 // the least that the run needs with it, where recorded steps show that
	// Fits says, for an out-of-memory error, whether the failed request would have been served.
	Fits Fit
	// Holds says that Saves is right within a tenth although what follows the failed request is not recorded.
	Holds bool
	// Mends says that it removes the main cause, if that is a fault of the training.
	Mends bool
	// Alternative says that it mends the main cause only if the training is not what it seems to be.
	Alternative bool
	// Partly says that only a part of the fix could be tried: the whole saves more than Saves.
	Partly bool
	// Elsewhere says that it needs more devices than the run has.
	Elsewhere bool
	// Unsure says that it depends on something that the recording does not show, so others come first.
	Unsure bool
	// Effect is how it changes the run, for callers that try it out.
	Effect Effect
	// Parts is into how many parts it divides the batch or each sample: 2 for half; 0 for other levers.
	Parts int64
	// Divide returns the same lever with another number of parts, as far as the recording alone tells; ok is
	// false if it would not be worth showing. The only error is the context's. Divide is nil for levers
	// without parts.
	Divide    func(ctx context.Context, parts int64) (l Lever, ok bool, err error)
	ofSamples bool // it makes each sample smaller
	// asks is what Text asks for, and reason why, where a cause's advice may ask for the same.
	asks   asked
	reason string
}

// Fit says whether a failed request would have been served with a lever.
type Fit int

// The answers, the better ones later.
const (
	FitNotShown Fit = iota // the trace does not show it, or no request failed
	DoesNotFit
	Fits
)

// Effect is how a lever changes a recorded run. The zero Effect is for a lever whose effect the recording
// does not show.
type Effect struct {
	// Setting is an option that it adds to those of the allocator, in the syntax of PYTORCH_CUDA_ALLOC_CONF.
	Setting string
	// Driver is how many bytes more the device then has for this process.
	Driver int64
	// Changes are the allocations that it makes smaller, shorter or leaves out, in no order.
	Changes []Change
	// Prompt says that frees that wait for another stream complete at once.
	Prompt bool
	// Scale is the share that is kept of the bytes that the step had still to allocate: the failed request
	// and what follows it; 0 for all of them.
	Scale float64
	// Less is how many bytes less the failed request asks for.
	Less int64
}

// Saving is a lever that the sentence may call the biggest saving.
type Saving struct {
	Lever string
	Bytes int64
	// Text says so, in a sentence that begins with a space.
	Text string
}
