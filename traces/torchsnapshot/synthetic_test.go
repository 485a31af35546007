package torchsnapshot

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"bytes"
)

// synthetic returns a protocol-4 snapshot of n trace entries as CPython writes it: every dict, list and
// string memoized, stacks shared, batches of a thousand, no segments.
func synthetic(n int) []byte {
	p := &pyPickler{protocol: 4, entries: map[string]uint32{}}
	p.Write([]byte{opProto, 4, opEmptyDict})
	p.put()
	p.WriteByte(opMark)
	p.string("segments")
	p.WriteByte(opEmptyList)
	p.put()
	p.string("device_traces")
	p.WriteByte(opEmptyList)
	p.put()
	p.WriteByte(opEmptyList)
	p.put()
	stacks := map[int]uint32{}
	frames := map[int]uint32{}
	for i := 0; i < n; i += 1000 {
		p.WriteByte(opMark)
		for j := i; j < min(n, i+1000); j++ {
			p.event(j, stacks, frames)
		}
		p.WriteByte(opAppends)
	}
	p.Write([]byte{opAppend, opSetItems, opStop})
	return p.Bytes()
}

func (p *pyPickler) event(i int, stacks, frames map[int]uint32) {
	p.WriteByte(opEmptyDict)
	p.put()
	p.WriteByte(opMark)
	block := i / 3 // each block lives for three events
	p.string("action")
	p.string([]string{"alloc", "free_requested", "free_completed"}[i%3])
	p.string("addr")
	p.number(fmt.Sprint(0x7F00_0000_0000 + block%4096<<20))
	p.string("size")
	p.number(fmt.Sprint(512 + block%977*4096))
	p.string("stream")
	p.number("0")
	p.string("time_us")
	p.number(fmt.Sprint(1_759_252_584_204_770 + 3*i))
	p.string("compile_context")
	p.string("N/A")
	p.string("user_metadata")
	p.string("")
	p.string("frames")
	p.stack(block%1500, stacks, frames)
	p.WriteByte(opSetItems)
}

func (p *pyPickler) stack(i int, stacks, frames map[int]uint32) {
	if at, ok := stacks[i]; ok {
		p.reference(at)
		return
	}
	p.WriteByte(opEmptyList)
	stacks[i] = p.put()
	p.WriteByte(opMark)
	for depth := range 30 {
		f := (i*7 + depth*depth) % 3000
		if at, ok := frames[f]; ok {
			p.reference(at)
			continue
		}
		p.WriteByte(opEmptyDict)
		frames[f] = p.put()
		p.WriteByte(opMark)
		p.string("filename")
		p.string(fmt.Sprintf("/opt/venv/lib/python3.12/site-packages/torch/nn/modules/m%d.py", f%60))
		p.string("line")
		p.number(fmt.Sprint(f))
		p.string("name")
		p.string(fmt.Sprintf("fn%d", f%211))
		p.WriteByte(opSetItems)
	}
	p.WriteByte(opAppends)
}

func (p *pyPickler) reference(i uint32) {
	if i < 256 {
		p.Write([]byte{opBinGet, byte(i)})
		return
	}
	p.WriteByte(opLongBinGet)
	p.Write(binary.LittleEndian.AppendUint32(nil, i))
}

// BenchmarkRead reads a snapshot of 300,000 trace entries from memory.
func BenchmarkRead(b *testing.B) {
	const n = 300_000
	data := synthetic(n)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		t, err := read(data)
		if err != nil || t.Events.Len() != n {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkReadJSON reads the same kind of snapshot as JSON, which shares nothing.
func BenchmarkReadJSON(b *testing.B) {
	const n = 20_000
	data := syntheticJSON(n)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		t, err := read(data)
		if err != nil || t.Events.Len() != n {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func syntheticJSON(n int) []byte {
	var out bytes.Buffer
	out.WriteString(`{"segments": [], "device_traces": [[`)
	for i := range n {
		if i > 0 {
			out.WriteString(", ")
		}
		fmt.Fprintf(&out,
			`{"action": "%s", "addr": %d, "size": %d, "stream": 0, "time_us": %d, `+
				`"pool_id": [0, 0], "frames": [`, []string{"alloc", "free_requested", "free_completed"}[i%3],
			0x7F00_0000_0000+i/3%4096<<20, 512+i/3%977*4096, 1_759_252_584_204_770+3*i)
		for depth := range 30 {
			if depth > 0 {
				out.WriteString(", ")
			}
			f := (i/3*7 + depth*depth) % 3000
			fmt.Fprintf(&out,
				`{"filename": "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/m%d.py", `+
					`"line": %d, "name": "fn%d"}`, f%60, f, f%211)
		}
		out.WriteString("]}")
	}
	out.WriteString("]]}")
	return out.Bytes()
}

// BenchmarkWrite writes a trace of 300,000 events.
func BenchmarkWrite(b *testing.B) {
	const n = 300_000
	t, err := read(synthetic(n))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var out countWriter
		if err := Write(context.Background(), &out, t); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(out))
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

type countWriter int64

func (w *countWriter) Write(p []byte) (int, error) {
	*w += countWriter(len(p))
	return len(p), nil
}

// TestReadAllocatesNoMoreThanItsRows bounds what reading allocates in all, garbage included: the rows while
// they wait, the columns, four bytes an entry of the memo, and a few MiB of windows and tables.
func TestReadAllocatesNoMoreThanItsRows(t *testing.T) {
	const n = 200_000
	data := synthetic(n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := read(data); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(n*(32+32+4)+8<<20); got > most {
		t.Errorf("allocated %d bytes for %d events, at most %d", got, n, most)
	}
}

// TestAWriterThatDoesNotBatchIsRead holds for PyTorch's own C++ pickler, which leaves every entry on the
// stack until the list is whole.
func TestAWriterThatDoesNotBatchIsRead(t *testing.T) {
	const n = 50_000
	var p pyPickler
	p.protocol, p.entries = 2, map[string]uint32{}
	p.Write([]byte{opProto, 2, opEmptyDict, opMark})
	p.string("device_traces")
	p.Write([]byte{opEmptyList, opMark, opEmptyList, opMark})
	stacks, frames := map[int]uint32{}, map[int]uint32{}
	for i := range n {
		p.event(i, stacks, frames)
	}
	p.Write([]byte{opAppends, opAppends, opSetItems, opStop})
	u := &unpickler{w: newWindow(context.Background(), bytes.NewReader(p.Bytes()), nil)}
	u.f = newFold(u.w.offset)
	defer u.w.close()
	if err := u.run(); err != nil {
		t.Fatal(err)
	}
	if got := u.f.finish().Events.Len(); got != n {
		t.Errorf("%d events, want %d", got, n)
	}
	if cap(u.stack) > 1<<14 {
		t.Errorf("%d entries were held at once", cap(u.stack))
	}
}
