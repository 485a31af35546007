package autopsy

import (
	"fmt"
	"regexp"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// One request that is too large by itself. The pattern: it is more than everything that the process could
// have, and several times any existing block. Look-alikes: a batch that is too large throughout, for which
// blocks of that size exist already; a GPU of which another process has nearly everything. The line that made
// the request is the place to look at: a broadcast makes every pair of its inputs, x[:, None] - x[None] all
// differences at once.

// requestTimes is the minimum ratio of one request to the largest existing block.
const requestTimes = 4

func requestFault(c *evidence) (fault, bool) {
	if !c.a.Asked.IsKnown() || !c.a.Free.IsKnown() || c.a.State == nil {
		return fault{}, false
	}
	could := c.d.Reserved.At(c.a.At) + c.a.Free.Or(0)
	line := sites.Name(c.d, c.d.Event(c.a.At).Stack)
	var largest int64
	for _, id := range c.live {
		largest = max(largest, c.d.Allocs.Size[id])
	}
	if asked := c.a.Asked.Or(0); could < smallestGPU || asked <= could || asked < requestTimes*largest ||
		line == "" {
		return fault{}, false
	}
	f := fault{Cause: Cause{Kind: "too_large", Bytes: c.a.Asked, Text: fmt.Sprintf(
		"%s asked for %s in one block, and the process could have %s in all", line,
		c.u.Bytes(c.a.Asked.Or(0)), c.u.Bytes(could))}}
	f.said = fmt.Sprintf("%s asked for a single tensor of %s, and all that this process could have is %s.",
		line, c.u.Bytes(c.a.Asked.Or(0)), c.u.Bytes(could))
	f.fix = "Look at the shapes at that line: a broadcast such as x[:, None] - x[None] makes all pairs at " +
		"once; compute it in chunks, or with a function that does not, such as torch.cdist."
	f.sure(Certain, ownFigures)
	f.lever = remedy{name: "smaller_input", command: at("for part in x.split(n):", line),
		request: c.a.Asked.Or(0) - partOf(c, c.a.Asked.Or(0), true)}
	askedLess(c, &f)
	if s := c.d.Event(c.a.At).Stack; c.ofData(s) && slicedBefore(c, s, true) {
		f.lever.request = c.a.Asked.Or(0)
		wholeData(c, &f, c.userLine(s))
		f.said = fmt.Sprintf("%s puts all of the data on the GPU at once, %s, and the model runs on parts "+
			"of it; all that this process could have is %s.", c.userLine(s), c.u.Bytes(c.a.Asked.Or(0)),
			c.u.Bytes(could))
	} else if movesWhole(c, s) {
		movedWhole(c, &f, c.userLine(s))
	}
	return f, true
}

// askedLess adds to a fault what shows that the batch of a call is what is too large: the line is one of the
// model's, and asked for far less in earlier calls. Look-alike: a line that trains.
func askedLess(c *evidence, f *fault) {
	s := c.d.Event(c.a.At).Stack
	if s < 0 || !c.inModel(s) {
		return
	}
	caller, same, before := c.modelCaller(s), c.sameLine(s), int64(0)
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		if same(c.d.Allocs.Stack[id]) {
			before = max(before, c.d.Allocs.Size[id])
		}
	}
	if caller < 0 || c.trainedLines[caller] || before == 0 || c.a.Asked.Or(0) < requestTimesMore*before {
		return
	}
	line := c.frameText(caller)
	f.said += fmt.Sprintf(" Earlier calls of the model asked for at most %s there.", c.u.Bytes(before))
	f.fix = fmt.Sprintf("Call the model at %s on a part of its batch at a time, for part in batch.split(n), "+
		"and move each result to the CPU.", line)
	f.lever.command = at("for part in batch.split(n):", line)
}

