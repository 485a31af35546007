package runs

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Problem: several processes train together (ranks of data-parallel training, scripts that share a machine).
// Say which one is unlike the others, and in what, from the few figures known for each step while they run.
//
// Ranks that exchange gradients move in lockstep: their step times are equal whichever is slow, because the
// others wait for it. They differ in where the time goes. The slow one takes longer in what it does alone
// (forward, which holds the wait for data, and the optimizer) and finishes sooner with the phase in which
// ranks wait for each other (backward, for data-parallel training): it waits least. So every phase is
// compared by itself. A rank whose own work inside backward is slow cannot be found this way, since all ranks
// end that phase together; the report then says that no rank stands out.
//
// Approach: compare each figure of a process, its median over its last [PeerSteps] steps, with the
// median of the others without it. It differs if it is off by more than peerShare of the usual step (or of
// the usual bytes), and by more than outlierScore times the others' own spread: the first keeps noise of no
// consequence out, the second a job whose ranks all differ, as stages of a pipeline do. Leaving the process
// itself out makes even two processes comparable.
//
// Complexity: O(n^2) for n processes, a few times a second. Rejected: the mean of the others, which one
// outlier distorts; step times, which are equal.

// PeerSteps is how many of the last steps the figures of a [Peer] should cover: enough to even out single
// steps, few enough to see a change.
const PeerSteps = 32

// How far off a process must be to differ: a share of the usual step time, or of the usual bytes.
const (
	peerShare      = 0.10
	peerBytesShare = 0.03
	peerBytes      = 32 << 20
)

// Peer holds the figures per step of one process among several: medians in nanoseconds and bytes.
type Peer struct {
	Duration, Forward, Backward, Optimizer maybe.Int
	Bytes                                  maybe.Int
}

// TypicalPeer returns the medians of a process's last steps, each given as the figures of that one step; a
// figure that is unknown in all of them stays unknown.
func TypicalPeer(last []Peer) Peer {
	known := make([]int64, 0, len(last))
	middle := func(f PeerFigure) maybe.Int {
		known = known[:0]
		for i := range last {
			if v, ok := last[i].figure(f).Value(); ok {
				known = append(known, v)
			}
		}
		if len(known) == 0 {
			return maybe.Int{}
		}
		return maybe.Known(stats.Median(known))
	}
	return Peer{middle(PeerDuration), middle(PeerForward), middle(PeerBackward), middle(PeerOptimizer),
		middle(PeerBytes)}
}

// PeerFigure names a figure of a [Peer].
type PeerFigure uint8

// The figures in which processes are compared.
const (
	PeerDuration PeerFigure = iota
	PeerForward
	PeerBackward
	PeerOptimizer
	PeerBytes
)

// String returns the figure's word: "step", "forward", "backward", "optimizer", "memory".
func (f PeerFigure) String() string {
	return [...]string{"step", "forward", "backward", "optimizer", "memory"}[f]
}

func (p *Peer) figure(f PeerFigure) maybe.Int {
	return [...]maybe.Int{p.Duration, p.Forward, p.Backward, p.Optimizer, p.Bytes}[f]
}

// PeerDifference is a figure in which a process differs from the others.
type PeerDifference struct {
	// Peer is the process, as an index into the argument of [ComparePeers].
	Peer   int
	Figure PeerFigure
	// Value is its figure, Others the median of the other processes.
	Value, Others int64
	// share is the difference as a share of the usual step, or of the usual bytes.
	share float64
}

// Text returns the difference as text: "forward +18.1 ms".
func (d PeerDifference) Text(u timeline.Units) string {
	by := d.Value - d.Others
	if d.Figure == PeerBytes {
		return d.Figure.String() + " " + u.Delta(by)
	}
	sign := "+"
	if by < 0 {
		sign = "-"
	}
	return fmt.Sprintf("%s %s%s", d.Figure, sign, timeline.Duration(max(by, -by)))
}

// PeerReport is the result of [ComparePeers].
type PeerReport struct {
	// Differences are in the order of the processes, with the largest of each process first.
	Differences []PeerDifference
	// Slow is the process that the others wait for, as far as the figures show it: it takes longer than they
	// do in forward and optimizer together or, if step times differ, for a step. -1 for none. Own and
	// OthersOwn are the times compared, and Waits says that the others finish backward later than it by about
	// as much.
	Slow           int
	Own, OthersOwn int64
	Waits          bool
}

