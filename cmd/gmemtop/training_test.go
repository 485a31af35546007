package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// training makes memory snapshots of a made-up training run, as torch.cuda.memory._snapshot gives them:
// layers that allocate activations forward and free them backward, parameters, gradients and optimizer state,
// segments from the driver as needed. It shares nothing with gmemtop but the format.
type training struct {
	steps, layers, batch, devices int
	oom, ring, expandable         bool
	delay                         bool // every eighth free waits for another stream
	seed                          uint64
	lines                         int // shift of source lines
	warmup                        int // MiB that only the first step takes
	user                          string

	rng    *rand.Rand
	now    int64
	events [][]event
	marks  []map[string]any
	pools  []*memoryPool
}

type event = map[string]any

type memoryPool struct {
	top, end int64
	segments []segmentRange
	free     map[int64][]int64
	live     map[int64]held
}

type segmentRange struct{ from, to int64 }

type held struct {
	size    int64
	frames  []event
	pending bool
}

// newTraining reads key=value words: steps, layers, batch, devices, seed, lines, user, warmup, and the
// switches oom, ring, expandable, delay.
func newTraining(words []string) (*training, error) {
	t := &training{steps: 3, layers: 4, batch: 8, devices: 1, user: "alice", now: 1_760_000_000_000_000}
	numbers := map[string]*int{"steps": &t.steps, "layers": &t.layers, "batch": &t.batch,
		"devices": &t.devices, "lines": &t.lines,
		"warmup": &t.warmup}
	switches := map[string]*bool{"oom": &t.oom, "ring": &t.ring, "expandable": &t.expandable,
		"delay": &t.delay}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch {
		case numbers[key] != nil:
			n, err := strconv.Atoi(value)
			if err != nil {
				return nil, err
			}
			*numbers[key] = n
		case switches[key] != nil:
			*switches[key] = true
		case key == "seed":
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return nil, err
			}
			t.seed = n
		case key == "user":
			t.user = value
		default:
			return nil, fmt.Errorf("train: unknown word %q", w)
		}
	}
	t.rng = rand.New(rand.NewPCG(t.seed, 1))
	for d := range t.devices {
		base := int64(0x7f00_0000_0000) + int64(d)<<40
		t.pools = append(t.pools, &memoryPool{top: base, end: base, free: map[int64][]int64{},
			live: map[int64]held{}})
		t.events = append(t.events, nil)
		t.device(d)
	}
	return t, nil
}

func (t *training) frames(names ...string) []event {
	var out []event
	for _, n := range names {
		fn, place, _ := strings.Cut(n, "@")
		file, line, _ := strings.Cut(place, ":")
		at, _ := strconv.Atoi(line)
		if strings.HasPrefix(file, "torch/") {
			file = "/opt/venv/lib/python3.12/site-packages/" + file
		} else {
			file, at = "/home/"+t.user+"/project/"+file, at+t.lines
		}
		out = append(out, event{"name": fn, "filename": file, "line": at})
	}
	return append(out, event{"name": "train_step", "filename": "/home/" + t.user + "/project/train.py",
		"line": 61 + t.lines},
		event{"name": "<module>", "filename": "/home/" + t.user + "/project/train.py", "line": 90 + t.lines})
}

func (t *training) emit(d int, action string, addr, size int64, frames []event) {
	t.now += 1 + t.rng.Int64N(7)
	e := event{"action": action, "addr": addr, "size": size, "stream": 0, "time_us": t.now}
	if action == "oom" {
		delete(e, "addr")
		e["device_free"] = addr
	}
	if frames != nil {
		e["frames"] = frames
	}
	t.events[d] = append(t.events[d], e)
}

func rounded(size int64) int64 { return max((size+511)&^511, 512) }

func (t *training) alloc(d int, size int64, frames []event) int64 {
	p, r := t.pools[d], rounded(size)
	var addr int64
	if list := p.free[r]; len(list) > 0 {
		addr, p.free[r] = list[len(list)-1], list[:len(list)-1]
	} else {
		if p.top+r > p.end {
			grow := (max(r, 20<<20) + 2<<20 - 1) &^ (2<<20 - 1)
			action, at := "segment_alloc", p.end
			if t.expandable {
				action = "segment_map"
			} else {
				p.top, at = p.end, p.end
			}
			t.emit(d, action, at, grow, frames)
			p.segments = append(p.segments, segmentRange{at, at + grow})
			p.end += grow
		}
		addr, p.top = p.top, p.top+r
	}
	t.emit(d, "alloc", addr, size, frames)
	p.live[addr] = held{size: size, frames: frames}
	return addr
}

func (t *training) release(d int, addr int64) {
	p := t.pools[d]
	h := p.live[addr]
	t.emit(d, "free_requested", addr, h.size, h.frames)
	if t.delay && t.rng.IntN(8) == 0 {
		h.pending = true
		p.live[addr] = h
		return
	}
	t.complete(d, addr)
}

