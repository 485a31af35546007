package gmt

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/iotest"

	"github.com/gmemtop/gmemtop/traces"
)

func TestTracesRoundTrip(t *testing.T) {
	for seed := range uint64(6) {
		want := randomTrace(seed, int(seed*seed)*1500)
		got, err := Read(context.Background(), bytes.NewReader(written(t, want)), nil)
		if err != nil {
			t.Fatal(err)
		}
		sameTrace(t, got, want)
	}
}

func TestAnEmptyTraceIsWrittenAndRead(t *testing.T) {
	want := traces.NewBuilder().Finish()
	want.Source.Format = "gmt"
	got, err := Read(context.Background(), bytes.NewReader(written(t, want)), nil)
	if err != nil {
		t.Fatal(err)
	}
	sameTrace(t, got, want)
}

func TestTheSizeOfTheInputNeedNotBeKnown(t *testing.T) {
	want := randomTrace(1, 5000)
	got, err := Read(context.Background(), iotest.OneByteReader(bytes.NewReader(written(t, want))), nil)
	if err != nil {
		t.Fatal(err)
	}
	sameTrace(t, got, want)
}

func TestSniffKnowsOnlyNativeFiles(t *testing.T) {
	data := written(t, randomTrace(1, 10))
	for _, c := range []struct {
		name string
		head []byte
		want bool
	}{
		{"native", data[:256], true}, {"native, whole", data, true}, {"empty", nil, false},
		{"pickle", []byte("\x80\x04\x95aaaaaaaaaaaa"), false},
		{"Arrow of another tool", append([]byte{255, 255, 255, 255, 8, 0, 0, 0}, make([]byte, 300)...),
			false},
		{"key without a message", []byte("xxxxxxxx" + keyCRC), false},
	} {
		if got := Sniff(c.head); got != c.want {
			t.Errorf("%s: Sniff = %v", c.name, got)
		}
	}
}

func TestReadAndWriteStopWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tr := randomTrace(1, 5000)
	if err := Write(ctx, &bytes.Buffer{}, tr); !errors.Is(err, context.Canceled) {
		t.Errorf("Write: %v", err)
	}
	if _, err := Read(ctx, bytes.NewReader(written(t, tr)), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: %v", err)
	}
}

func TestProgressRisesToTheSizeOfTheFile(t *testing.T) {
	data := written(t, randomTrace(2, 40000))
	last, calls := int64(0), 0
	_, err := Read(context.Background(), bytes.NewReader(data), func(done, total int64) {
		if done < last || total != int64(len(data)) {
			t.Errorf("progress(%d, %d) after %d", done, total, last)
		}
		last = done
		calls++
	})
	if err != nil || last != int64(len(data)) || calls < 4 {
		t.Errorf("last %d of %d after %d calls, error %v", last, len(data), calls, err)
	}
}

func TestValuesWithoutRoomAreRefused(t *testing.T) {
	b := traces.NewBuilder()
	b.Device(traces.DeviceGPU, 0)
	b.Event(traces.Event{Action: 100, Stack: traces.NoStack})
	if err := Write(context.Background(), &bytes.Buffer{}, b.Finish()); err == nil {
		t.Error("action 100 was written")
	}
	tr := randomTrace(1, 10)
	tr.Events.Size = tr.Events.Size[:5]
	if err := Write(context.Background(), &bytes.Buffer{}, tr); err == nil {
		t.Error("columns of different lengths were written")
	}
}

func TestUnescapeUndoesEscape(t *testing.T) {
	for _, s := range []string{
		"", "plain", "é", "\xff", "a\xc3", "\xf4\x8f", "\xf4\x8f\xb8\x80", "\U0010FE41\xff\U0010FEFF",
		"\U0010FF00", "\xed\xa0\x80",
	} {
		if got := unescape(escape(s)); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}

// A file keeps whether gradients were off.
func TestOpsKeepWhetherTheyRanWithoutGradients(t *testing.T) {
	b := traces.NewBuilder()
	b.Device(traces.DeviceCPU, 0)
	b.Stream(0)
	for k := range 3 {
		b.T.Ops = append(b.T.Ops, traces.Op{Name: b.String("aten::mul"), Stack: traces.NoStack,
			Parent: traces.NoOp, NoGrad: k == 1})
	}
	got, err := read(written(t, &b.T))
	if err != nil {
		t.Fatal(err)
	}
	for k, op := range got.Ops {
		if op.NoGrad != (k == 1) {
			t.Errorf("op %d: gradients off: %v", k, op.NoGrad)
		}
	}
}
