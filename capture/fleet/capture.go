package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
)

// CaptureOptions say what an operator captures.
type CaptureOptions struct {
	// Choose returns the ranks to capture of those that run.
	Choose func(running []int64) ([]int64, error)
	// Nodes are those that are known to run: the operator waits for their answers, but not for long.
	Nodes []string
	// Steps is how many steps to capture, and How the depth, "" for the nodes' own.
	Steps int
	How   string
	// Dir returns the new folder for the traces, one file a rank, given the first step.
	Dir func(first int64) string
	// Wait is how long to wait beyond the time that the steps should take.
	Wait time.Duration
	// Tell is called with progress messages.
	Tell func(text string)

	lead, answer time.Duration // see lead and answerWait; tests shorten them
}

// Captured is a capture.
type Captured struct {
	Dir string
	// First and Last are the steps that were asked for.
	First, Last int64
	// Ranks are those that were asked, by rank.
	Ranks []CapturedRank
}

// CapturedRank is one rank of a capture.
type CapturedRank struct {
	Rank int64
	Node string
	// Path is its trace, "" if there is none; then Why says why.
	Path, Why string
	// First and Last are the steps of its trace. First is larger than the capture's if the rank had begun
	// that step before the order came.
	First, Last int64
	Bytes       int64
}

// Late reports whether the rank captured other steps than it was asked to.
func (c *Captured) Late(r CapturedRank) bool { return r.Path != "" && r.First > c.First }

// Host is the machine of the rank. Node is unique, since several gmemtops may run on one machine: it has the
// number of the process behind the machine's name.
func (r *CapturedRank) Host() string {
	if i := strings.LastIndexByte(r.Node, ':'); i > 0 {
		return r.Node[:i]
	}
	return r.Node
}

// errNoRanks means that no rank can be captured.
var errNoRanks = errors.New("no rank is running that could be captured")

// CaptureWait is how long to wait, by default, beyond the time that the steps should take.
const CaptureWait = time.Minute

const (
	// answerWait is how long nodes may take to answer an order.
	answerWait = 5 * time.Second
	// lead is how far ahead of all ranks the first step is, at least: the order has to arrive before.
	lead = 2 * time.Second
	// askEvery is how often the operator asks how far a capture is: nodes only answer.
	askEvery = 500 * time.Millisecond
	// captureSlows is how many times longer a step may take while it is captured.
	captureSlows = 20
	// fetchWait is how long to wait for the next part of a trace.
	fetchWait = 30 * time.Second
)

// operator carries out one capture.
type operator struct {
	conn    *bus.Conn
	options CaptureOptions
	id      string
	chosen  []*chosen
}

// chosen is a rank to capture.
type chosen struct {
	CapturedRank
	id    int
	state string
	// step was its newest one when its node answered, and time is how long a step takes, in nanoseconds.
	step, time int64
	heard      time.Time
}

// Capture captures the same steps of some ranks of a run and writes their traces to a new folder. c needs the
// operator's role. Ranks that could not be captured are in the answer; an error means that there is no
// folder.
func Capture(ctx context.Context, c *bus.Conn, o CaptureOptions) (Captured, error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	o.lead, o.answer = cmp.Or(o.lead, lead), cmp.Or(o.answer, answerWait)
	x := operator{conn: c, options: o, id: hex.EncodeToString(id[:])}
	if err := x.prepare(ctx); err != nil {
		return Captured{}, fmt.Errorf("capture: %w", err)
	}
	done := Captured{}
	var longest int64
	asked := slices.DeleteFunc(slices.Clone(x.chosen),
		func(r *chosen) bool { return r.state != captureWaits })
	for _, r := range asked {
		// The newest reported step is over, the next was under way, and more have passed meanwhile.
		took := max(r.time, int64(time.Millisecond))
		passed := int64(time.Since(r.heard) + o.lead)
		done.First = max(done.First, r.step+2+(passed+took-1)/took)
		longest = max(longest, took)
	}
	done.Last = done.First + int64(o.Steps) - 1
	done.Dir = o.Dir(done.First)
	if _, err := os.Lstat(done.Dir); err == nil {
		return done, fmt.Errorf("capture: %s exists already: name a new folder with -o", done.Dir)
	}
	behind := int64(0)
	for _, r := range asked {
		behind = max(behind, done.First-r.step)
	}
	o.Tell(fmt.Sprintf("capturing %s of %s", stepsText(done.First, done.Last), ranksText(x.chosen)))
	wait := time.Duration(behind*longest) + time.Duration(int64(o.Steps)*longest*captureSlows) + o.Wait
	if err := x.capture(ctx, done.First, wait); err != nil {
		return done, fmt.Errorf("capture: %w", err)
	}
	if err := x.fetch(ctx, done.Dir); err != nil {
		return done, fmt.Errorf("capture: %w", err)
	}
	for _, r := range x.chosen {
		done.Ranks = append(done.Ranks, r.CapturedRank)
	}
	return done, nil
}