// wholeData turns a fault into that of data which a line puts on the GPU although the model runs on parts of
// it.
func wholeData(c *evidence, f *fault, line string) {
	f.Kind = "prefetch"
	f.fix = "Keep it on the CPU and do this to each batch in the loop."
	f.sure(Likely, "the model ran on parts of what the line made before; a buffer that calls fill would "+
		"look the same")
	f.lever.name = "load_each_batch"
	f.lever.command = at("batch = batch.to(device, non_blocking=True)", line)
}

var (
	// moves matches a line that gives a name to a tensor which it moves to the device.
	moves = regexp.MustCompile(`^\s*[\w.]+\s*=\s*[\w.]+\.(?:cuda|to)\([^()]*\)\s*$`)
	// reserves matches a line that keeps an empty tensor in an attribute.
	reserves = regexp.MustCompile(`^\s*self\.\w+\s*=\s*torch\.(?:zeros|ones|empty|full)\(`)
	// casts matches arguments that change a tensor's type.
	casts = regexp.MustCompile(`dtype|float|half|double|int|long|bool|complex`)
)

// movesWhole reports whether the program's code shows that a line does nothing but move a tensor to the
// device, which it never did before. Look-alike: the batch of each step, which the line has moved in earlier
// steps.
func movesWhole(c *evidence, s traces.StackID) bool {
	if text := innermostLine(c, s); !moves.MatchString(text) || casts.MatchString(text) {
		return false
	}
	table := sites.Of(c.d.Timeline())
	site := table.Number(s)
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		if table.Number(c.d.Allocs.Stack[id]) == site {
			return false
		}
	}
	return true
}

// innermostLine returns the text of the program's line that a stack ends in, "" if that is a library's or
// cannot be read.
func innermostLine(c *evidence, s traces.StackID) string {
	if s < 0 {
		return ""
	}
	at := c.d.Timeline().Places().Stacks.At(s)
	if len(at) == 0 || !c.ofUser(at[0]) {
		return ""
	}
	_, file, line := c.places.FrameText(at[0])
	text, ok := c.file(file)
	lines := linesOf(text)
	if !ok || line < 1 || line > len(lines) {
		return ""
	}
	return lines[line-1].text
}

// reservesBuffer reports whether the program's code shows that a line outside of the model makes an empty
// tensor and keeps it in an object: a buffer for data that come later, as replay and rollout buffers are made
// (the RolloutBuffer of stable-baselines3). Look-alikes: a tensor that a function fills and returns, which it
// keeps in no attribute; weights and caches, which have their names.
func reservesBuffer(c *evidence, s traces.StackID) bool {
	return s >= 0 && !c.inModel(s) && !mayBeWeights(c, s) && reserves.MatchString(innermostLine(c, s))
}

// reservedBuffer turns a fault into that of a buffer for data that lies on the device.
func reservedBuffer(c *evidence, f *fault, line string) {
	wholeData(c, f, line)
	f.said = fmt.Sprintf("%s reserves a buffer on the GPU for data that comes later: %s in one block.", line,
		c.u.Bytes(c.a.Asked.Or(0)))
	f.fix = "Keep the buffer on the CPU, and move what each batch takes from it: buffer[i].to(device)."
	f.lever.command = at("batch = buffer[i].to(device, non_blocking=True)", line)
	f.sure(Likely, "the line makes an empty tensor and keeps it in an object; a table that the model reads "+
		"as a whole would look the same")
}

// movedWhole turns a fault into that of a tensor which a line moves to the device as a whole.
func movedWhole(c *evidence, f *fault, line string) {
	part := f.lever
	wholeData(c, f, line)
	f.lever.request = c.a.Asked.Or(0)
	f.said = fmt.Sprintf("%s moves a whole tensor to the GPU, %s in one block.", line,
		c.u.Bytes(c.a.Asked.Or(0)))
	f.fix = "If it is then used in parts, keep it on the CPU and move each part: part = part.to(device)."
	f.sure(Likely, "the line only moves it, and nothing that the model makes is as large; a table that is "+
		"meant to be there would look the same")
	f.elseFix, f.instead = "if all of it is used at once, use a smaller one, or a part of it at a time", part
}
