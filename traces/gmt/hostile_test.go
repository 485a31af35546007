package gmt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// messageWriter keeps each Write apart.
type messageWriter struct{ writes [][]byte }

func (w *messageWriter) Write(p []byte) (int, error) {
	w.writes = append(w.writes, bytes.Clone(p))
	return len(p), nil
}

func TestEachChunkIsOneWrite(t *testing.T) {
	var w messageWriter
	if err := Write(context.Background(), &w, randomTrace(2, 40_000)); err != nil {
		t.Fatal(err)
	}
	last := len(w.writes) - 1
	if last < 5 || !bytes.Equal(w.writes[last], endMarker) {
		t.Fatalf("%d writes", len(w.writes))
	}
	for i, b := range w.writes[:last] {
		if c, err := parseMessage(b, 0); err != nil || c.end != int64(len(b)) || c.rows > maxRows {
			t.Errorf("write %d of %d bytes is not one message: %v", i, len(b), err)
		}
	}
}

// failing fails from its n-th Write on.
type failing struct{ n int }

var errDisk = errors.New("no space left on device")

func (w *failing) Write(p []byte) (int, error) {
	if w.n--; w.n < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

func TestAFailedWriteSticks(t *testing.T) {
	w, err := NewWriter(&failing{n: 2}, traces.Source{}, traces.Process{}, traces.Clock{})
	if err != nil {
		t.Fatal(err)
	}
	dev := w.Device(traces.Device{})
	for range 3 * maxRows {
		w.Event(traces.Event{Stack: traces.NoStack, Device: dev, Action: traces.Alloc})
		w.Mark(traces.Mark{})
	}
	if err := w.Flush(); !errors.Is(err, errDisk) {
		t.Errorf("Flush: %v", err)
	}
	if err := w.Close(traces.State{}); !errors.Is(err, errDisk) {
		t.Errorf("Close: %v", err)
	}
	if err := Write(context.Background(), &failing{n: 1}, randomTrace(1, 10)); !errors.Is(err, errDisk) {
		t.Errorf("Write: %v", err)
	}
	data := written(t, randomTrace(1, 10))
	if _, err := Repair(context.Background(), bytes.NewReader(data), int64(len(data)),
		&failing{n: 1}); !errors.Is(err, errDisk) {
		t.Errorf("Repair: %v", err)
	}
}

// Any writer can compute a checksum, so each of these files is sound as far as that goes.
func TestHostileClaimsAreRefusedWithoutAllocatingThem(t *testing.T) {
	data := written(t, randomTrace(1, 300))
	chunks := scan(data).chunks
	text := dataBuffer(colText) + 1
	le := binary.LittleEndian
	for _, c := range []struct {
		name string
		make func(d []byte, c chunk)
	}{
		{"a text of a terabyte", func(d []byte, c chunk) {
			le.PutUint64(d[c.body+c.buffers[text].offset:], 1<<40)
		}},
		{"a text of 900 MB", func(d []byte, c chunk) {
			le.PutUint64(d[c.body+c.buffers[text].offset:], 900<<20)
		}},
		{"a column longer than its rows",
			func(d []byte, c chunk) { le.PutUint64(d[c.body+c.buffers[1].offset:], 1<<30) }},
		{"a negative length", func(d []byte, c chunk) {
			le.PutUint64(d[c.body+c.buffers[1].offset:], ^uint64(1))
		}},
		{"no zstd frame", func(d []byte, c chunk) {
			for _, col := range []int{colTime, colSize, colKind, colDevice, colStream, colStack, colDetail} {
				b := c.buffers[dataBuffer(col)]
				if at := c.body + b.offset; b.length > 16 && le.Uint64(d[at:]) != 1<<64-1 {
					le.PutUint64(d[at+8:], 0) // the first buffer that is compressed
					return
				}
			}
		}},
		{"metadata of zeros", func(d []byte, c chunk) { clear(d[c.offset+8 : c.body]) }},
		{"metadata of ones", func(d []byte, c chunk) {
			for i := c.offset + 8; i < c.body; i++ {
				d[i] = 0xff
			}
		}},
		{"a length beyond the file", func(d []byte, c chunk) { le.PutUint32(d[c.offset+4:], 1<<20) }},
		{"a length that is negative", func(d []byte, c chunk) { le.PutUint32(d[c.offset+4:], 1<<31) }},
	} {
		for _, k := range chunks {
			bad := bytes.Clone(data)
			c.make(bad, k)
			if bytes.Equal(bad, data) {
				continue // a chunk too small to be compressed
			}
			resum(bad)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := read(bad)
			runtime.ReadMemStats(&after)
			if k.class == classEvents && c.name[:6] == "a text" {
				continue // the text of events is not looked at
			}
			if !errors.Is(err, traces.ErrFormat) {
				t.Errorf("%s at %d: error %v", c.name, k.offset, err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
				t.Errorf("%s at %d: %d bytes were allocated", c.name, k.offset, n)
			}
		}
	}
}

// Every word of the metadata is replaced by numbers that lead out of it, in the schema and in each class of
// batch.
func TestMalformedMetadataIsNeverReadOutOfBounds(t *testing.T) {
	data := written(t, randomTrace(1, 30))
	l := scan(data)
	for _, c := range append([]chunk{l.schema}, l.chunks...) {
		body := c.body
		if c.class == classSchema {
			body = c.end
		}
		for at := c.offset + 8; at < body; at += 2 {
			for _, v := range []uint32{0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffc,
				uint32(body - c.offset)} {
				bad := bytes.Clone(data[c.offset:c.end])
				if int(at-c.offset)+4 > len(bad) {
					continue
				}
				binary.LittleEndian.PutUint32(bad[at-c.offset:], v)
				resum(bad)
				if x, err := parseMessage(bad, 0); err == nil && x.end != int64(len(bad)) {
					t.Fatalf("byte %d set to %#x: a message of %d bytes instead of %d", at, v, x.end,
						len(bad))
				}
			}
		}
	}
}
