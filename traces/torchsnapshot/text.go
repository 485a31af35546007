package torchsnapshot

import (
	"bytes"
	"errors"
	"hash/maphash"
	"strings"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/traces"
)

// text is the index of an interned string in texts. The names below are interned first, in this order, so
// that comparing keys is comparing integers.
type text uint32

// The strings that snapshots use.
const (
	tEmpty text = iota
	// Keys of the top level.
	tSegments
	tDeviceTraces
	tAllocatorSettings
	tExternalAnnotations
	tHostSegments
	tHostTraces
	tCategories
	tGmemtop
	// Keys of trace entries.
	tActionKey
	tAddr
	tSize
	tStream
	tTimeUS
	tCompileContext
	tUserMetadata
	tFrames
	tPoolID
	tDeviceFree
	tForwardFrames
	tCategory
	tSegmentPoolID
	// Keys of segments and blocks.
	tDevice
	tAddress
	tTotalSize
	tAllocatedSize
	tActiveSize
	tRequestedSize
	tSegmentType
	tIsExpandable
	tBlocks
	tState
	tHistory
	tRealSize
	// Keys of frames and annotations.
	tFilename
	tLine
	tName
	tStage
	// Values.
	tLarge
	tSmall
	tInactive
	tActiveAllocated
	tActivePendingFree
	tActiveAwaitingFree
	tNoContext
	tStart
	tEnd
	// Names of actions, in the order of traces.Action from Alloc on.
	tFirstAction
)

var knownTexts = []string{
	"",
	"segments", "device_traces", "allocator_settings", "external_annotations", "host_segments", "host_traces",
	"categories", "gmemtop", "action", "addr", "size", "stream", "time_us", "compile_context",
	"user_metadata", "frames", "pool_id", "device_free", "forward_frames", "category", "segment_pool_id",
	"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "segment_type",
	"is_expandable", "blocks", "state", "history", "real_size",
	"filename", "line", "name", "stage",
	"large", "small", "inactive", "active_allocated", "active_pending_free", "active_awaiting_free", "N/A",
	"START", "END",
}

// The actions whose names are interned first.
const (
	firstAction = traces.Alloc
	endAction   = traces.Annotate + 1
)

func actionOf(t text) traces.Action { return traces.Action(t - tFirstAction) }

// maxTextBytes bounds the bytes of all distinct strings together.
const maxTextBytes = 1 << 30

var errTooMuchText = errors.New("more than 1 GiB of distinct strings")

// texts interns byte strings in an open-addressing table over one arena, without a pointer for each string
// and without allocating for a known one. The hash is seeded, so that no input can aim at one bucket.
type texts struct {
	arena []byte
	ends  []uint32 // string i is arena[ends[i-1]:ends[i]]
	slots []uint32 // index+1; 0 is free
	seed  maphash.Seed
}

func newTexts() *texts {
	t := &texts{slots: make([]uint32, 1<<10), seed: maphash.MakeSeed()}
	for _, s := range knownTexts {
		t.mustIntern(s)
	}
	for a := firstAction; a < endAction; a++ {
		t.mustIntern(a.String())
	}
	return t
}

func (t *texts) mustIntern(s string) text {
	id, err := t.intern([]byte(s))
	if err != nil {
		panic(err) // the known names are far below the limit
	}
	return id
}

// at returns string i. The caller must not change it.
func (t *texts) at(i text) []byte {
	if i == 0 {
		return nil
	}
	return t.arena[t.ends[i-1]:t.ends[i]]
}

func (t *texts) string(i text) string { return string(t.at(i)) }

// intern returns the index of p. It replaces bytes that are not UTF-8, which no view could show.
func (t *texts) intern(p []byte) (text, error) {
	mask := uint64(len(t.slots) - 1)
	i := maphash.Bytes(t.seed, p) & mask
	for ; t.slots[i] != 0; i = (i + 1) & mask {
		id := text(t.slots[i] - 1)
		if bytes.Equal(t.at(id), p) {
			return id, nil
		}
	}
	if !utf8.Valid(p) {
		return t.intern([]byte(strings.ToValidUTF8(string(p), "\uFFFD")))
	}
	if len(t.arena)+len(p) > maxTextBytes || len(t.ends) == maxRows {
		return 0, errTooMuchText
	}
	id := text(len(t.ends))
	t.arena = append(t.arena, p...)
	t.ends = append(t.ends, uint32(len(t.arena)))
	t.slots[i] = uint32(id) + 1
	if 2*len(t.ends) > len(t.slots) {
		t.rehash()
	}
	return id, nil
}

func (t *texts) rehash() {
	t.slots = make([]uint32, 2*len(t.slots))
	mask := uint64(len(t.slots) - 1)
	for id := range t.ends {
		i := maphash.Bytes(t.seed, t.at(text(id))) & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = uint32(id) + 1
	}
}
