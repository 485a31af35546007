package headless

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/capture/usdt"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
)

func TestWhatARecordingKeepsIsReadFromFlags(t *testing.T) {
	k := Keeping{Triggers: []string{"oom", "allocated>60GiB"}, Before: 2, After: 1, MaxSize: "1GiB",
		MaxAge: time.Hour, Keep: 3}
	o, err := k.parsed("run.gmt")
	if err != nil || o.Path != "run.gmt" || o.Before != 2 || o.After != 1 || o.MaxBytes != 1<<30 ||
		o.MaxAge != time.Hour || o.Keep != 3 || len(o.Triggers) != 2 {
		t.Errorf("%+v %v", o, err)
	}
	for want, k := range map[string]Keeping{
		"--max-size": {MaxSize: "large"},
		"nonsense":   {Triggers: []string{"nonsense"}},
	} {
		if _, err := k.parsed("run.gmt"); !exit.IsMistake(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want a mistake with %q", k, err, want)
		}
	}
}

// Whether probes can be placed is only asked once the flags make sense.
func TestProbesRefuseWhatTheyCannotSee(t *testing.T) {
	for want, p := range map[string]Probes{
		"not one of auto":   {PID: 1, Kind: "all"},
		"neither steps nor": {PID: 1, Kind: "auto", Triggers: []string{"allocated>1GiB", "leak > 1MiB/step"}},
	} {
		if _, err := p.Source(); !exit.IsMistake(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want a mistake with %q", p, err, want)
		}
	}
	for err, want := range map[error]bool{
		usdt.ErrPermission: true, usdt.ErrUnsupported: true, usdt.ErrNoProbes: true,
		usdt.ErrNoProcess: false, usdt.ErrNotLoaded: false,
	} {
		if got := exit.IsUnsupported(refused(fmt.Errorf("p: %w", err))); got != want {
			t.Errorf("%v is unsupported: %v", err, got)
		}
	}
}

func TestNoticesOfARecordingNameTheProcess(t *testing.T) {
	k := Keeping{Triggers: []string{"oom"}}
	for who, begin := range map[string]string{"": "", "rank 1": "rank 1: "} {
		var said []string
		o, err := k.Options("run.gmt", false, who, func(n capture.Notice, failed bool) {
			if !strings.HasPrefix(n.Text, begin) || strings.ContainsAny(n.Text, "\x1b\n") {
				t.Errorf("%q: %q", who, n.Text)
			}
			said = append(said, fmt.Sprint(n.Key, " ", failed))
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Fired(o.Triggers[0], capture.Step{Index: 7}, "it ran out of memory")
		o.Failed(errors.New("no space\x1b[2J left\n"))
		want := []string{say.Triggered.Key() + " oom false", say.RecordingStopped.Key() + " true"}
		if !slices.Equal(said, want) {
			t.Errorf("%q: %q, not %q", who, said, want)
		}
	}
}

func TestACaptureIsCheckedBeforeItAsksTheHub(t *testing.T) {
	for want, change := range map[string]func(c *Capture){
		"":               func(*Capture) {},
		"--steps 0":      func(c *Capture) { c.Steps = 0 },
		"--steps 1001":   func(c *Capture) { c.Steps = 1001 },
		`--depth "deep"`: func(c *Capture) { c.Depth = "deep" },
		"x":              func(c *Capture) { c.Ranks = "x" },
	} {
		c := Capture{Ranks: "outliers,0", Steps: 1}
		change(&c)
		err := c.Check()
		if want == "" && err != nil || want != "" && (!exit.IsMistake(err) ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want a mistake with %q", c, err, want)
		}
	}
}