func (t *training) complete(d int, addr int64) {
	p := t.pools[d]
	h := p.live[addr]
	t.emit(d, "free_completed", addr, h.size, h.frames)
	delete(p.live, addr)
	p.free[rounded(h.size)] = append(p.free[rounded(h.size)], addr)
}

// device plays the whole run on one device.
func (t *training) device(d int) {
	weight := func(i int) int64 { return int64(600_000 + 131_072*i) }
	for i := range t.layers {
		t.alloc(d, weight(i), t.frames("__init__@torch/nn/modules/linear.py:106",
			fmt.Sprintf("__init__@model.py:%d", 10+i)))
	}
	for step := range t.steps {
		t.mark(d, fmt.Sprintf("ProfilerStep#%d", step), "START")
		var saved, grads []int64
		for i := range t.layers {
			place := fmt.Sprintf("forward@model.py:%d", 20+i)
			temp := t.alloc(d, int64(t.batch)*70_001, t.frames("gelu@torch/nn/functional.py:1820", place))
			saved = append(saved, t.alloc(d, int64(t.batch)*(250_000+int64(i)*1000),
				t.frames("forward@torch/nn/modules/linear.py:125", place)))
			t.release(d, temp)
		}
		if t.oom && step == t.steps-1 {
			t.emit(d, "oom", 5<<20, int64(t.batch)*40<<20,
				t.frames("cross_entropy@torch/nn/functional.py:3480"))
			break
		}
		logits := t.alloc(d, int64(t.batch)*1_000_000, t.frames("cross_entropy@torch/nn/functional.py:3480"))
		if step == 0 && t.warmup > 0 { // MiB of workspace, as cuDNN's benchmark takes in the first step
			t.release(d, t.alloc(d, int64(t.warmup)<<20, t.frames("conv2d@torch/nn/functional.py:540")))
		}
		for i := t.layers - 1; i >= 0; i-- {
			grads = append(grads, t.alloc(d, weight(i), t.frames("backward@torch/autograd/__init__.py:347")))
			t.release(d, saved[i])
		}
		t.release(d, logits)
		for i := range t.layers {
			if step == 0 {
				t.alloc(d, 2*weight(i),
					t.frames("_init_group@torch/optim/adamw.py:150", "step@torch/optim/adamw.py:200"))
			}
			t.release(d, grads[i])
		}
		t.mark(d, fmt.Sprintf("ProfilerStep#%d", step), "END")
	}
	if t.ring { // what a ring buffer loses: the oldest events
		t.events[d] = t.events[d][len(t.events[d])/3:]
	}
}

func (t *training) mark(d int, name, stage string) {
	if d == 0 {
		t.marks = append(t.marks, map[string]any{"name": name, "stage": stage, "device": d, "time_us": t.now})
	}
}

// blocks tiles a segment with its blocks.
func (p *memoryPool) blocks(s segmentRange) (blocks []event, allocated, active, requested int64) {
	for at := s.from; at < s.to; {
		if h, ok := p.live[at]; ok {
			state := "active_allocated"
			active += rounded(h.size)
			if h.pending {
				state = "active_pending_free"
			} else {
				allocated += rounded(h.size)
			}
			requested += h.size
			blocks = append(blocks, event{"address": at, "size": rounded(h.size), "requested_size": h.size,
				"state":  state,
				"frames": h.frames})
			at += rounded(h.size)
			continue
		}
		next := s.to
		for a := range p.live {
			if a > at {
				next = min(next, a)
			}
		}
		blocks = append(blocks, event{"address": at, "size": next - at, "requested_size": 0,
			"state": "inactive", "frames": []event{}})
		at = next
	}
	return blocks, allocated, active, requested
}

func (t *training) json() []byte {
	segments := []event{}
	for d, p := range t.pools {
		ranges := p.segments
		if t.expandable && len(ranges) > 0 {
			ranges = []segmentRange{{ranges[0].from, p.end}}
		}
		for _, s := range ranges {
			blocks, allocated, active, requested := p.blocks(s)
			segments = append(segments, event{"device": d, "address": s.from, "total_size": s.to - s.from,
				"allocated_size": allocated,
				"active_size":    active, "requested_size": requested, "stream": 0, "segment_type": "large",
				"segment_pool_id": []int{0, 0},
				"is_expandable":   t.expandable, "frames": []event{}, "blocks": blocks})
		}
	}
	b, err :=
		json.Marshal(event{"segments": segments, "device_traces": t.events, "external_annotations": t.marks,
			"allocator_settings": event{"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
				"garbage_collection_threshold": 0.0,
				"expandable_segments":          t.expandable}})
	if err != nil {
		panic(err) // maps of plain values always marshal
	}
	return b
}
