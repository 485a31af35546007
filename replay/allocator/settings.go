package allocator

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// Settings are the caching allocator's settings from PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF in newer
// versions). The zero value is PyTorch's default.
type Settings struct {
	// Torch is the release whose rules are followed; the zero Version follows the newest ones.
	Torch Version
	// Backend is the allocator in use: native, cudaMallocAsync, or pluggable, which is one of the program's
	// own; "" means native. Only native is emulated.
	Backend string
	// MaxSplitSize is the size in bytes from which blocks are not split, 0 for no limit.
	MaxSplitSize int64
	// MaxNonSplitRounding is how much larger than a request a block beyond MaxSplitSize may be, 0 for the
	// default of 20 MiB.
	MaxNonSplitRounding int64
	// LargeSegmentSize is the segment that requests of more than 1 MiB and less than 10 MiB share, and the
	// page of expandable segments for large blocks; 0 for the default of 20 MiB. It cannot be set in versions
	// up to torch 2.9.
	LargeSegmentSize int64
	// GarbageCollectionThreshold is the share of the cap from which unused blocks are released, 0 for never.
	GarbageCollectionThreshold float64
	// ExpandableSegments says that segments are ranges of addresses that grow.
	ExpandableSegments bool
	// RoundupPower2Divisions is the number of equal steps between powers of two that requests are rounded up
	// to, one for each power of two from 1 MiB to 32 GiB; 0 and 1 round to 512 bytes.
	RoundupPower2Divisions torchalloc.Rounding
	// MemoryFraction is the share of the device that the process may hold, 0 for all
	// (per_process_memory_fraction).
	MemoryFraction float64
	// Unmodelled are the recognised options, as written, that change what this package does not emulate
	// (pinned memory, locks, reuse within a graph capture).
	Unmodelled []string
}

const (
	maxSettingMiB  = 1 << 30 // bounds settings in MiB, so that nothing overflows
	nativeBackend  = "native"
	asyncBackend   = "cudaMallocAsync"
	maxDivisionLog = 40
)

// unmodelled are the options that are accepted and listed.
var unmodelled = [...]string{
	"release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "pinned_use_cuda_host_register",
	"pinned_use_hip_host_register", "pinned_num_register_threads", "pinned_use_background_threads",
	"pinned_reserve_segment_size_mb", "graph_capture_record_stream_reuse", "throw_on_cudamalloc_oom",
}

// Native reports whether PyTorch's own caching allocator is in use.
func (s *Settings) Native() bool { return s.Backend == "" || s.Backend == nativeBackend }

// ParseSettings reads the syntax of PYTORCH_CUDA_ALLOC_CONF: option:value pairs separated by commas, where
// roundup_power2_divisions also takes a list in brackets, [256:1,512:2,>:4] for sizes in MiB. An option that
// PyTorch knows and this package does not emulate is listed in Unmodelled; one that neither knows is an
// error, as in PyTorch.
func ParseSettings(conf string) (Settings, error) { return ParseSettingsOf(Version{}, conf) }

// ParseSettingsOf is ParseSettings for a given release of PyTorch.
func ParseSettingsOf(torch Version, conf string) (Settings, error) {
	s := Settings{Torch: torch}
	tokens := lex(conf)
	for len(tokens) > 0 {
		if tokens[0] == "," { // PyTorch accepts a comma at the end
			tokens = tokens[1:]
			continue
		}
		if len(tokens) < 3 || tokens[1] != ":" {
			return Settings{}, fmt.Errorf("allocator settings: %.40q has no value: write option:value",
				tokens[0])
		}
		option := tokens[0]
		used, err := s.set(option, tokens[2:])
		if err != nil {
			return Settings{}, fmt.Errorf("allocator settings: %s: %w", option, err)
		}
		tokens = tokens[2+used:]
		if len(tokens) > 0 && tokens[0] != "," {
			return Settings{}, fmt.Errorf("allocator settings: %.40q after %s: separate options by commas",
				tokens[0], option)
		}
	}
	if s.MaxSplitSize > 0 && s.MaxSplitSize < s.largeSegment() {
		return Settings{}, fmt.Errorf("allocator settings: max_split_size_mb must be at least %d",
			s.largeSegment()>>20)
	}
	return s, nil
}

