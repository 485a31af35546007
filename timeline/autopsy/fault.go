package autopsy

import "github.com/gmemtop/gmemtop/traces"

// mainShare is the share of allocated plus requested memory from which a fault is named as the cause.
const mainShare = 0.10

// fault is a cause with the sentences with which the answer begins.
type fault struct {
	Cause
	said string // the cause with its line, one sentence
	fix  string // what to change, one sentence
	// seek is what to look for before that, with which the sentence then begins; "" for nothing.
	seek string
	// lever is what to change, for the list of levers.
	lever remedy
	// instead is what to change if the training is one of the look-alikes, and elseFix says so.
	instead remedy
	elseFix string
	// from is the line whose calls of the model left its blocks, if calls did, and batches says that these
	// are their inputs.
	from    lineCalls
	batches bool
	// as is the kind of fault whose pattern was found, if the report names another one. It counts as an
	// explanation of what that kind explains.
	as string
	// news says that it distinguishes the failed step from earlier ones, which had everything else, too.
	news bool
}

// lineCalls are calls of the model from one line.
type lineCalls struct {
	caller traces.FrameID
	count  int
}

// advice returns the sentence about what to change.
func (f *fault) advice() string {
	if f.seek == "" {
		return f.fix
	}
	return f.seek + "; " + f.fix
}

// turn is 0 for what is new in the failed step, and 1 for others.
func (f *fault) turn() int {
	if f.news {
		return 0
	}
	return 1
}

// outgrows reports whether a lever only postpones the fault's effect: smaller batches do not stop growth, and
// accumulation is what made several graphs.
func (f *fault) outgrows(lever string) bool {
	switch f.Kind {
	case "logits", "attention_scores", "first_device", "sequence_growth", "padding", "too_large":
		return false
	}
	return lever == microBatch
}

// remedy is what a detector proposes: a lever without its figures.
type remedy struct {
	name, command string
	changes       []Change
	request       int64 // by how many bytes the request that failed would be smaller
	// scale is the share that is kept of the bytes that the step had still to allocate, 0 for all of them.
	scale float64
	// remains is the least that the run needs with it, as far as recorded steps show.
	remains int64
	// beside is what the run then has in addition to what was recorded.
	beside int64
	// unsure says that it depends on what the recording does not show.
	unsure bool
	// partly says that the fix asks for more than its changes do.
	partly bool
	// asks is what its advice asks for, if a lever's text asks for that, too.
	asks asked
}

// asked is what a sentence asks the reader to do, however it says so: a cause's advice and a lever's text may
// ask for the same. A lever's name does not tell: one name stands for several changes of a program.
type asked string

// chunkLoss asks to compute the output layer and the loss in chunks.
const chunkLoss asked = "chunk_loss"

// microBatch is the name of the lever that makes batches smaller.
const microBatch = "micro_batch"
