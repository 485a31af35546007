package sweep

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
)

// TextOptions say how fronts are printed.
type TextOptions struct {
	Units timeline.Units
	ASCII bool
}

// WriteText writes for each trace which plans no other beats, as a table and as a picture.
func WriteText(w io.Writer, list []Done, o TextOptions) error {
	var b strings.Builder
	for i, f := range fronts(list) {
		if i > 0 {
			b.WriteByte('\n')
		}
		f.write(&b, o)
	}
	text := b.String()
	if o.ASCII {
		text = strings.NewReplacer("µs", "us", "·", ".", "●", "o", "│", "|", "└", "+", "─", "-").Replace(text)
	}
	_, err := io.WriteString(w, text)
	return err
}

// nothing says that no plan fits, which needs the least, and why there is no plan in other rows.
func (f *front) nothing(b *strings.Builder, o TextOptions) {
	if f.Rows == 1 {
		fmt.Fprintf(b, "%s: the only plan does not fit", f.Trace)
	} else {
		fmt.Fprintf(b, "%s: none of %s fits", f.Trace, timeline.Counted(f.Rows, "plan"))
	}
	if s := f.Smallest; s != nil {
		total, _ := s.total()
		fmt.Fprintf(b, ": the smallest needs %s, with %s", o.Units.Bytes(total), s.Manager)
	}
	b.WriteByte('\n')
	for _, u := range f.Unplanned {
		fmt.Fprintf(b, "  %s not made: %s\n", timeline.Counted(u.Rows, "plan"), u.Reason)
	}
}

func (f *front) write(b *strings.Builder, o TextOptions) {
	if len(f.All) == 0 {
		f.nothing(b, o)
		return
	}
	fmt.Fprintf(b, "%s: %d of %s fit. No other plan beats these:\n\n", f.Trace, len(f.All),
		timeline.Counted(f.Rows, "plan"))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	head := "memory"
	if f.perSample {
		head += "\tbatch"
	}
	if f.Timed {
		if f.perSample {
			head += "\ttime per sample"
		}
		head += "\tstep\tslower by"
	}
	fmt.Fprintln(t, head+"\tmanager\tcarried out by\tbudget")
	for _, p := range f.Best {
		r := p.Row
		row := o.Units.Bytes(p.Memory)
		if r.Inferred {
			row = "~" + row
		}
		if f.perSample {
			row += "\t" + r.Batch.String()
		}
		if f.Timed {
			if f.perSample {
				row += "\t" + timeline.Duration(int64(p.Time))
			}
			slower := ""
			if x, ok := r.overhead(); ok {
				slower = replay.Percent(x)
			}
			row += "\t" + timeline.Duration(r.Step.Or(0)) + "\t" + slower
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", row, r.Manager, r.Executor, r.Budget)
	}
	_ = t.Flush() // a Builder takes everything
	if f.Timed {
		f.picture(b, o)
	}
	if f.Inferred {
		b.WriteString("\n~ scaled from one recording: parameters, their gradients and optimizer state " +
			"kept, everything\n  else in proportion to the batch\n")
	}
}

// The picture's size in cells, without its axes.
const (
	pictureWidth  = 56
	pictureHeight = 12
)

// picture draws time over memory: a dot for each plan that fits, a disc for those that no other beats.
func (f *front) picture(b *strings.Builder, o TextOptions) {
	least, most := f.All[0], f.All[0]
	for _, p := range f.All {
		least.Memory, most.Memory = min(least.Memory, p.Memory), max(most.Memory, p.Memory)
		least.Time, most.Time = min(least.Time, p.Time), max(most.Time, p.Time)
	}
	if least.Memory == most.Memory || least.Time >= most.Time {
		return // a line would say no more than the table
	}
	grid := make([][]rune, pictureHeight)
	for i := range grid {
		grid[i] = []rune(strings.Repeat(" ", pictureWidth))
	}
	draw := func(points []point, mark rune) {
		for _, p := range points {
			right := float64(p.Memory-least.Memory) / float64(most.Memory-least.Memory)
			x := int((pictureWidth - 1) * right)
			y := int(float64(pictureHeight-1) * (most.Time - p.Time) / (most.Time - least.Time))
			grid[y][x] = mark
		}
	}
	draw(f.All, '·')
	draw(f.Best, '●')
	left := []string{timeline.Duration(int64(most.Time)), timeline.Duration(int64(least.Time))}
	wide := max(len([]rune(left[0])), len([]rune(left[1])))
	b.WriteByte('\n')
	for i, row := range grid {
		label := ""
		switch i {
		case 0:
			label = left[0]
		case pictureHeight - 1:
			label = left[1]
		}
		fmt.Fprintf(b, "%*s │%s\n", wide, label, strings.TrimRight(string(row), " "))
	}
	what := "time of a step"
	if f.perSample {
		what = "time per sample"
	}
	from, to := o.Units.Bytes(least.Memory), o.Units.Bytes(most.Memory)
	fmt.Fprintf(b, "%s └%s\n", strings.Repeat(" ", wide), strings.Repeat("─", pictureWidth))
	gap := max(pictureWidth-len(from)-len(to), 1)
	fmt.Fprintf(b, "%s  %s%s%s\n", strings.Repeat(" ", wide), from, strings.Repeat(" ", gap), to)
	fmt.Fprintf(b, "%s  %s over memory; ● no other plan beats it, · other plans that fit\n",
		strings.Repeat(" ", wide), what)
}
