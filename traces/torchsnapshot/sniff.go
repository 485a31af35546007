package torchsnapshot

import "bytes"

const lfsPrefix = "version https://git-lfs"

// snapshotKeys are the keys of the top level, which come first in its dict, and those of a segment, for bare
// lists of segments.
var (
	snapshotKeys = []string{
		"segments", "device_traces", "allocator_settings", "external_annotations", "host_segments",
		"host_traces", "gmemtop",
	}
	segmentKeys = []string{"total_size", "allocated_size", "active_size", "segment_type"}
)

// Sniff reports whether head, the first bytes (4 KiB are enough) of an uncompressed input, looks like a
// snapshot: a pickle of protocol 2 to 5 whose first object is a dict or a list that holds one of a snapshot's
// keys, or JSON of the same. It reads only head.
func Sniff(head []byte) bool {
	if len(head) > 2 && head[0] == opProto && head[1] >= 2 && head[1] <= 5 {
		return sniffPickle(head[2:])
	}
	return startsJSON(head) && sniffJSON(head)
}

// sniffPickle looks for the first keys after the opcode that opens the outermost container, as they are
// written: the string's length, then the string.
func sniffPickle(p []byte) bool {
	if len(p) > 9 && p[0] == opFrame {
		p = p[9:]
	}
	switch {
	case len(p) == 0:
		return false
	case p[0] == opEmptyDict, p[0] == opMark:
		return holdsPickled(p, snapshotKeys)
	case p[0] == opEmptyList:
		return holdsPickled(p, segmentKeys)
	}
	return false
}

func holdsPickled(p []byte, keys []string) bool {
	for _, k := range keys {
		n := byte(len(k))
		if bytes.Contains(p, append([]byte{opShortBinUnicode, n}, k...)) ||
			bytes.Contains(p, append([]byte{opBinUnicode, n, 0, 0, 0}, k...)) {
			return true
		}
	}
	return false
}

// startsJSON reports whether the first byte that is no space opens a JSON object or array.
func startsJSON(head []byte) bool {
	p := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	return len(p) > 0 && (p[0] == '{' || p[0] == '[')
}

func sniffJSON(head []byte) bool {
	p := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	keys := snapshotKeys
	if p[0] == '[' {
		keys = segmentKeys
	}
	if bytes.Contains(p, []byte(`"traceEvents"`)) { // a profiler's trace
		return false
	}
	for _, k := range keys {
		if bytes.Contains(p, []byte(`"`+k+`"`)) {
			return true
		}
	}
	return false
}