// prepare asks all nodes how far their ranks are, and chooses some of them.
func (x *operator) prepare(ctx context.Context) error {
	found, missing, err := x.places(ctx, x.options.Nodes)
	if err != nil {
		return err
	}
	for _, node := range missing {
		x.options.Tell(fmt.Sprintf("%s does not answer: none of its ranks is captured", node))
	}
	if len(missing) > 0 {
		// The other ranks went on while we waited: to choose the first step we must know where they are now.
		nodes := slices.DeleteFunc(slices.Clone(x.options.Nodes),
			func(n string) bool { return slices.Contains(missing, n) })
		if len(nodes) > 0 {
			now, _, err := x.places(ctx, nodes)
			if err != nil {
				return err
			}
			maps.Copy(found, now)
		}
	}
	var running []int64
	for rank, p := range found {
		if p.Why == "" && p.Step >= 0 {
			running = append(running, rank)
		}
	}
	slices.Sort(running)
	if len(running) == 0 {
		return errNoRanks
	}
	ranks, err := x.options.Choose(running)
	if err != nil {
		return err
	}
	for _, rank := range ranks {
		p, known := found[rank]
		r := &chosen{id: p.ID, step: p.Step, time: p.Time, heard: p.heard, state: captureWaits}
		r.Rank, r.Node = rank, p.node
		switch {
		case !known:
			r.state, r.Why = captureRefused, "no node has this rank"
		case p.Why != "":
			r.state, r.Why = captureRefused, p.Why
		case p.Step < 0:
			r.state, r.Why = captureRefused, "it has not taken a step yet"
		}
		x.chosen = append(x.chosen, r)
	}
	slices.SortFunc(x.chosen, func(a, b *chosen) int { return cmp.Compare(a.Rank, b.Rank) })
	if !slices.ContainsFunc(x.chosen, func(r *chosen) bool { return r.state == captureWaits }) {
		return errNoRanks
	}
	return nil
}

// place is where a rank runs, and how far it was when its node answered.
type place struct {
	readyRank
	node  string
	heard time.Time
}

// places asks nodes how far their ranks are. missing are those that do not answer.
func (x *operator) places(ctx context.Context, nodes []string) (found map[int64]place, missing []string,
	err error) {
	asking, stop := context.WithTimeout(ctx, x.options.answer)
	defer stop()
	missing = slices.Clone(nodes)
	found = map[int64]place{}
	err = x.conn.Ask(asking, bus.Prepare, nil, func(node string, answer json.RawMessage) bool {
		var a ready
		if json.Unmarshal(answer, &a) != nil {
			return false
		}
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == node })
		for _, r := range a.Ranks {
			rank := r.Rank.Or(0)
			before, known := found[rank]
			// Of the attempts of a rank, the newest one trains.
			if !known || before.Why != "" && r.Why == "" || r.Why == "" && r.Attempt > before.Attempt {
				found[rank] = place{r, node, time.Now()}
			}
		}
		return len(nodes) > 0 && len(missing) == 0
	})
	return found, missing, errors.Join(err, ctx.Err())
}

// capture gives the order, and waits until every rank has captured its steps or has refused.
func (x *operator) capture(ctx context.Context, first int64, wait time.Duration) error {
	o := captureOrder{ID: x.id, First: first, Steps: x.options.Steps, How: x.options.How,
		Ranks: map[string][]int{}}
	for _, r := range x.chosen {
		if r.state == captureWaits {
			o.Ranks[r.Node] = append(o.Ranks[r.Node], r.id)
		}
	}
	late, stop := context.WithTimeout(ctx, wait)
	defer stop()
	heard, err := x.ask(late, bus.Capture, o, len(o.Ranks))
	for _, r := range x.chosen {
		if r.state == captureWaits && !heard[r.Node] {
			r.Why = "its node does not answer"
		}
	}
	for err == nil {
		if !slices.ContainsFunc(x.chosen, func(r *chosen) bool { return r.state == captureWaits }) {
			return nil
		}
		select {
		case <-late.Done():
			for _, r := range x.chosen {
				if r.state == captureWaits {
					r.state, r.Why = captureRefused, cmp.Or(r.Why, fmt.Sprintf(
						"it has not finished step %d within %s", first+int64(x.options.Steps)-1,
						wait.Round(time.Second)))
				}
			}
			return ctx.Err()
		case <-time.After(askEvery):
		}
		_, err = x.ask(late, bus.Status, statusOrder{x.id}, len(o.Ranks))
	}
	return err
}

// ask gives an order to the nodes of the capture, takes what they say about it, and returns which have
// answered.
func (x *operator) ask(ctx context.Context, v bus.Verb, order any, nodes int) (heard map[string]bool,
	err error) {
	asking, stop := context.WithTimeout(ctx, answerWait)
	defer stop()
	heard = map[string]bool{}
	err = x.conn.Ask(asking, v, order, func(node string, answer json.RawMessage) bool {
		var p *progress
		if json.Unmarshal(answer, &p) != nil || p == nil {
			return false
		}
		heard[node] = true
		for _, a := range p.Ranks {
			for _, r := range x.chosen {
				if r.Node == node && r.id == a.ID && r.state == captureWaits {
					r.state, r.First, r.Last, r.Why = a.State, a.First, a.Last, a.Why
				}
			}
		}
		return len(heard) == nodes
	})
	return heard, err
}

