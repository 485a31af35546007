package headless

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// Keeping says what a recording keeps of a training, and in how many files, as flags give it.
type Keeping struct {
	// Triggers name the events around which steps are kept, none to keep all; Before and After count captured
	// steps.
	Triggers      []string
	Before, After int
	// MaxSize, such as 1GiB, and MaxAge begin a new file, of which the newest Keep are kept; "" and 0 for no
	// limit.
	MaxSize string
	MaxAge  time.Duration
	Keep    int
}

// Options returns the options of a recording to path, which with force replaces an existing file. tell is
// called when a trigger fires, and when the recording fails; its notices begin with who, the process's name,
// unless that is "". An invalid value is a mistake.
func (k *Keeping) Options(path string, force bool, who string,
	tell func(n capture.Notice, failed bool)) (capture.RecordOptions, error) {
	o, err := k.parsed(path)
	if err != nil {
		return o, err
	}
	tellOfRecording(&o, who, tell)
	if force {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return o, err
		}
	}
	return o, nil
}

// parsed returns the options that flags give. The error is a mistake.
func (k *Keeping) parsed(path string) (capture.RecordOptions, error) {
	o := capture.RecordOptions{Path: path, MaxAge: k.MaxAge, Keep: k.Keep, Before: k.Before, After: k.After}
	if k.MaxSize != "" {
		n, err := timeline.ParseBytes(k.MaxSize)
		if err != nil {
			return o, exit.Mistakef("--max-size: %w", err)
		}
		o.MaxBytes = n
	}
	for _, text := range k.Triggers {
		t, err := capture.ParseTrigger(text, timeline.ParseBytes, timeline.ParseDuration)
		if err != nil {
			return o, exit.AsMistake(err)
		}
		o.Triggers = append(o.Triggers, t)
	}
	return o, nil
}

// tellOfRecording has tell called when a trigger of a recording fires, and when the recording fails. The
// notices begin with who, the process's name, unless that is "".
func tellOfRecording(o *capture.RecordOptions, who string, tell func(n capture.Notice, failed bool)) {
	if who != "" {
		who += ": "
	}
	o.Fired = func(t *capture.Trigger, s capture.Step, why string) {
		n := capture.Say(say.Triggered, t, why, s.Index)
		n.Key, n.Text = n.Key+" "+t.String(), who+n.Text
		tell(n, false)
	}
	o.Failed = func(err error) {
		n := capture.Say(say.RecordingStopped, report.Printable(strings.TrimSpace(err.Error())))
		n.Text = who + n.Text
		tell(n, true)
	}
}
