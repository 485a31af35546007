package managers

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// headway is how far planning with one manager is.
type headway struct {
	planning bool // it is being planned with, or waits its turn
	waits    bool
	percent  int // 0 if unknown
	elapsed  time.Duration
	near     string // how near its bound its best plan so far is, "" if unknown
}

// String returns it in a few words: "34 %, 12 s, within 4 % of the bound".
func (h headway) String() string {
	var parts []string
	if h.percent > 0 {
		parts = append(parts, strconv.Itoa(h.percent)+" %")
	}
	if h.elapsed >= time.Second {
		parts = append(parts, elapsed(h.elapsed))
	}
	if h.near != "" {
		parts = append(parts, h.near)
	}
	return strings.Join(parts, ", ")
}

// elapsed prints a duration to the second.
func elapsed(d time.Duration) string {
	n := int(d.Seconds())
	if n >= 60 {
		return fmt.Sprintf("%d min %d s", n/60, n%60)
	}
	return fmt.Sprintf("%d s", n)
}
