package overview_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/overview"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// rows draws the overview of a training in w by h cells, blanks at the ends of lines cut off.
func rows(t *testing.T, tl *timeline.Timeline, w, h int) []string {
	t.Helper()
	lines := strings.Split(viewtest.Open(t, overview.New(), tl).Text(w, h), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// From the tables on, no two adjacent rows are blank: rows that the tables cannot fill go to the chart.
func TestTablesLeaveNoBlankRows(t *testing.T) {
	for _, size := range [][2]int{{120, 36}, {120, 30}, {100, 30}, {80, 20}, {160, 44}, {200, 56}} {
		w, h := size[0], size[1]
		below, blank := false, 0
		for _, line := range rows(t, viewtest.Training{}.Timeline(t), w, h) {
			below = below || strings.HasPrefix(line, " At the peak")
			switch {
			case !below:
			case strings.HasPrefix(line, "-- status"):
				below = false
			case line == "":
				if blank++; blank > 1 {
					t.Errorf("%dx%d: two blank rows below the chart", w, h)
				}
			default:
				blank = 0
			}
		}
	}
}

// One iteration has nothing to be compared with, so the room is for the call sites that hold the memory.
func TestOneIterationLeavesRoomForTheHolders(t *testing.T) {
	for n, compared := range map[int]bool{1: false, 3: true} {
		sc := viewtest.Open(t, overview.New(), viewtest.Training{Iterations: n, Layers: 6}.Timeline(t))
		sc.State.Analysed = true
		text := sc.Text(80, 20)
		if strings.Contains(text, "Across iterations") != compared ||
			!compared && !strings.Contains(text, "Largest holders") {
			t.Errorf("%d iterations:\n%s", n, text)
		}
	}
}

// A size is next to its unit, however narrow the view is.
func TestSizesByCategoryHaveTheirUnit(t *testing.T) {
	for _, w := range []int{78, 80, 90, 120, 200} {
		for _, line := range rows(t, viewtest.Training{}.Timeline(t), w, 20) {
			if strings.Contains(line, "■ activation") && !strings.Contains(line[:strings.Index(line, "%")],
				"iB ") {
				t.Errorf("%d columns: no unit in %q", w, line)
			}
		}
	}
}
