package allocator

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

func TestSettingsAreReadAsPyTorchReadsThem(t *testing.T) {
	old := Version{2, 7}
	for _, c := range []struct {
		conf  string
		torch Version
		want  Settings
		err   string
	}{
		{conf: ""},
		{conf: "expandable_segments:True,", want: Settings{ExpandableSegments: true}},
		{conf: " expandable_segments : False , max_split_size_mb : 64 ",
			want: Settings{MaxSplitSize: 64 << 20}},
		{conf: "large_segment_size_mb:15,max_split_size_mb:20,max_non_split_rounding_mb:40," +
			"garbage_collection_threshold:0.8",
			want: Settings{LargeSegmentSize: 15 << 20, MaxSplitSize: 20 << 20, MaxNonSplitRounding: 40 << 20,
				GarbageCollectionThreshold: 0.8}},
		{conf: "backend:native,per_process_memory_fraction:1.0",
			want: Settings{Backend: "native", MemoryFraction: 1}},
		{conf: "roundup_power2_divisions:4",
			want: Settings{RoundupPower2Divisions: [16]int64{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
				4}}},
		// The cases of PyTorch's own test (AllocatorConfig_test).
		{conf: "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]", torch: old,
			want: Settings{Torch: old, RoundupPower2Divisions: [16]int64{8, 8, 8, 8, 8, 8, 8, 2, 4, 2, 1, 1,
				1, 1, 1, 1}}},
		{conf: "roundup_power2_divisions:[128:8,256:16,512:1,2048:8,>:2]", torch: old,
			want: Settings{Torch: old, RoundupPower2Divisions: [16]int64{8, 8, 8, 8, 8, 8, 8, 8, 16, 1, 0, 2,
				2, 2, 2, 2}}},
		{conf: "roundup_power2_divisions:[128:8,256:16,512:1,2048:8,>:2]",
			want: Settings{RoundupPower2Divisions: [16]int64{8, 8, 8, 8, 8, 8, 8, 8, 16, 1, 0, 8, 2, 2, 2,
				2}}},
		{conf: "pinned_num_register_threads:8,release_lock_on_cudamalloc:True",
			want: Settings{Unmodelled: []string{"pinned_num_register_threads:8",
				"release_lock_on_cudamalloc:True"}}},
		{conf: "foo:123", err: "no such option"},
		{conf: "max_split_size_mb:20,large_segment_size_mb:25", err: "at least 25"},
		{conf: "max_split_size_mb:10", err: "at least 20"},
		{conf: "max_split_size_mb", err: "no value"},
		{conf: "max_split_size_mb:many", err: "not a number"},
		{conf: "garbage_collection_threshold:1.0", err: "not a share"},
		{conf: "garbage_collection_threshold:NaN", err: "not a share"},
		{conf: "expandable_segments:yes", err: "neither True nor False"},
		{conf: "expandable_segments:True max_split_size_mb:64", err: "neither"},
		{conf: "roundup_power2_divisions:3", err: "power of two"},
		{conf: "roundup_power2_divisions:[64:8", err: "no end"},
		{conf: "roundup_power2_divisions:[64]", err: "size:divisions"},
		{conf: "roundup_power2_divisions:[64:8 128:2]", err: "power of two"},
		{conf: "backend:other", err: "neither native"},
		{conf: "max_split_size_mb:64]", err: "separate"},
	} {
		got, err := ParseSettingsOf(c.torch, c.conf)
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%q: %v", c.conf, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q: error %v, want one with %q", c.conf, err, c.err)
		case c.err == "" && !reflect.DeepEqual(got, c.want):
			t.Errorf("%q: got %+v, want %+v", c.conf, got, c.want)
		}
	}
}

func TestSnapshotSettingsPreferTheValuesInForce(t *testing.T) {
	values := map[string]string{
		"PYTORCH_CUDA_ALLOC_CONF": `"large_segment_size_mb:12,expandable_segments:True"`,
		"max_split_size":          "-1", "garbage_collection_threshold": "0.0",
		"expandable_segments": "false", "roundup_power2_divisions": `{"1":0,"2":4,"32768":8,"9":2}`,
	}
	s, known, err := SnapshotSettings(Version{}, func(k string) string { return values[k] })
	want := Settings{LargeSegmentSize: 12 << 20}
	want.RoundupPower2Divisions[1], want.RoundupPower2Divisions[15] = 4, 8
	if err != nil || !known || !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v, %t, %v", s, known, err)
	}
	if s, known, err := SnapshotSettings(Version{}, func(string) string { return "" }); err != nil || known ||
		!reflect.DeepEqual(s, Settings{}) {
		t.Errorf("for nothing: %+v, %t, %v", s, known, err)
	}
	for key, value := range map[string]string{"PYTORCH_CUDA_ALLOC_CONF": `"new_option:1"`,
		"max_split_size": `"x"`, "PYTORCH_ALLOC_CONF": `{}`} {
		if _, _, err := SnapshotSettings(Version{}, func(k string) string {
			if k == key {
				return value
			}
			return ""
		}); err == nil {
			t.Errorf("%s=%s was accepted", key, value)
		}
	}
}

func TestRoundingNeverShrinksAndIsIdempotentWithoutDivisions(t *testing.T) {
	var plain Settings
	for _, size := range []int64{0, 1, 511, 512, 513, 1 << 20, 1<<20 + 1, maxRequest} {
		r := plain.Round(size)
		if r < size || r%torchalloc.MinBlock != 0 || plain.Round(r) != r {
			t.Errorf("%d becomes %d", size, r)
		}
		if segment, small := plain.SegmentFor(r); segment < r || small != (r <= torchalloc.SmallSize) {
			t.Errorf("a block of %d gets a segment of %d", r, segment)
		}
	}
}

func FuzzParseSettings(f *testing.F) {
	for _, s := range []string{"", "expandable_segments:True",
		"roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "max_split_size_mb:99999999999999",
		"garbage_collection_threshold:0.5,backend:native", "[[[:::,,,", "roundup_power2_divisions:[>:4]"} {
		f.Add(s, int64(1<<21+7))
	}
	f.Fuzz(func(t *testing.T, conf string, size int64) {
		s, err := ParseSettings(conf)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "allocator settings: ") {
				t.Errorf("error %q", err)
			}
			return
		}
		if size < 0 || size > maxRequest {
			size = int64(uint64(size) % maxRequest)
		}
		r := s.Round(size)
		if r < size || r < torchalloc.MinBlock || r > 2*size+torchalloc.MinBlock {
			t.Errorf("%q: %d becomes %d", conf, size, r)
		}
		if segment, _ := s.SegmentFor(r); segment < r {
			t.Errorf("%q: a block of %d gets a segment of %d", conf, r, segment)
		}
		if g := s.GarbageCollectionThreshold; math.IsNaN(g) || g < 0 || g >= 1 {
			t.Errorf("%q: threshold %v", conf, g)
		}
		// Parsed settings can be written and parsed again.
		again := fmt.Sprintf("expandable_segments:%s",
			map[bool]string{true: "True", false: "False"}[s.ExpandableSegments])
		if twin, err := ParseSettings(again); err != nil || twin.ExpandableSegments != s.ExpandableSegments {
			t.Errorf("%q: %v", again, err)
		}
	})
}
