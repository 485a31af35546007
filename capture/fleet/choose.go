package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RankChoice says which ranks to capture.
type RankChoice struct {
	outliers, all bool
	numbers       [][2]int64 // first and last
}

// mostRank is the highest rank that can be named.
const mostRank = 1 << 20

// ParseRanks reads a choice: numbers and ranges of them, outliers for the ranks unlike the others, or all,
// separated by commas.
func ParseRanks(text string) (c RankChoice, err error) {
	for _, word := range strings.Split(text, ",") {
		switch word = strings.TrimSpace(word); word {
		case "outliers":
			c.outliers = true
			continue
		case "all":
			c.all = true
			continue
		}
		first, last, isRange := strings.Cut(word, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseInt(first, 10, 32)
		b, errB := strconv.ParseInt(last, 10, 32)
		if errA != nil || errB != nil || a < 0 || b < a || b > mostRank {
			return c, fmt.Errorf("--ranks %q: name ranks like 0,8-15, outliers, or all", text)
		}
		c.numbers = append(c.numbers, [2]int64{a, b})
	}
	return c, nil
}

// Of returns the chosen ranks. A single number is chosen even if no rank has it, so that the caller can say
// so; of a range, only running ranks are.
func (c *RankChoice) Of(running, outliers []int64) ([]int64, error) {
	chosen := map[int64]bool{}
	for _, r := range running {
		in := slices.ContainsFunc(c.numbers, func(n [2]int64) bool { return n[0] <= r && r <= n[1] })
		if c.all || in || c.outliers && slices.Contains(outliers, r) {
			chosen[r] = true
		}
	}
	for _, n := range c.numbers {
		if n[0] == n[1] {
			chosen[n[0]] = true
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no rank differs from the others: name some, such as --ranks 0,1")
	}
	list := make([]int64, 0, len(chosen))
	for r := range chosen {
		list = append(list, r)
	}
	slices.Sort(list)
	return list, nil
}
