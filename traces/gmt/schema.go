package gmt

import (
	"github.com/gmemtop/gmemtop/traces"
)

// FormatVersion is the version in the schema's metadata. It changes only if an old reader would misread a new
// file.
const FormatVersion = "1"

// maxRows is the number of rows at which a chunk is written.
const maxRows = 16384

// Limits of the reader, so that no file makes it allocate too much.
const (
	maxMetadata  = 1 << 20 // bytes of one message's metadata
	maxBatchRows = 1 << 16 // rows of one batch
	maxText      = 1 << 30 // bytes of one batch's text; Arrow's own limit is 2 GiB
	maxPadding   = 1 << 20 // definitions of one table that may be lost to damage
	ratioLimit   = 256     // decompressed bytes a stored byte, over the whole file
	freeBytes    = 512 << 20
)

// formatName is the name of this reader in errors.
const formatName = "gmt"

// Keys of the custom metadata.
const (
	keyFormat = "gmemtop.format"
	keyTool   = "gmemtop.tool"
	keyCRC    = "gmemtop.crc32c"
	keyBatch  = "gmemtop.batch"
	keyBefore = "gmemtop.before"
)

// batchClass says what kind of rows a batch has.
type batchClass uint8

const (
	classSchema batchClass = iota
	classDefinitions
	classEvents
	classRecords
	classEnd
)

var classNames = [...]string{"schema", "definitions", "events", "records", "end"}

// The kinds of row that are not events. The values never change meaning; 200 and above are definitions.
const (
	kindEvents      = 0 // 0-99: traces.Action
	kindOp          = 100
	kindAccess      = 110 // + traces.AccessMode
	kindMark        = 120 // + traces.MarkKind
	kindSample      = 130
	kindSegment     = 140
	kindBlock       = 150 // + traces.BlockState
	kindDefinitions = 200
	kindStack       = 200
	kindString      = 201
	kindFrame       = 202
	kindDetail      = 203
	kindStream      = 204
	kindDevice      = 205
	kindCounter     = 206
	kindOpInfo      = 207
	kindRecording   = 220
	kindSetting     = 221
	kindExtra       = 222
	kindLoss        = 223
	kindFinal       = 224
)

// column is one column of the schema; width 0 is utf8.
type column struct {
	name   string
	width  int
	signed bool
}

// Indices of columns.
const (
	colTime = iota
	colAddress
	colSize
	colValue
	colKind
	colDevice
	colStream
	colStack
	colDetail
	colRef
	colText
	numColumns
)

var columns = [numColumns]column{
	{"time_ns", 8, true}, {"address", 8, false}, {"size", 8, true}, {"value", 8, true}, {"kind", 1, false},
	{"device", 1, false},
	{"stream", 2, false}, {"stack", 4, true}, {"detail", 4, true}, {"ref", 4, true}, {"text", 0, false},
}

// Every fixed-width column has two buffers (validity, always empty, and data), the text three (validity,
// offsets, data).
const numBuffers = 2*(numColumns-1) + 3

// dataBuffer returns the index of a column's first buffer after the validity.
func dataBuffer(col int) int { return 2*col + 1 }

// The tables whose rows are referred to by number, in the order of the counts in keyBefore.
const (
	tabStrings = iota
	tabFrames
	tabStacks
	tabDetails
	tabStreams
	tabDevices
	tabCounters
	tabOpInfos
	tabEvents
	tabOps
	tabRecords // all records that are not ops: only counted
	numTables
)

// counts are numbers of rows by table.
type counts [numTables]int64

// add counts the rows of one batch.
func (c *counts) add(class batchClass, kinds []uint8) {
	if class == classEvents {
		c[tabEvents] += int64(len(kinds))
		return
	}
	for _, k := range kinds {
		if t := tableOf(k); t >= 0 {
			c[t]++
		}
	}
}

// tableOf returns the table that a row of kind k belongs to, -1 for none.
func tableOf(k uint8) int {
	switch {
	case k < kindOp:
		return tabEvents
	case k == kindOp:
		return tabOps
	case k < kindDefinitions:
		return tabRecords
	}
	switch k {
	case kindStack:
		return tabStacks
	case kindString:
		return tabStrings
	case kindFrame:
		return tabFrames
	case kindDetail:
		return tabDetails
	case kindStream:
		return tabStreams
	case kindDevice:
		return tabDevices
	case kindCounter:
		return tabCounters
	case kindOpInfo:
		return tabOpInfos
	}
	return -1
}

// opInfo is what the ops of one site share. It has its own definition, so that an op is one numeric row.
type opInfo struct {
	name, module traces.StringID
	thread       int32
	phase        traces.Phase
	rerunnable   bool
	again        bool
	noGrad       bool
}

// row is one row of a batch without its text.
type row struct {
	time               int64
	addr               uint64
	size, value        int64
	kind, device       uint8
	stream             uint16
	stack, detail, ref int32
}

// rows are the columns of a batch of definitions or records.
type rows struct {
	time        []int64
	addr        []uint64
	size, value []int64
	kind        []uint8
	device      []uint8
	stream      []uint16
	stack       []int32
	detail      []int32
	ref         []int32
	offsets     []int32 // one more than rows
	text        []byte
}

func (r *rows) len() int { return len(r.kind) }

// add appends a row with its text, which must be valid UTF-8.
func (r *rows) add(x row, text string) {
	r.text = append(r.text, text...)
	r.end(x)
}

// end appends a row whose text is in r.text already.
func (r *rows) end(x row) {
	if len(r.offsets) == 0 {
		r.offsets = append(r.offsets, 0)
	}
	r.time = append(r.time, x.time)
	r.addr = append(r.addr, x.addr)
	r.size = append(r.size, x.size)
	r.value = append(r.value, x.value)
	r.kind = append(r.kind, x.kind)
	r.device = append(r.device, x.device)
	r.stream = append(r.stream, x.stream)
	r.stack = append(r.stack, x.stack)
	r.detail = append(r.detail, x.detail)
	r.ref = append(r.ref, x.ref)
	r.offsets = append(r.offsets, int32(len(r.text)))
}

func (r *rows) reset() {
	*r = rows{
		time: r.time[:0], addr: r.addr[:0], size: r.size[:0], value: r.value[:0], kind: r.kind[:0],
		device: r.device[:0], stream: r.stream[:0], stack: r.stack[:0], detail: r.detail[:0], ref: r.ref[:0],
		offsets: r.offsets[:0], text: r.text[:0],
	}
}

// at returns row i without its text.
func (r *rows) at(i int) row {
	return row{
		time: r.time[i], addr: r.addr[i], size: r.size[i], value: r.value[i], kind: r.kind[i],
		device: r.device[i], stream: r.stream[i], stack: r.stack[i], detail: r.detail[i], ref: r.ref[i],
	}
}

// textAt returns the text of row i; it is valid until the next decode.
func (r *rows) textAt(i int) []byte { return r.text[r.offsets[i]:r.offsets[i+1]] }
