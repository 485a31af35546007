//go:build !nobus

package hub

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a hub has written is gone when it is closed, and also if it does not start at all.
func TestAHubLeavesNothingBehind(t *testing.T) {
	for name, c := range map[string]struct {
		metrics string
		mistake bool
	}{"closed": {"", false}, "open to all": {":0", true}, "no address": {"x", false}} {
		dir := t.TempDir()
		t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
		t.Setenv("TMPDIR", dir)
		said := func(text string) { t.Errorf("%s: %s", name, text) }
		h, err := Open(Options{Run: "r1", Life: time.Hour, JoinFile: filepath.Join(dir, "r1.join"),
			ViewFile: filepath.Join(dir, "r1.view"), Metrics: c.metrics, Note: said, Complain: said})
		if (err == nil) != (c.metrics == "") || errors.As(err, new(*Mistake)) != c.mistake {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if _, err := os.Stat(filepath.Join(dir, "r1.view")); err != nil {
				t.Error(err)
			}
			h.Close()
		}
		left, _ := filepath.Glob(filepath.Join(dir, "*"))
		notes, _ := filepath.Glob(filepath.Join(dir, "cache", "gmemtop", "hubs", "*"))
		if len(left) != 1 || len(notes) > 0 { // the cache
			t.Errorf("%s: left behind: %q %q", name, left, notes)
		}
	}
}

func TestOptionsThatDoNotGoTogetherAreMistakes(t *testing.T) {
	for want, change := range map[string]func(o *Options){
		"":                 func(*Options) {},
		"name the file":    func(o *Options) { o.JoinFile = "" },
		"name the run":     func(o *Options) { o.Run = "" },
		"listen and store": func(o *Options) { o.URL, o.ViewFile = "tls://nats.site:4222", "r1.view" },
		"--creds is for":   func(o *Options) { o.Credentials = "r1.creds" },
		"listen and store: le": func(o *Options) {
			o.URL, o.Leaf = "tls://nats.site:4222",
				"tls://leaf:7422"
		},
	} {
		o := Options{Run: "r1", JoinFile: "r1.join"}
		change(&o)
		err := o.Check()
		if want == "" && err != nil || want != "" && (!errors.As(err, new(*Mistake)) ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want a mistake with %q", o, err, want)
		}
	}
}
