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
		{"that needs another file", []string{"1", "w"}, "no other file is open"},
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

func TestAMessageAboutAViewGoesWithTheView(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0))}, 120, 24)
	d.press("1", "K")
	d.wants("K does nothing here")
	if d.press("2"); strings.Contains(d.screen(), "does nothing here") {
		t.Errorf("the next view shows what was said in the one before:\n%s", d.screen())
	}
}
