package gmt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// resum corrects the checksums of the messages of data in place, as a hostile writer would.
func resum(data []byte) {
	for pos := 0; pos+8 <= len(data); {
		n := int(binary.LittleEndian.Uint32(data[pos+4:]))
		if n <= 0 || n > maxMetadata || n > len(data)-pos-8 {
			return
		}
		m, _ := parseEnvelope(data[pos+8 : pos+8+n])
		end := int64(pos+8+n) + m.bodyLength
		if m.crcAt == 0 || m.bodyLength < 0 || end < 0 || end > int64(len(data)) {
			return
		}
		digits := 8 + m.crcAt
		if digits+8 > 8+n {
			return
		}
		hex.Encode(data[pos+digits:], binary.BigEndian.AppendUint32(nil, sum(data[pos:end], digits)))
		pos = int(end)
	}
}

// checkIDs fails if a trace refers to rows that it does not have: views index without checking.
func checkIDs(t *testing.T, tr *traces.Trace) {
	t.Helper()
	bad := func(what string, i int) { t.Fatalf("%s %d refers to something that does not exist", what, i) }
	str := func(id traces.StringID) bool { return id >= 0 && int(id) < len(tr.Strings) }
	stack := func(id traces.StackID) bool { return id >= -1 && int(id) < tr.Stacks.Len() }
	n := tr.Events.Len()
	for i := range n {
		e := tr.Events.At(i)
		if !stack(e.Stack) || int(e.Stream) >= len(tr.Streams) || int(e.Device) >= len(tr.Devices) ||
			int(e.Detail) >= len(tr.Details) || e.Detail < 0 {
			bad("event", i)
		}
	}
	for i, f := range tr.Frames {
		if !str(f.File) || !str(f.Func) || !str(f.Extra) {
			bad("frame", i)
		}
	}
	for _, id := range tr.Stacks.IDs {
		if id < 0 || int(id) >= len(tr.Frames) {
			bad("frame of a stack", int(id))
		}
	}
	for i, d := range tr.Details {
		if !stack(d.ForwardStack) || !str(d.Action) || !str(d.CompileContext) || !str(d.UserMetadata) ||
			!str(d.Category) || !str(d.Op) || !str(d.Extra) {
			bad("detail", i)
		}
	}
	for i, o := range tr.Ops {
		if !str(o.Name) || !str(o.Module) || !stack(o.Stack) || int(o.Parent) >= len(tr.Ops) ||
			o.Parent < -1 ||
			int(o.Stream) >= len(tr.Streams) || int(o.Device) >= len(tr.Devices) {
			bad("op", i)
		}
	}
	for i, a := range tr.Accesses {
		if a.Op < -1 || int(a.Op) >= len(tr.Ops) || a.Event < 0 || int(a.Event) > n ||
			int(a.Device) >= len(tr.Devices) {
			bad("access", i)
		}
	}
	for i, c := range tr.Counters {
		if !str(c.Name) || len(c.Time) != len(c.Value) || (c.Event != nil && len(c.Event) != len(c.Time)) {
			bad("counter", i)
		}
		for _, e := range c.Event {
			if e < 0 || int(e) >= n {
				bad("sample", int(e))
			}
		}
	}
	for i, s := range tr.Final.Segments {
		if s.FirstBlock < 0 || s.EndBlock < s.FirstBlock || int(s.EndBlock) > len(tr.Final.Blocks) ||
			!stack(s.Stack) || !str(s.Extra) ||
			int(s.Stream) >= len(tr.Streams) || int(s.Device) >= len(tr.Devices) {
			bad("segment", i)
		}
	}
	for i, x := range tr.Final.Blocks {
		if !stack(x.Stack) || !str(x.Extra) {
			bad("block", i)
		}
	}
	for i, m := range tr.Marks {
		if !str(m.Name) {
			bad("mark", i)
		}
	}
}

// FuzzRead hands Read files with damaged content, with their checksums corrected where fix is set: whatever
// it returns must be safe to use, and what it accepts without an error must survive a round trip.
func FuzzRead(f *testing.F) {
	small := written(f, randomTrace(1, 40))
	f.Add(small, true)
	f.Add(recorded(f, randomTrace(2, 30), 10), true)
	f.Add(recorded(f, randomTrace(2, 30), 10), false)
	f.Add(small[:len(small)/2], false)
	f.Add([]byte{}, false)
	f.Add(endMarker, false)
	f.Fuzz(func(t *testing.T, data []byte, fix bool) {
		if fix {
			data = bytes.Clone(data)
			resum(data)
		}
		got, err := read(data)
		if err != nil && !errors.Is(err, traces.ErrFormat) {
			t.Fatalf("the error %v is not about the format", err)
		}
		if got == nil {
			if err == nil {
				t.Fatal("neither a trace nor an error")
			}
			return
		}
		checkIDs(t, got)
		again, err := read(written(t, got))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		sameTrace(t, again, got)
		var out bytes.Buffer
		if _, err := Repair(context.Background(), bytes.NewReader(data), int64(len(data)), &out); err != nil {
			t.Fatalf("what can be read cannot be repaired: %v", err)
		}
		if _, err := read(out.Bytes()); err != nil {
			t.Fatalf("the repaired file is damaged: %v", err)
		}
	})
}

// FuzzPacked damages one column of a sound file before it is compressed, which flips in compressed bytes
// rarely reach.
func FuzzPacked(f *testing.F) {
	f.Add(uint8(classDefinitions), uint8(colRef), uint16(3), int64(1<<40))
	f.Add(uint8(classEvents), uint8(colStack), uint16(3), int64(7))
	f.Add(uint8(classRecords), uint8(colDetail), uint16(99), int64(-5))
	f.Fuzz(func(t *testing.T, class, col uint8, at uint16, value int64) {
		var b bytes.Buffer
		e, err := newMessages(&b)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.schema(""); err != nil {
			t.Fatal(err)
		}
		data := written(t, randomTrace(1, 40))
		zr, err := newDecoder()
		if err != nil {
			t.Fatal(err)
		}
		defer zr.Close()
		d := &decoder{data: data, zstd: zr}
		budget := int64(1 << 30)
		for _, c := range scan(data).chunks {
			var r rows
			if err := d.rows(&c, &r, &budget); err != nil {
				t.Fatal(err)
			}
			if c.class == batchClass(class) {
				i := int(at) % r.len()
				switch col % numColumns {
				case colTime:
					r.time[i] = value
				case colAddress:
					r.addr[i] = uint64(value)
				case colSize:
					r.size[i] = value
				case colValue:
					r.value[i] = value
				case colKind:
					r.kind[i] = uint8(value)
				case colDevice:
					r.device[i] = uint8(value)
				case colStream:
					r.stream[i] = uint16(value)
				case colStack:
					r.stack[i] = int32(value)
				case colDetail:
					r.detail[i] = int32(value)
				case colRef:
					r.ref[i] = int32(value)
				case colText:
					if value%2 == 0 {
						r.offsets[i] = int32(value)
					} else if len(r.text) > 0 {
						r.text[int(at)%len(r.text)] = uint8(value)
					}
				}
			}
			e.before = c.before
			if err := e.rows(&r, c.class); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.write(endMarker); err != nil {
			t.Fatal(err)
		}
		got, err := read(b.Bytes())
		if err != nil && !errors.Is(err, traces.ErrFormat) {
			t.Fatal(err)
		}
		checkIDs(t, got)
		if again, err := read(written(t, got)); err != nil {
			t.Fatal(err)
		} else {
			sameTrace(t, again, got)
		}
	})
}