// lex splits at the punctuation, which it keeps, and drops spaces, as PyTorch does.
func lex(conf string) []string {
	var tokens []string
	conf = strings.ReplaceAll(conf, " ", "")
	for conf != "" {
		i := strings.IndexAny(conf, ",:[]")
		switch {
		case i < 0:
			return append(tokens, conf)
		case i == 0:
			i = 1
		}
		tokens, conf = append(tokens, conf[:i]), conf[i:]
	}
	return tokens
}

// set sets one option from the tokens after its colon and returns how many it used.
func (s *Settings) set(option string, value []string) (int, error) {
	v := value[0]
	var err error
	switch option {
	case "backend":
		if v != nativeBackend && v != asyncBackend {
			return 0, fmt.Errorf("%.40q is neither %s nor %s", v, nativeBackend, asyncBackend)
		}
		s.Backend = v
	case "max_split_size_mb":
		s.MaxSplitSize, err = mebibytes(v, 1)
	case "max_non_split_rounding_mb":
		s.MaxNonSplitRounding, err = mebibytes(v, 20)
	case "large_segment_size_mb":
		s.LargeSegmentSize, err = mebibytes(v, 2)
	case "garbage_collection_threshold":
		s.GarbageCollectionThreshold, err = fraction(v, false)
	case "per_process_memory_fraction":
		s.MemoryFraction, err = fraction(v, true)
	case "expandable_segments":
		s.ExpandableSegments, err = truth(v)
	case "roundup_power2_divisions":
		return s.setDivisions(value)
	default:
		if !slices.Contains(unmodelled[:], option) {
			return 0, fmt.Errorf("no such option")
		}
		s.Unmodelled = append(s.Unmodelled, option+":"+v)
	}
	return 1, err
}

func mebibytes(v string, least int64) (int64, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least {
		return 0, fmt.Errorf("%.40q is not a number of MiB of at least %d", v, least)
	}
	return min(n, maxSettingMiB) << 20, nil
}

func fraction(v string, one bool) (float64, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f > 0 && f < 1 || one && f == 1) {
		return 0, fmt.Errorf("%.40q is not a share between 0 and 1", v)
	}
	return f, nil
}

func truth(v string) (bool, error) {
	switch v {
	case "True", "true":
		return true, nil
	case "False", "false":
		return false, nil
	}
	return false, fmt.Errorf("%.40q is neither True nor False", v)
}

func divisions(v string) (int64, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n&(n-1) != 0 || n > 1<<maxDivisionLog {
		return 0, fmt.Errorf("%.40q is not a power of two", v)
	}
	return n, nil
}

// setDivisions reads one number, or a list: [size in MiB:number,...,>:number]. The first size counts for all
// below it, too, and > for all above the last one (see laterDivisions); a size between two listed ones that
// is not listed itself has 0 divisions, as PyTorch leaves it.
func (s *Settings) setDivisions(value []string) (int, error) {
	d := &s.RoundupPower2Divisions
	if value[0] != "[" {
		n, err := divisions(value[0])
		for i := range d {
			d[i] = n
		}
		return 1, err
	}
	i, first, last := 1, true, 0
	for ; i < len(value) && value[i] != "]"; i += 3 {
		if i > 1 {
			if value[i] != "," {
				return 0, fmt.Errorf("%.40q in the list: separate its items by commas", value[i])
			}
			i++
		}
		if i+2 >= len(value) || value[i+1] != ":" {
			return 0, fmt.Errorf("the list has an item that is not size:divisions")
		}
		n, err := divisions(value[i+2])
		if err != nil {
			return 0, err
		}
		if value[i] == ">" {
			from := last
			if s.follows(laterDivisions) && !first {
				from++
			}
			for k := from; k < len(d); k++ {
				d[k] = n
			}
			continue
		}
		size, err := divisions(value[i])
		if err != nil || size == 0 {
			return 0, fmt.Errorf("%.40q is not a power of two", value[i])
		}
		last = min(bits.Len64(uint64(size))-1, len(d)-1)
		if first {
			for k := range last {
				d[k] = n
			}
			first = false
		}
		d[last] = n
	}
	if i >= len(value) {
		return 0, fmt.Errorf("the list has no end: close it with ]")
	}
	return i + 1, nil
}

