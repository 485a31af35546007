package gmt

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// recorded replays a trace through a Writer that is flushed after every chunk events, and returns the file.
func recorded(t testing.TB, tr *traces.Trace, chunk int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, tr.Source, tr.Process, tr.Clock)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range tr.Strings {
		w.String(s)
	}
	for _, f := range tr.Frames {
		w.Frame(f)
	}
	for _, s := range tr.Streams {
		w.Stream(s)
	}
	for _, d := range tr.Devices {
		w.Device(d)
	}
	for i := range tr.Events.Len() {
		e := tr.Events.At(i)
		if e.Stack >= 0 { // defined when first used, as a recorder does
			e.Stack = w.Stack(tr.Stacks.At(e.Stack))
		}
		e.Detail = w.Detail(traces.Detail{ForwardStack: traces.NoStack, Op: tr.Details[e.Detail].Op})
		op := w.Op(traces.Op{Start: int64(i), Parent: traces.NoOp, Stack: e.Stack, Name: nameOf(tr, i)})
		w.Access(traces.Access{Addr: uint64(i), Op: op})
		w.Event(e)
		if i%chunk == chunk-1 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range tr.Marks {
		w.Mark(m)
	}
	c := w.Counter(w.String("free"), 0)
	w.Sample(c, 1, 2)
	for _, s := range tr.Settings {
		w.setting(s)
	}
	for _, s := range tr.Extra {
		w.extra(s)
	}
	w.Lose("ring_wrapped", traces.DataLoss, 2, "the ring wrapped")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	w.Lose("ring_wrapped", traces.DataLoss, 3, "")
	if err := w.Close(traces.State{Known: true}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// nameOf is the name that recorded gives the op of event i.
func nameOf(tr *traces.Trace, i int) traces.StringID {
	return traces.StringID(i % len(tr.Strings))
}

func read(data []byte) (*traces.Trace, error) {
	return Read(context.Background(), bytes.NewReader(data), nil)
}

// lossCount returns the count of a loss, 0 if there is none.
func lossCount(t *traces.Trace, name string) int64 {
	for _, l := range t.Losses {
		if l.Name == name {
			return l.Count
		}
	}
	return 0
}

// rowsFrom fails unless the events of got are events of want in want's order, and returns how many are
// missing.
func rowsFrom(t *testing.T, got, want *traces.Trace) (missing int) {
	t.Helper()
	j := 0
	for i := range got.Events.Len() {
		e := got.Events.At(i)
		for j < want.Events.Len() && want.Events.At(j) != e {
			j++
		}
		if j == want.Events.Len() {
			t.Fatalf("event %d is not among those that were written: %+v", i, e)
		}
		j++
	}
	return want.Events.Len() - got.Events.Len()
}

func TestARecordingIsReadAsRecorded(t *testing.T) {
	src := randomTrace(3, 3000)
	got, err := read(recorded(t, src, 250))
	if err != nil {
		t.Fatal(err)
	}
	if got.Events.Len() != 3000 || len(got.Accesses) != 3000 || len(got.Ops) != 3000 ||
		lossCount(got, "ring_wrapped") != 5 ||
		!got.Final.Known {
		t.Fatalf("%d events, %d accesses, %d ops, losses %+v", got.Events.Len(), len(got.Accesses),
			len(got.Ops), got.Losses)
	}
	for i, a := range got.Accesses {
		if int(a.Event) != i || int(a.Op) != i || got.Ops[i].Name != nameOf(src, i) {
			t.Fatalf("access %d is %+v", i, a)
		}
	}
	for i := range 3000 {
		g, w := got.Events.At(i), src.Events.At(i)
		if !slices.Equal(got.Stacks.At(g.Stack), src.Stacks.At(w.Stack)) || g.Addr != w.Addr ||
			g.Time != w.Time {
			t.Fatalf("event %d is %+v", i, g)
		}
	}
	if !slices.Equal(got.Settings, src.Settings) || !slices.Equal(got.Extra, src.Extra) ||
		got.Process != src.Process {
		t.Error("the settings differ")
	}
}

func TestEveryFlippedBitIsDetected(t *testing.T) {
	want, err := read(recorded(t, randomTrace(4, 1200), 150))
	if err != nil {
		t.Fatal(err)
	}
	data := recorded(t, randomTrace(4, 1200), 150)
	r := rand.New(rand.NewPCG(9, 9))
	whole := 0
	for range 3000 {
		at := r.IntN(len(data) * 8)
		data[at/8] ^= 1 << (at % 8)
		got, err := read(data)
		data[at/8] ^= 1 << (at % 8)
		var fe *traces.FormatError
		if !errors.As(err, &fe) {
			t.Fatalf("bit %d of byte %d: error %v", at%8, at/8, err)
		}
		if got == nil {
			t.Fatalf("bit %d of byte %d: nothing was read: %v", at%8, at/8, err)
		}
		if fe.Offset > int64(at/8) {
			t.Fatalf("bit %d of byte %d: the error points after it: %v", at%8, at/8, err)
		}
		if rowsFrom(t, got, want) == 0 {
			whole++
		}
		if lossCount(got, lossDamaged)+lossCount(got, lossCut) == 0 {
			t.Fatalf("byte %d: no loss is counted", at/8)
		}
		if n := rowsFrom(t, got, want); n > 150 {
			t.Fatalf("byte %d: one flipped bit cost %d events", at/8, n)
		}
	}
	if whole == 0 || whole == 3000 {
		t.Errorf("%d of 3000 flips cost no event: the test does not reach both kinds of chunk", whole)
	}
}

func TestACutCostsTheLastChunkOnly(t *testing.T) {
	tr := randomTrace(5, 2000)
	data := recorded(t, tr, 200)
	want, err := read(data)
	if err != nil {
		t.Fatal(err)
	}
	ends := []int64{}
	for _, c := range scan(data).chunks {
		ends = append(ends, c.end)
	}
	r := rand.New(rand.NewPCG(1, 9))
	for i := range 400 {
		cut := r.IntN(len(data))
		if i < len(ends) { // on the boundary of a chunk, where nothing but the missing end marker tells
			cut = int(ends[i])
		}
		got, err := read(data[:cut])
		if !errors.Is(err, traces.ErrFormat) {
			t.Fatalf("cut at %d: error %v", cut, err)
		}
		if got == nil {
			if int64(cut) >= scan(data).schema.end {
				t.Fatalf("cut at %d: nothing was read: %v", cut, err)
			}
			continue
		}
		chunks := int64(0)
		for _, c := range scan(data).chunks {
			if c.class == classEvents && c.end <= int64(cut) {
				chunks += int64(c.rows)
			}
		}
		rowsFrom(t, got, want)
		if int64(got.Events.Len()) != chunks || lossCount(got, lossCut) != 1 {
			t.Fatalf("cut at %d: %d events of %d in whole chunks, losses %+v", cut, got.Events.Len(), chunks,
				got.Losses)
		}
	}
}

func TestADamagedLastChunkDoesNotMakeAFileACutOne(t *testing.T) {
	data := recorded(t, randomTrace(5, 200), 100)
	whole := scan(data)
	last := whole.chunks[len(whole.chunks)-1]
	if !whole.complete || len(whole.damaged) > 0 {
		t.Fatalf("the sound file has damages %v", whole.damaged)
	}
	for _, at := range []int64{0, 4, 8, 40} { // the mark, the length and the metadata of the chunk
		bad := slices.Clone(data)
		bad[last.offset+at] ^= 0x55
		l := scan(bad)
		end := int64(len(data) - len(endMarker))
		if !l.complete || len(l.chunks) != len(whole.chunks)-1 || len(l.damaged) != 1 ||
			l.damaged[0].offset != last.offset || l.damaged[0].end != end {
			t.Errorf("byte %d changed: complete %v, damages %v, want [%d, %d)", at, l.complete, l.damaged,
				last.offset, end)
		}
	}
}

func TestALostChunkKeepsTheNumbersOfTheRest(t *testing.T) {
	data := recorded(t, randomTrace(6, 1000), 100)
	want, err := read(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range scan(data).chunks {
		bad := bytes.Clone(data)
		bad[c.body-20] ^= 0x10
		got, err := read(bad)
		var fe *traces.FormatError
		if !errors.As(err, &fe) || fe.Offset != c.offset {
			t.Fatalf("chunk at %d: error %v", c.offset, err)
		}
		number := map[uint64]int32{} // of each event as recorded, by its address
		for i, a := range want.Events.Addr {
			number[a] = int32(i)
		}
		for _, a := range got.Accesses { // access i was recorded before event i, by op i
			n := int(a.Event)
			if n < got.Events.Len() && number[got.Events.Addr[n]] < int32(a.Addr) {
				t.Fatalf("chunk at %d: access %d comes before event %d",
					c.offset, a.Addr, number[got.Events.Addr[n]])
			}
			if n > 0 && number[got.Events.Addr[n-1]] >= int32(a.Addr) {
				t.Fatalf("chunk at %d: access %d comes after event %d",
					c.offset, a.Addr, number[got.Events.Addr[n-1]])
			}
			if a.Op != traces.NoOp && got.Ops[a.Op].Start != int64(a.Addr) {
				t.Fatalf("chunk at %d: access %d has the op of access %d", c.offset, a.Addr,
					got.Ops[a.Op].Start)
			}
		}
		for i := range got.Events.Len() {
			e := got.Events.At(i)
			ids := got.Stacks.At(e.Stack)
			if len(ids) > 0 && !slices.Equal(ids, want.Stacks.At(want.Events.Stack[number[e.Addr]])) {
				t.Fatalf("chunk at %d: event %d has another event's stack", c.offset, i)
			}
		}
	}
}

func TestRepairKeepsEveryWholeChunk(t *testing.T) {
	data := recorded(t, randomTrace(7, 800), 100)
	r := rand.New(rand.NewPCG(4, 4))
	for i := range 150 {
		bad := bytes.Clone(data)
		for range i % 4 {
			at := r.IntN(len(bad))
			bad[at] ^= 1 << r.IntN(8)
		}
		if i%3 == 0 {
			bad = bad[:scan(data).schema.end+r.Int64N(int64(len(bad))-scan(data).schema.end)]
		}
		want, wantErr := read(bad)
		var out bytes.Buffer
		rep, err := Repair(context.Background(), bytes.NewReader(bad), int64(len(bad)), &out)
		if want == nil {
			if err == nil {
				t.Fatal("a file without any sound part was repaired")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if rep.Sound != (wantErr == nil) {
			t.Fatalf("sound %v, reading it says %v", rep.Sound, wantErr)
		}
		got, err := read(out.Bytes())
		if err != nil {
			t.Fatalf("the repaired file: %v (before: %v)", err, wantErr)
		}
		slices.SortFunc(got.Losses, byName)
		slices.SortFunc(want.Losses, byName)
		sameTrace(t, got, want)
		if rep.Events != int64(got.Events.Len()) || rep.Bytes+rep.LostBytes > int64(len(bad)) ||
			rep.String() == "" {
			t.Fatalf("report %+v of a file with %d events and %d bytes", rep, got.Events.Len(), len(bad))
		}
		var again bytes.Buffer
		if rep, err := Repair(context.Background(), bytes.NewReader(out.Bytes()), int64(out.Len()),
			&again); err != nil || !rep.Sound ||
			!bytes.Equal(out.Bytes(), again.Bytes()) {
			t.Fatalf("repairing twice: %+v, %v", rep, err)
		}
	}
}

func byName(a, b traces.Loss) int { return strings.Compare(a.Name, b.Name) }

func TestRepairOfASoundFileCopiesIt(t *testing.T) {
	data := written(t, randomTrace(8, 100))
	var out bytes.Buffer
	rep, err := Repair(context.Background(), bytes.NewReader(data), int64(len(data)), &out)
	if err != nil || !rep.Sound || !bytes.Equal(out.Bytes(), data) {
		t.Fatalf("%+v, %v", rep, err)
	}
}

func TestAFileOfALaterFormatIsRecognised(t *testing.T) {
	data := written(t, randomTrace(1, 10))
	end := scan(data).schema.end
	meta := bytes.Clone(data[8:end])
	at := bytes.Index(meta, append([]byte(keyFormat), 0))
	v := bytes.Index(meta[at+len(keyFormat)+1:], []byte("1\x00")) + at + len(keyFormat) + 1
	meta[v] = '2'
	m, err := parseEnvelope(data[8:end])
	if err != nil {
		t.Fatal(err)
	}
	copy(meta[m.crcAt:], crcZeros)
	_, err = read(append(frame(nil, meta, m.crcAt, nil), data[end:]...))
	if !errors.Is(err, traces.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}

// setting adds a setting, its value as JSON.
func (w *Writer) setting(s traces.Setting) { w.keep(w.enc.defineSetting(kindSetting, s)) }

// extra adds a key that has no place in this version, its value as JSON.
func (w *Writer) extra(s traces.Setting) { w.keep(w.enc.defineSetting(kindExtra, s)) }