// Of returns the differences of one process.
func (r *PeerReport) Of(peer int) []PeerDifference {
	from, _ := slices.BinarySearchFunc(r.Differences, peer,
		func(d PeerDifference, p int) int { return d.Peer - p })
	to := from
	for to < len(r.Differences) && r.Differences[to].Peer == peer {
		to++
	}
	return r.Differences[from:to]
}

// ComparePeers says which of several processes differ from the others. Unknown figures are skipped; fewer
// than two processes never differ.
func ComparePeers(peers []Peer) PeerReport {
	r := PeerReport{Slow: -1}
	var durations []int64
	for i := range peers {
		if d := peers[i].Duration.Or(0); d > 0 {
			durations = append(durations, d)
		}
	}
	usual := stats.Median(durations)
	var all [PeerBytes + 1]figures
	for f := range all {
		all[f] = figuresOf(peers, func(p *Peer) (int64, bool) { return p.figure(PeerFigure(f)).Value() })
	}
	for i := range peers {
		from := len(r.Differences)
		for f := PeerDuration; f <= PeerBytes; f++ {
			v, known := peers[i].figure(f).Value()
			if !known || len(all[f]) < 2 {
				continue
			}
			m := all[f].medianWithout(v)
			whole, limit := float64(usual), peerShare*float64(usual)
			if f == PeerBytes {
				whole, limit = float64(m), max(peerBytesShare*float64(m), peerBytes)
			}
			by := math.Abs(float64(v - m))
			if whole <= 0 || by <= limit || by <= outlierScore*all[f].spreadWithout(v) {
				continue
			}
			r.Differences = append(r.Differences, PeerDifference{i, f, v, m, by / whole})
		}
		slices.SortStableFunc(r.Differences[from:],
			func(a, b PeerDifference) int { return cmp.Compare(b.share, a.share) })
	}
	r.slowest(peers, usual)
	return r
}

// slowest finds the process that the others wait for.
func (r *PeerReport) slowest(peers []Peer, usual int64) {
	// own is the time it works alone; the whole step if phases are unknown
	own := func(p *Peer) (ns int64, known bool) {
		if !p.Forward.IsKnown() {
			return p.Duration.Value()
		}
		return p.Forward.Or(0) + p.Optimizer.Or(0), true
	}
	alone := figuresOf(peers, own)
	backward := figuresOf(peers, func(p *Peer) (int64, bool) { return p.Backward.Value() })
	best := int64(0)
	for i := range peers {
		mine, known := own(&peers[i])
		if !known || len(alone) < 2 {
			continue
		}
		m := alone.medianWithout(mine)
		more := mine - m
		if more <= best || float64(more) <= peerShare*float64(usual) ||
			float64(more) <= outlierScore*alone.spreadWithout(mine) {
			continue
		}
		best = more
		r.Slow, r.Own, r.OthersOwn = i, mine, m
		waited, known := peers[i].Backward.Value()
		r.Waits = known && 2*(backward.medianWithout(waited)-waited) >= more
	}
}

// figures are the known values of one figure of all processes, sorted. A thousand processes are compared for
// each frame, so what is left without one of them is not sorted again.
type figures []int64

func figuresOf(peers []Peer, value func(p *Peer) (int64, bool)) figures {
	list := make(figures, 0, len(peers))
	for i := range peers {
		if v, known := value(&peers[i]); known {
			list = append(list, v)
		}
	}
	slices.Sort(list)
	return list
}

// medianWithout returns the median of all values but one v, which is among them; 0 for none.
func (f figures) medianWithout(v int64) int64 {
	n := len(f) - 1
	if n < 1 {
		return 0
	}
	gone, _ := slices.BinarySearch(f, v)
	at := func(i int) int64 {
		if i >= gone {
			i++
		}
		return f[i]
	}
	if n%2 == 0 {
		return at(n/2-1) + (at(n/2)-at(n/2-1))/2
	}
	return at(n / 2)
}

// spreadWithout returns the spread of all values but one v, which is among them.
func (f figures) spreadWithout(v int64) float64 {
	gone, _ := slices.BinarySearch(f, v)
	return steps.Spread(slices.Delete(slices.Clone([]int64(f)), gone, gone+1))
}
