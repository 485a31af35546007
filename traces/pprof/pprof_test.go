package pprof_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/internal/tracetext"
	"github.com/gmemtop/gmemtop/traces/pprof"
)

// memoryProfile is shaped as JAX writes it: buffers and an executable on two accelerators, one site inlined
// into another.
func memoryProfile() *profile.Profile {
	step := &profile.Function{ID: 1, Name: "train_step", Filename: "train.py"}
	init := &profile.Function{ID: 2, Name: "init", Filename: "model.py"}
	outer := &profile.Location{ID: 1, Line: []profile.Line{{Function: step, Line: 40}}}
	inner := &profile.Location{ID: 2, Line: []profile.Line{{Function: init, Line: 7},
		{Function: step, Line: 38}}}
	return &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "allocations", Unit: "count"},
			{Type: "space", Unit: "bytes"}},
		Function: []*profile.Function{step, init},
		Location: []*profile.Location{outer, inner},
		Sample: []*profile.Sample{
			{Value: []int64{1, 300}, Label: map[string][]string{"kind": {"executable"}}},
			{Value: []int64{3, 4096}, Location: []*profile.Location{inner, outer},
				Label: map[string][]string{"kind": {"buffer"}, "device": {"gpu:1"}}},
			{Value: []int64{2, 2048}, Location: []*profile.Location{outer},
				Label: map[string][]string{"kind": {"buffer"}, "device": {"gpu:0"}}},
			{Value: []int64{1, 0}, Label: map[string][]string{"device": {"TFRT_CPU_0"}}},
			{Value: []int64{1, -5}, Label: map[string][]string{"device": {"gpu:0"}}},
		},
		TimeNanos: 1700000000000000000,
	}
}

func encode(t testing.TB, p *profile.Profile) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := p.WriteUncompressed(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const want = `source jax_memory_profile tool="jax.profiler" synthetic=true kind=point
process pid=-1 rank=-1 world=-1 host=""
clock time=false resolution=0 epoch=1700000000000000000
device 0 gpu:0 name="gpu:0" total=0
device 1 gpu:1 name="gpu:1" total=0
segment device=0 addr=0x1000000000000 total=2348 allocated=2348 active=2348 wanted=2348 blocks=[0,2)
segment device=1 addr=0x2000000000000 total=4096 allocated=4096 active=4096 wanted=4096 blocks=[2,3)
block addr=0x1000000000000 size=300 requested=300 count=1 active_allocated extra={"kind":"executable"}
  stack: compiled programs
block addr=0x100000000012c size=2048 requested=2048 count=2 active_allocated extra={"kind":"buffer"}
  stack: train_step (train.py:40)
block addr=0x2000000000000 size=4096 requested=4096 count=3 active_allocated extra={"kind":"buffer"}
  stack: init (model.py:7) < train_step (train.py:38) < train_step (train.py:40)
loss samples_empty info 1: samples of 0 bytes are left out
loss samples_malformed data_loss 1: samples with a negative or impossible size
`

func TestRead(t *testing.T) {
	data := encode(t, memoryProfile())
	if !pprof.Sniff(data) {
		t.Error("the profile is not recognised")
	}
	tr, err := pprof.Read(t.Context(), bytes.NewReader(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	tracetext.Write(&out, tr)
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestOtherProfilesAreRefusedByWhatTheyMeasure(t *testing.T) {
	p := memoryProfile()
	p.SampleType = []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}
	data := encode(t, p)
	if !pprof.Sniff(data) {
		t.Error("a CPU profile is not recognised as a profile")
	}
	_, err := pprof.Read(t.Context(), bytes.NewReader(data), nil)
	if !errors.Is(err, traces.ErrUnsupported) || !strings.Contains(err.Error(), "cpu/nanoseconds") {
		t.Errorf("got %v", err)
	}
}

func TestEveryPrefix(t *testing.T) {
	data := encode(t, memoryProfile())
	for n := range data {
		tr, err := pprof.Read(t.Context(), bytes.NewReader(data[:n]), nil)
		if tr == nil && err == nil || tr != nil && err != nil {
			t.Fatalf("%d of %d bytes: %v, %v", n, len(data), tr, err)
		}
	}
}

func TestSniffRefusesOtherProfiles(t *testing.T) {
	for _, s := range []string{"", "\n", "\n\n\n\n\n\n\n", "\nid,lower,upper,size", "\x80\x04\x95", "{}"} {
		if pprof.Sniff([]byte(s)) {
			t.Errorf("%q was taken for a profile", s)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encode(f, memoryProfile()))
	f.Add([]byte("\x0a\x04\x08\x01\x10\x02"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pprof.Sniff(data)
		tr, err := pprof.Read(t.Context(), bytes.NewReader(data), nil)
		if tr == nil && err == nil {
			t.Fatal("neither a trace nor an error")
		}
		if tr == nil {
			return
		}
		for _, s := range tr.Final.Segments {
			sum := int64(0)
			for _, b := range tr.Final.Blocks[s.FirstBlock:s.EndBlock] {
				sum += b.Size
			}
			if sum != s.TotalSize {
				t.Fatalf("a segment of %d bytes holds %d", s.TotalSize, sum)
			}
		}
	})
}
