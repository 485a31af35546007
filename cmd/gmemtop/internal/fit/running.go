package fit

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
)

// Telling returns what says, through note, how far the command is, and once before its first step has ended
// and once after that it is slow, if another way may be faster.
func (r *Request) Telling(note func(text string)) func(ran time.Duration, at []estimate.Place) {
	told := map[bool]bool{}
	return func(ran time.Duration, at []estimate.Place) {
		note(progress(ran, at, r.Steps))
		if r.Allocator != Model || r.CPU {
			return
		}
		trained := slices.ContainsFunc(at, func(p estimate.Place) bool { return p.Steps > 0 })
		if slow := slow(ran, at, r.Steps); slow != "" && !told[trained] {
			told[trained] = true
			note(slow)
		}
	}
}

// progress says how far a command is that has run for some time. steps is how many it is to train.
func progress(ran time.Duration, at []estimate.Place, steps int) string {
	after := fmt.Sprintf("after %.0f s", ran.Seconds())
	if len(at) == 0 {
		return after + ": no process has imported torch yet"
	}
	slowest := slices.MinFunc(at, func(a, b estimate.Place) int { return cmp.Compare(a.Steps, b.Steps) })
	if slowest.Importing {
		return after + ": still importing torch"
	}
	of := ""
	if len(at) > 1 {
		of = fmt.Sprintf(" (rank %d, the slowest of %d)", slowest.Rank, len(at))
	}
	return fmt.Sprintf("%s: %d of %d steps, now at %s%s", after, slowest.Steps, steps, slowest.Line, of)
}

// long is how long an estimate may take before we say how much longer it may be, and what is faster.
const long = 30 * time.Second

// slow says how much longer an estimate with fake tensors may take, and which way is faster; "" before that
// is worth saying. steps is how many the command is to train.
func slow(ran time.Duration, at []estimate.Place, steps int) string {
	if ran < long || len(at) == 0 {
		return ""
	}
	slowest := slices.MinFunc(at, func(a, b estimate.Place) int { return cmp.Compare(a.Steps, b.Steps) })
	const faster = "if that is too long, try --allocator real: it needs a CUDA build of torch, and is " +
		"faster for many small operations"
	switch {
	case slowest.Importing || slowest.Steps >= steps:
		return ""
	case slowest.Steps == 0:
		return fmt.Sprintf("no step has ended in %v; %s", ran.Round(time.Second), faster)
	}
	more := ran * time.Duration(steps-slowest.Steps) / time.Duration(slowest.Steps)
	return fmt.Sprintf("about %v more if all steps take as long as those so far; %s", more.Round(time.Second),
		faster)
}

// wantsCards finds in what a command printed that it missed a GPU: PyTorch's words, and Lightning's.
// wantsNetwork finds that it missed the network: ours, Hugging Face's and urllib3's. Where a file is found
// without the network, transformers logs "Offline mode: forcing local_files_only=True": that is no complaint.
var (
	wantsCards   = regexp.MustCompile(`invalid device ordinal|your machine only has`)
	wantsNetwork = regexp.MustCompile(`gmemtop refuses connections|HF_HUB_OFFLINE|` +
		`[Oo]ffline mode(?:[^:]|$)|Hugging Face Hub|huggingface\.co|Max retries exceeded`)
)

// ended is what a command printed from its last error in Python on, with the errors that led to it: earlier
// ones did not end it. It is all that it printed if there is no such error.
func ended(printed string) string {
	parts := strings.Split(printed, "Traceback (most recent call last):")
	k := len(parts) - 1
	for k > 1 && (strings.Contains(parts[k-1], "The above exception was the direct cause of") ||
		strings.Contains(parts[k-1], "During handling of the above exception,")) {
		k--
	}
	return strings.Join(parts[k:], "")
}

// Hint says what a command that failed seems to miss, "" if what it printed does not show that. A command on
// tensors without memory finds as many GPUs as it asks for.
func (r *Request) Hint(printed string) string {
	printed = ended(printed)
	switch {
	case r.Allocator != Own:
	case wantsCards.MatchString(printed):
		return "the script wants more GPUs than it finds: CUDA_VISIBLE_DEVICES=0,1 in its environment " +
			"gives it two, 0,1,2,3 four"
	case wantsNetwork.MatchString(printed):
		return "the script seems to want something from the network, which an estimate does not reach: " +
			"start it once without gmemtop, until it has downloaded all that it needs"
	}
	return ""
}