// SnapshotSettings reads the allocator_settings of a PyTorch snapshot; get returns a key's value as JSON, ""
// if the snapshot has none. The environment's own text is read first, to keep options that the snapshot does
// not list separately; the listed values win, since they are in force. Known is false if the snapshot says
// nothing about the allocator.
//
// The settings are parsed as those of the release that the snapshot names (TorchSetting), else torch.
func SnapshotSettings(torch Version, get func(key string) string) (s Settings, known bool, err error) {
	if v := TorchOf(get); v != (Version{}) {
		torch = v
	}
	s.Torch = torch
	for _, key := range [...]string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} {
		var conf string
		text := get(key)
		if text == "" {
			continue
		}
		known = true
		if err := json.Unmarshal([]byte(text), &conf); err != nil {
			return Settings{}, true, fmt.Errorf("allocator settings: %s: %w", key, err)
		}
		if conf == "" {
			continue
		}
		if s, err = ParseSettingsOf(torch, conf); err != nil {
			return Settings{}, true, err
		}
		break
	}
	read := func(key string, into any) bool {
		text := get(key)
		if text == "" || text == "null" || err != nil {
			return false
		}
		known = true
		if e := json.Unmarshal([]byte(text), into); e != nil {
			err = fmt.Errorf("allocator settings: %s: %w", key, e)
			return false
		}
		return true
	}
	var split int64
	if read("max_split_size", &split) {
		s.MaxSplitSize = max(split, 0) // -1 is no limit
	}
	read(BackendSetting, &s.Backend)
	read("garbage_collection_threshold", &s.GarbageCollectionThreshold)
	read("expandable_segments", &s.ExpandableSegments)
	var divided map[string]int64
	if read("roundup_power2_divisions", &divided) {
		for i := range s.RoundupPower2Divisions {
			s.RoundupPower2Divisions[i] = max(divided[strconv.Itoa(1<<i)], 0)
		}
	}
	if err != nil {
		return Settings{}, known, err
	}
	return s, known, nil
}

// Keys that our recordings add to PyTorch's allocator_settings, as JSON.
const (
	// BackendSetting is the backend, as torch.cuda.get_allocator_backend returns it.
	BackendSetting = "gmemtop_allocator"
	// TorchSetting is the release: [major, minor].
	TorchSetting = "gmemtop_torch"
	// DevicesSetting holds what is known about each device, by its number: {"0": {"total_bytes": 1,
	// "memory_fraction": 1.0}}.
	DevicesSetting = "gmemtop_devices"
)

// TorchOf returns the release that a recording names, the zero Version if it names none.
func TorchOf(get func(key string) string) Version {
	var v []int
	if json.Unmarshal([]byte(get(TorchSetting)), &v) != nil || len(v) != 2 || v[0] < 0 || v[1] < 0 {
		return Version{}
	}
	return Version{v[0], v[1]}
}

// DeviceOf returns a device's bytes and the share of them that the process may hold, 0 if the recording does
// not say.
func DeviceOf(get func(key string) string, ordinal int) (total int64, fraction float64) {
	var all map[string]struct {
		Total    int64   `json:"total_bytes"`
		Fraction float64 `json:"memory_fraction"`
	}
	if json.Unmarshal([]byte(get(DevicesSetting)), &all) != nil {
		return 0, 0
	}
	d := all[strconv.Itoa(ordinal)]
	if d.Total < 0 || d.Total > maxRequest {
		d.Total = 0
	}
	if !(d.Fraction > 0 && d.Fraction <= 1) {
		d.Fraction = 0
	}
	return d.Total, d.Fraction
}

func (s *Settings) largeSegment() int64 {
	if s.LargeSegmentSize > 0 {
		return s.LargeSegmentSize
	}
	return torchalloc.LargeBuffer
}

func (s *Settings) nonSplitRounding() int64 {
	if s.MaxNonSplitRounding > 0 {
		return s.MaxNonSplitRounding
	}
	return torchalloc.LargeBuffer
}

// oversize reports whether a block of size bytes is too large to be split.
func (s *Settings) oversize(size int64) bool { return s.MaxSplitSize > 0 && size >= s.MaxSplitSize }

// Round returns the size of the block for a request.
func (s *Settings) Round(size int64) int64 { return s.RoundupPower2Divisions.Round(max(size, 1)) }

// SegmentFor returns the size of the segment to ask the driver for when no hole has room for a block of
// rounded bytes, and whether it is for small blocks.
func (s *Settings) SegmentFor(rounded int64) (size int64, small bool) {
	return torchalloc.Segment(rounded, s.largeSegment())
}