// fetch writes the traces to a new folder, which appears when it is complete.
func (x *operator) fetch(ctx context.Context, dir string) error {
	if !slices.ContainsFunc(x.chosen, func(r *chosen) bool { return r.state == captureDone }) {
		why := ""
		for _, r := range x.chosen {
			why += fmt.Sprintf("; rank %d: %s", r.Rank, r.Why)
		}
		return fmt.Errorf("no rank has captured its steps%s", why)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".gmemtop-capture-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	reading, stop := context.WithCancel(ctx)
	parts, begun := make(chan bus.Message), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		x.conn.ReadNew(reading, func(m bus.Message) {
			select {
			case parts <- m:
			case <-reading.Done():
			}
		}, func(bus.Kind) { close(begun) }, bus.Trace)
	})
	defer work.Wait()
	defer stop()
	select {
	case <-begun:
	case <-time.After(fetchWait):
		return fmt.Errorf("%w: it does not carry traces", bus.ErrNoHub)
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, r := range x.chosen {
		if r.state != captureDone {
			continue
		}
		name := fmt.Sprintf("rank%04d.gmt", r.Rank)
		err := x.fetchRank(ctx, r, filepath.Join(scratch, name), parts)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.state, r.Why = captureRefused, err.Error()
			_ = os.Remove(filepath.Join(scratch, name))
		default:
			r.Path = filepath.Join(dir, name)
		}
	}
	if !slices.ContainsFunc(x.chosen, func(r *chosen) bool { return r.Path != "" }) {
		return fmt.Errorf("no trace arrived: rank %d: %s", x.chosen[0].Rank, x.chosen[0].Why)
	}
	return errors.Join(os.Chmod(scratch, 0o755), os.Rename(scratch, dir))
}

// fetchRank writes the trace of one rank to a file.
func (x *operator) fetchRank(ctx context.Context, r *chosen, path string,
	parts <-chan bus.Message) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	asking, stop := context.WithTimeout(ctx, answerWait)
	defer stop()
	answer := fetched{Why: "its node does not answer"}
	take := func(node string, a json.RawMessage) bool {
		var said *fetched
		if node != r.Node || json.Unmarshal(a, &said) != nil || said == nil {
			return false
		}
		answer = *said
		return true
	}
	if err := x.conn.Ask(asking, bus.Fetch, fetchOrder{x.id, r.Node, r.id}, take); err != nil {
		return err
	}
	if !answer.Sends {
		return errors.New(answer.Why)
	}
	w := assembly{id: x.id, rank: r.id, to: f, sum: sha256.New()}
	for {
		select {
		case m := <-parts:
			if m.Node != r.Node {
				continue
			}
			complete, err := w.take(m.Data)
			if err != nil {
				return err
			}
			if complete {
				r.Bytes = w.bytes
				return f.Sync()
			}
		case <-time.After(fetchWait):
			return fmt.Errorf("%d parts of its trace arrived, and then no more", w.next)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// assembly puts the parts of a trace together.
type assembly struct {
	id    string
	rank  int
	to    interface{ Write([]byte) (int, error) }
	sum   hash.Hash
	next  int
	bytes int64
}

// take takes a message. complete says that it was the last part, and that nothing is missing.
func (w *assembly) take(message []byte) (complete bool, err error) {
	p, err := readPart(message)
	switch {
	case err != nil:
		return false, err
	case p.ID != w.id || p.Rank != w.rank:
		return false, nil // of another capture
	case p.Why != "":
		return false, errors.New(p.Why)
	case p.Number < w.next:
		return false, nil // it came twice
	case p.Number > w.next:
		return false, fmt.Errorf("parts %d to %d of its trace were lost: the hub has too little room", w.next,
			p.Number-1)
	}
	w.next++
	w.bytes += int64(len(p.data))
	if _, err := w.to.Write(p.data); err != nil {
		return false, err
	}
	_, _ = w.sum.Write(p.data) // never fails
	if w.next < p.Of {
		return false, nil
	}
	if got := hex.EncodeToString(w.sum.Sum(nil)); got != p.Sum {
		return false, errors.New("its trace was damaged on the way")
	}
	return true, nil
}

func stepsText(first, last int64) string {
	if first == last {
		return fmt.Sprintf("step %d", first)
	}
	return fmt.Sprintf("steps %d to %d", first, last)
}

// ranksText lists ranks as people write them: rank 3; ranks 0 to 3, 8.
func ranksText(list []*chosen) string {
	text, n := "", 0
	for i := 0; i < len(list); n++ {
		k := i
		for k+1 < len(list) && list[k+1].Rank == list[k].Rank+1 {
			k++
		}
		if i > 0 {
			text += ", "
		}
		if text += fmt.Sprint(list[i].Rank); k > i {
			text += fmt.Sprintf(" to %d", list[k].Rank)
		}
		i = k + 1
	}
	if len(list) == 1 {
		return "rank " + text
	}
	return "ranks " + text
}

// Known returns the nodes of the run that are not silent.
func (w *Watch) Known() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for name, n := range w.nodes {
		if !n.over && n.silence == "" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}
