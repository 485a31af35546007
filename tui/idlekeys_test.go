package tui

import (
	"strings"
	"testing"
)

func TestAKeyThatDoesNothingSaysSo(t *testing.T) {
	open := func(t *testing.T) *driver {
		return start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0))}, 120, 24)
	}
	for _, c := range []struct {
		name string
		keys []string
		want string
	}{
		{"that no view has", []string{"1", "K"}, "K does nothing here; ? lists the keys that do"},
		{"of another view", []string{"1", "V"}, "V does nothing here; it works in Timeline (2)"},
		{"that needs a mark", []string{"6", "d"}, "no moment is marked: c marks this one"},
		{"that needs a search", []string{"6", "n"}, "no search: / starts one"},
		{"that needs another file", []string{"1", "w"}, "no other file or rank is open"},
		{"in a view that is empty", []string{"7", "r"}, "r does nothing here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t)
			d.press(c.keys...)
			d.wants(c.want)
		})
	}
	d := open(t)
	before := d.screen()
	if d.press("esc"); strings.Contains(d.screen(), "nothing here") {
		t.Errorf("esc, which people press without expecting anything, has an answer:\n%s\nbefore:\n%s",
			d.screen(), before)
	}
}

// Where there is one moment, d does not ask for a mark that c cannot set.
func TestARecordingOfOneMomentSaysThatItHasNoOther(t *testing.T) {
	for _, key := range []string{"c", "d", "'", "p", "[", "+", "z", ","} {
		d := start(t, Options{Loader: loaderOf(moment(t))}, 120, 24)
		d.press("1", key)
		d.wants("this recording shows a single moment: there is no other to go to")
	}
}

// A key that moves nothing says why; one that moves what this view does not show says where to see it.
func TestAMoveThatIsNotSeenIsTold(t *testing.T) {
	for _, c := range []struct {
		name string
		keys []string
		want string
	}{
		{"to the peak, at the peak", []string{"1", "p"}, "this is the peak"},
		{"left of the start", []string{"1", "g", "h"}, "this is the start of the recording"},
		{"an event beyond the end", []string{"2", "G", ".", "."}, "this is the end of the recording"},
		{"out of the whole", []string{"1", "-"}, "the whole recording is in view already"},
		{"the cursor, in Trace", []string{"0", ","}, "now, in Overview (1) and Timeline (2)"},
		{"the window, in Trace", []string{"0", "+"}, "changed in Overview (1) and Timeline (2)"},
		{"out of the whole, in OOM", []string{"8", "z"}, "the whole recording is in view already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0))}, 120, 24)
			d.press(c.keys...)
			d.wants(c.want)
		})
	}
	d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0))}, 120, 24)
	if d.press("2", ","); strings.Contains(d.screen(), "Overview (1) and Timeline (2)") {
		t.Errorf("Timeline shows the cursor, and yet it says where to see it:\n%s", d.screen())
	}
}

func TestAMessageAboutAViewGoesWithTheView(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0))}, 120, 24)
	d.press("1", "K")
	d.wants("K does nothing here")
	if d.press("2"); strings.Contains(d.screen(), "does nothing here") {
		t.Errorf("the next view shows what was said in the one before:\n%s", d.screen())
	}
}
