package feed

import (
	"slices"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// mostOutliers is the largest number of ranks that are called outliers.
const mostOutliers = 8

// Outliers returns the ranks of a job unlike the others, the largest difference of each rank first.
func Outliers(j *job.Job) []int64 {
	var peers []runs.Peer
	var ranks []int64
	for _, p := range j.Processes() {
		v := p.History.Snapshot()
		rank, known := v.Info.Rank.Value()
		if v.Ended || !known {
			continue
		}
		last := v.Steps[max(len(v.Steps)-runs.PeerSteps, 0):]
		figures := make([]runs.Peer, len(last))
		for i := range last {
			figures[i] = peerOf(&last[i])
		}
		ranks, peers = append(ranks, rank), append(peers, runs.TypicalPeer(figures))
	}
	r := runs.ComparePeers(peers)
	var list []int64
	add := func(i int) {
		if i >= 0 && i < len(ranks) && !slices.Contains(list, ranks[i]) && len(list) < mostOutliers {
			list = append(list, ranks[i])
		}
	}
	add(r.Slow)
	for _, d := range r.Differences {
		add(d.Peer)
	}
	return list
}

// peerOf returns the figures of one step in which ranks are compared, as on the screen: without a GPU,
// resident memory.
func peerOf(s *capture.Step) runs.Peer {
	return runs.Peer{Duration: maybe.Known(s.End - s.Start), Forward: s.Forward, Backward: s.Backward,
		Optimizer: s.Optimizer, Bytes: maybe.First(s.Allocated, s.RSS)}
}
