package tui

import (
	"context"
	"fmt"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

var sizes = [][2]int{{80, 24}, {120, 40}, {200, 60}}

func TestScreens(t *testing.T) {
	views := []leaf.ID{leaf.Overview, leaf.Timeline, leaf.Peak}
	for _, size := range sizes {
		for _, id := range views {
			name := fmt.Sprintf("view-%c-%dx%d", id, size[0], size[1])
			t.Run(name, func(t *testing.T) {
				d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0)), View: id}, size[0],
					size[1])
				d.golden(name)
			})
		}
	}
}

func TestSituations(t *testing.T) {
	second := func(t *testing.T) *driver {
		return start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0),
			training(t, "runs/b.gmt", 256<<20))}, 120, 40)
	}
	one := func(t *testing.T, w, h int, keys ...string) *driver {
		d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 128<<20))}, w, h)
		d.press(keys...)
		return d
	}
	for name, open := range map[string]func(t *testing.T) *driver{
		"too-small-50x12":      func(t *testing.T) *driver { return one(t, 50, 12) },
		"smallest-60x16":       func(t *testing.T) *driver { return one(t, 60, 16) },
		"largest-300x100":      func(t *testing.T) *driver { return one(t, 300, 100) },
		"help-80x24":           func(t *testing.T) *driver { return one(t, 80, 24, "?") },
		"help-120x40":          func(t *testing.T) *driver { return one(t, 120, 40, "?") },
		"palette-120x40":       func(t *testing.T) *driver { return one(t, 120, 40, ":") },
		"export-80x24":         func(t *testing.T) *driver { return one(t, 80, 24, "e") },
		"selected-timeline":    func(t *testing.T) *driver { return one(t, 120, 40, "2", "up", "up") },
		"selected-timeline-80": func(t *testing.T) *driver { return one(t, 80, 24, "2", "up") },
		"zoomed-timeline":      func(t *testing.T) *driver { return one(t, 120, 40, "2", "+", "+", "v") },
		"compared-peak": func(t *testing.T) *driver {
			return one(t, 120, 40, "c", "g", "]", "}", "d")
		},
		"peak-icicle-80x24": func(t *testing.T) *driver { return one(t, 80, 24, "3", "i", "down", "enter") },
		"events-axis":       func(t *testing.T) *driver { return one(t, 80, 24, "x") },
		"two-files-second": func(t *testing.T) *driver {
			d := second(t)
			d.press("w", "down", "enter")
			return d
		},
		"lossy-80x24": func(t *testing.T) *driver {
			return start(t, Options{Loader: loaderOf(lossy(t))}, 80, 24)
		},
		"empty-80x24": func(t *testing.T) *driver {
			return start(t, Options{Loader: loaderOf(empty(t))}, 80, 24)
		},
		"moment-80x24": func(t *testing.T) *driver {
			return start(t, Options{Loader: loaderOf(moment(t))}, 80, 24)
		},
		"moment-120x40": func(t *testing.T) *driver {
			return start(t, Options{Loader: loaderOf(weights(t))}, 120, 40)
		},
		"moment-200x60": func(t *testing.T) *driver {
			return start(t, Options{Loader: loaderOf(weights(t))}, 200, 60)
		},
		"moment-timeline-80x24": func(t *testing.T) *driver {
			return start(t, Options{Loader: loaderOf(moment(t)), View: leaf.Timeline}, 80, 24)
		},
		"error-80x24": func(t *testing.T) *driver { return start(t, Options{Loader: failing(nil)}, 80, 24) },
		"partial-80x24": func(t *testing.T) *driver {
			return start(t, Options{Loader: failing(training(t, "runs/train.gmt", 0))}, 80, 24)
		},
		"nothing-to-open-80x24": func(t *testing.T) *driver { return start(t, Options{}, 80, 24) },
		"ascii-80x24": func(t *testing.T) *driver {
			return start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0)), ASCII: true,
				Color: "never"}, 80, 24)
		},
		"mono-120x40": func(t *testing.T) *driver {
			return start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0)), Color: "never"}, 120,
				40)
		},
		"mono-timeline-120x40": func(t *testing.T) *driver {
			return start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0)), Color: "never",
				View: leaf.Timeline}, 120, 40)
		},
		"loading-80x24": loadingScreen,
	} {
		t.Run(name, func(t *testing.T) { open(t).golden(name) })
	}
}

// failing is a Loader whose file is damaged; it returns the sound part.
func failing(sound ...*timeline.Timeline) Loader {
	return func(context.Context, func(string, int64, int64)) (Loaded, error) {
		var l Loaded
		for _, t := range sound {
			if t != nil {
				l.Timelines = append(l.Timelines, t)
			}
		}
		return l, fmt.Errorf("open runs/train.gmt: %w", errDamaged)
	}
}

// loadingScreen is a load that makes no progress.
func loadingScreen(t *testing.T) *driver {
	d := start(t, Options{}, 80, 24)
	d.m.loader.start(loaderOf(), "runs/train.gmt", false)
	d.m.loader.current.report("reading", 31<<20, 80<<20)
	return d
}
