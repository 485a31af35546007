package runs

import (
	"slices"

	"github.com/gmemtop/gmemtop/traces/stats"
)

// Problem: in most steps a rank is as fast as the others, and in some it is late: its data came late, its
// node was busy. Medians over steps hide that. Say for each step how late the slowest rank was.
//
// Approach: skew is by how much the slowest rank of a class exceeds the median of the others in the same
// step, for the work that depends on no other rank (see [Peer.Alone]). The largest of all classes counts.
//
// Complexity: O(n log n) for each step and n ranks. Rejected: slowest minus fastest, because a rank that is
// fast keeps nobody waiting.

// Skew is how late the slowest rank of a step was.
type Skew struct {
	Step int64
	// By is how much longer it took than the median of the others in its class, and Usual that median;
	// nanoseconds.
	By, Usual int64
	// Rank is its index in [Group.Ranks].
	Rank int
}

// SkewsOf returns the skew of the newest steps, at most so many, oldest first. class is the class of each
// rank and times the times of its last steps alone, in order. A step counts for a class once half of those
// of its ranks that have any times have taken it, and at least two.
func SkewsOf(class []int, times [][]Sample, most int) []Skew {
	newest, some := int64(-1), map[int]int{} // ranks with times, by class
	for i, list := range times {
		if n := len(list); n > 0 {
			newest = max(newest, list[n-1].Step)
			some[class[i]]++
		}
	}
	type slowest struct {
		others []int64
		time   int64
		rank   int
	}
	var skews []Skew
	next := make([]int, len(times)) // by rank: its first time that was not looked at
	for step := newest - int64(most) + 1; step <= newest; step++ {
		of := map[int]*slowest{}
		for i, list := range times {
			for next[i] < len(list) && list[next[i]].Step < step {
				next[i]++
			}
			if next[i] == len(list) || list[next[i]].Step != step {
				continue
			}
			c, t := of[class[i]], list[next[i]].Value
			switch {
			case c == nil:
				of[class[i]] = &slowest{time: t, rank: i}
			case t > c.time:
				c.others = append(c.others, c.time)
				c.time, c.rank = t, i
			default:
				c.others = append(c.others, t)
			}
		}
		worst := Skew{Step: step, Rank: -1}
		for k := range slices.Max(append(slices.Clone(class), -1)) + 1 {
			c := of[k]
			if c == nil || len(c.others) == 0 || 2*(len(c.others)+1) < some[k] {
				continue
			}
			usual := stats.Median(c.others)
			if by := c.time - usual; worst.Rank < 0 || by > worst.By {
				worst.By, worst.Usual, worst.Rank = by, usual, c.rank
			}
		}
		if worst.Rank >= 0 {
			skews = append(skews, worst)
		}
	}
	return skews
}
