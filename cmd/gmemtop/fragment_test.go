package main

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gmemtop/gmemtop/replay/allocator"
)

// fragmenting makes memory snapshots of small programs served by an emulated caching allocator. Unlike
// training's, they can be replayed through one.
type fragmenting struct {
	alloc  *allocator.Caching
	driver *allocator.SimDriver
	now    int64
	events []event
	live   map[string]allocator.Block
}

// shift moves the simulated driver's addresses to where a real driver's lie.
const shift = 1<<48 - 1<<40

func newFragmenting(capacity int64) (*fragmenting, error) {
	f := &fragmenting{driver: allocator.NewDriver(capacity), live: map[string]allocator.Block{},
		now: 1_760_000_000_000_000}
	var err error
	f.alloc, err = allocator.NewCaching(
		allocator.Config{Driver: f.driver, OnSegment: func(e allocator.SegmentEvent) {
			f.event(e.Action.String(), event{"addr": e.Addr - shift, "size": e.Size})
		}})
	return f, err
}

func (f *fragmenting) event(action string, e event) {
	f.now += 10
	e["action"], e["stream"], e["time_us"] = action, 0, f.now
	e["frames"] = []event{{"name": "train_step", "filename": "/project/train.py", "line": 61}}
	f.events = append(f.events, e)
}

func (f *fragmenting) malloc(name string, size int64) error {
	b, err := f.alloc.Malloc(size, 0)
	if errors.Is(err, allocator.ErrOutOfMemory) {
		free, _ := f.driver.MemInfo()
		f.event("oom", event{"device_free": free, "size": size})
		return nil
	}
	f.event("alloc", event{"addr": b.Addr - shift, "size": size})
	f.live[name] = b
	return err
}

func (f *fragmenting) free(name string) error {
	b := f.live[name]
	f.event("free_requested", event{"addr": b.Addr - shift, "size": b.Requested})
	f.event("free_completed", event{"addr": b.Addr - shift, "size": b.Requested})
	return f.alloc.Free(b)
}

func (f *fragmenting) json() ([]byte, error) {
	var segments []event
	for _, s := range f.alloc.Segments() {
		var blocks []event
		var active, requested int64
		for _, b := range s.Blocks {
			blocks = append(blocks, event{"address": b.Addr - shift, "size": b.Size,
				"requested_size": b.Requested, "state": b.State.String(),
				"frames": []event{}})
			if b.State != allocator.Inactive {
				active += b.Size
				requested += b.Requested
			}
		}
		segments = append(segments, event{"device": 0, "address": s.Addr - shift, "total_size": s.Size,
			"allocated_size": active,
			"active_size":    active, "requested_size": requested, "stream": 0,
			"segment_type":    map[bool]string{true: "small", false: "large"}[s.Small],
			"segment_pool_id": []int{0, 0}, "is_expandable": false, "frames": []event{}, "blocks": blocks})
	}
	return json.Marshal(event{"segments": segments, "device_traces": [][]event{f.events},
		"allocator_settings": event{
			"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
			"expandable_segments": false}})
}

// cmdFragment writes a memory snapshot of a program that fragments its memory: "fragment OUT.json oom", which
// runs out, or "fragment OUT.json grow", which takes more and more.
func cmdFragment(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: fragment OUT.json oom|grow")
	}
	const mib = 1 << 20
	f, err := newFragmenting(map[string]int64{"oom": 220 * mib}[args[1]])
	ts.Check(err)
	if args[1] == "oom" {
		ts.Check(f.malloc("scratch", 200*mib))
		ts.Check(f.free("scratch"))
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			ts.Check(f.malloc(name, 40*mib))
		}
		ts.Check(errors.Join(f.free("b"), f.free("d"), f.malloc("f", 60*mib)))
	} else {
		ts.Check(f.malloc("weights", 100*mib))
		for size := int64(24); size <= 40; size += 2 {
			ts.Check(f.malloc("activations", size*mib))
			ts.Check(f.free("activations"))
		}
	}
	text, err := f.json()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text, 0o666))
}
