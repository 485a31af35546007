//go:build !nobus

package fleet

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func someBatches() []batch {
	full := aStep(7)
	full.RSS, full.Work, full.PoolsAt, full.Skipped = maybe.Known(int64(1)), maybe.Known(int64(2)),
		maybe.Known(int64(3)), true
	full.Carried = capture.Carried{Plan: 1, Out: 2, In: 3, OutTime: 4, InTime: 5, Again: 6, Missed: 7,
		Checked: 8, Differ: 9}
	huge := capture.Step{Index: math.MaxInt64, Start: 1, End: math.MaxInt64}
	return []batch{
		{head{3, 1, 99, maybe.Known(int64(1023)), maybe.Known(int64(1024))}, []capture.Step{aStep(0), full,
			huge}},
		{head{id: 4}, nil},
	}
}

func TestABatchIsReadAsItWasWritten(t *testing.T) {
	var message []byte
	for _, b := range someBatches() {
		message = appendBatch(message, b)
	}
	var got []batch
	if err := readBatches(message, func(b batch) { got = append(got, b) }); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, someBatches()) {
		t.Errorf("%+v", got)
	}
	// A newer node may know more columns.
	row := appendRow(nil, append([]int64{1, 0, 5, 2, 4}, 77, 78))
	longer := append(append([]byte{wireVersion}, row...), 0)
	got = nil
	if err := readBatches(longer, func(b batch) { got = append(got, b) }); err != nil || got[0].pid != 5 {
		t.Errorf("a head with more columns: %+v, %v", got, err)
	}
}

// FuzzBatches: whatever arrives, reading it neither fails badly nor takes more memory than a multiple of what
// arrived, and what was read is read again from what is written of it.
func FuzzBatches(f *testing.F) {
	var message []byte
	for _, b := range someBatches() {
		message = appendBatch(message, b)
		f.Add(message)
	}
	f.Add([]byte{wireVersion, 5, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		var list []batch
		steps := 0
		err := readBatches(data, func(b batch) { list = append(list, b); steps += len(b.steps) })
		if steps > len(data) || len(list) > len(data) {
			t.Errorf("%d bytes make %d steps of %d processes", len(data), steps, len(list))
		}
		if err != nil {
			return
		}
		again := []byte{wireVersion}
		for _, b := range list {
			again = appendBatch(again, b)
		}
		var second []batch
		if err := readBatches(again, func(b batch) { second = append(second, b) }); err != nil ||
			fmt.Sprint(list) != fmt.Sprint(second) {
			t.Errorf("%v, written and read again: %v, %v", list, second, err)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add([]byte(`{"v":1,"host":"a","ranks":[{"id":1,"pid":2,"rank":3,"step":4,` +
		`"end":{"reason":"exited","code":1}}]}`))
	f.Add([]byte(`{"v":1,"ranks":[{}],"over":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := NewWatch(WatchOptions{})
		defer w.Close()
		w.take(bus.Message{Node: "a", Kind: bus.Hello, Data: data})
		w.look(true)
		_ = seen(w)
	})
}
