package sweep

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Where nothing fits, the text names the smallest plan that there is, and each reason once, with its rows.
func TestWhereNothingFitsTheTextSaysWhy(t *testing.T) {
	row := func(manager, status, reason string, footprint maybe.Int) Row {
		return Row{Trace: "a.gmt", Hash: "a", Manager: manager, Status: status, Reason: reason,
			Footprint: footprint, Outside: maybe.Known(0)}
	}
	done := []Done{{"k", []Row{
		row("sqrt", "unavailable", "no ops", maybe.Int{}),
		row("joint", tooLarge, "", maybe.Known(3<<20)),
		row("home", "unavailable", "no clock", maybe.Int{}),
		row("exact", tooLarge, "", maybe.Known(2<<20)),
		row("dtr", "unavailable", "no ops", maybe.Int{}),
	}}}
	var b strings.Builder
	if err := WriteText(&b, done, TextOptions{Units: timeline.IEC}); err != nil {
		t.Fatal(err)
	}
	const want = "a.gmt: none of 5 plans fits: the smallest needs 2.00 MiB, with exact\n" +
		"  2 plans not made: no ops\n  1 plan not made: no clock\n"
	if b.String() != want {
		t.Errorf("the text is\n%s", b.String())
	}
}
