package torchsnapshot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/traces"
)

// TestHostilePicklesAreRefused lists what a pickle must not make a reader do, and the expected errors.
func TestHostilePicklesAreRefused(t *testing.T) {
	open := "PROTO 4\nEMPTY_DICT\nMARK\nstr device_traces\n"
	event := open + "EMPTY_LIST\nMARK\nEMPTY_LIST\nMEMOIZE\nMARK\nEMPTY_DICT\nMEMOIZE\nMARK\nstr " +
		"action\nstr alloc\nSETITEMS\n"
	for name, c := range map[string]struct{ source, want string }{
		"reduce": {"PROTO 4\nRAW \"c__builtin__\\neval\\n(X\\x01\\x00\\x00\\x001tR.\"",
			"byte 2: opcode GLOBAL, which makes Python run code"},
		"stack global":   {"PROTO 4\nstr os\nstr system\nBYTE 0x93\n", "byte 14: opcode STACK_GLOBAL"},
		"reduce inside":  {event + "BYTE 82\n", "opcode REDUCE"},
		"build":          {open + "BYTE 98\n", "opcode BUILD"},
		"inst":           {open + "BYTE 105\n", "opcode INST"},
		"obj":            {open + "BYTE 111\n", "opcode OBJ"},
		"newobj":         {open + "BYTE 0x81\n", "opcode NEWOBJ"},
		"newobj_ex":      {open + "BYTE 0x92\n", "opcode NEWOBJ_EX"},
		"persid":         {open + "BYTE 80\n", "opcode PERSID"},
		"binpersid":      {open + "BYTE 81\n", "opcode BINPERSID"},
		"ext":            {open + "BYTE 0x82\n", "opcode EXT1"},
		"next buffer":    {open + "BYTE 0x97\n", "opcode NEXT_BUFFER; a real snapshot never holds it"},
		"protocol 0":     {open + "BYTE 73\n", "opcode INT"},
		"no opcode":      {open + "BYTE 0xff\n", "0xff is not an opcode"},
		"protocol 6":     {"PROTO 6\nEMPTY_DICT\nSTOP\n", "pickle protocol 6; gmemtop reads 2 to 5"},
		"deep lists":     {open + "EMPTY_LIST\nMARK  x300\n", "nested deeper than 256"},
		"deep marks":     {"PROTO 4\nMARK  x300\n", "nested deeper than 256"},
		"many values":    {open + "NONE  x5000000\n", "MiB of memory for the first"},
		"memo never put": {open + "BINGET 9\n", "memo entry 9 was never put"},
		"memo far away": {open + "LONG_BINPUT 0xfffffff0\n",
			"memo index 4294967280 where 0 entries were put"},
		"numbers in the memo": {open + "BININT1 1\nMEMOIZE  x70000\n",
			"more than 65536 numbers are memoized"},
		"string of 2^60": {open + "RAW \"\\x8d\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x10abc\"",
			"a string of 1152921504606846976 bytes"},
		"string of 2^64-1": {open + "RAW \"\\x8d\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xffabc\"",
			"a string of 9223372036854775807 bytes"},
		"string of 4 GiB":  {open + "RAW \"X\\xff\\xff\\xff\\xffabc\"", "a string of 4294967295 bytes"},
		"string of 60 MiB": {open + "RAW \"X\\x00\\x00\\xc0\\x03abc\"", "the file ends in the middle"},
		"long of 2 GiB": {open + "RAW \"\\x8b\\xff\\xff\\xff\\x7fabc\"",
			"an integer of 2147483647 bytes"},
		"long below zero": {open + "RAW \"\\x8b\\xff\\xff\\xff\\xffabc\"", "an integer of -1 bytes"},
		"setitems of a list": {"PROTO 4\nEMPTY_LIST\nMARK\nNONE\nNONE\nSETITEMS\n",
			"keys are set on a list of segments"},
		"appends to a dict": {"PROTO 4\nEMPTY_DICT\nMARK\nNONE\nAPPENDS\n",
			"elements are appended to a snapshot"},
		"appends to a string": {"PROTO 4\nstr a\nMARK\nNONE\nAPPENDS\n",
			"elements are appended to a string"},
		"odd items": {"PROTO 4\nEMPTY_DICT\nMARK\nNONE\nSETITEMS\n",
			"SETITEMS without a dict and pairs"},
		"no mark": {"PROTO 4\nEMPTY_DICT\nSETITEMS\n", "no mark to go back to"},
		"items across a mark": {"PROTO 4\nEMPTY_DICT\nMARK\nMARK\nNONE\nNONE\nSETITEMS\n",
			"SETITEMS without a dict"},
		"setitem of nothing": {"PROTO 4\nEMPTY_DICT\nMARK\nNONE\nNONE\nSETITEM\n",
			"SETITEM without a dict and a pair"},
		"append to nothing": {"PROTO 4\nEMPTY_LIST\nAPPEND\n", "APPEND without a list"},
		"tuple of nothing":  {"PROTO 4\nTUPLE3\n", "a tuple of more values than there are"},
		"pop of nothing":    {"PROTO 4\nPOP\n", "POP of nothing"},
		"dup of nothing":    {"PROTO 4\nDUP\n", "DUP of nothing"},
		"memoize nothing":   {"PROTO 4\nMEMOIZE\n", "nothing to memoize"},
		"stop of nothing":   {"PROTO 4\nSTOP\n", "the pickle stops with 0 values"},
		"a number":          {"PROTO 4\nBININT1 3\nSTOP\n", "this is not a memory snapshot"},
		"another dict": {"PROTO 4\nEMPTY_DICT\nstr a\nNONE\nSETITEM\nSTOP\n",
			"this is not a memory snapshot"},
		"an empty list": {"PROTO 4\nEMPTY_LIST\nSTOP\n", "this is not a memory snapshot"},
		"a list of others": {"PROTO 4\nEMPTY_LIST\nEMPTY_DICT\nstr a\nNONE\nSETITEM\nAPPEND\nSTOP\n",
			"this is not a memory snapshot"},
		"a number after segments": {"PROTO 4\nEMPTY_LIST\nEMPTY_DICT\nMARK\nstr address\nBININT1 1\n" +
			"str blocks\nEMPTY_LIST\nSETITEMS\nAPPEND\nPOP\nBININT1 3\nSTOP\n",
			"this is not a memory snapshot"},
		"entries without keys": {open + "EMPTY_LIST\nMARK\nEMPTY_LIST\nMARK\nEMPTY_DICT  x100000\n",
			"a trace entry without any key"},
		"an open trace again": {event + "BINGET 0\nMARK\nEMPTY_DICT\nMARK\nstr size\nBININT1 " +
			"1\nSETITEMS\nAPPENDS\nAPPENDS\nEMPTY_LIST\nBINGET 0\nEMPTY_DICT\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := read(assemble(t, c.source))
			if err == nil {
				t.Fatal("it was read without an error")
			}
			if !errors.Is(err, traces.ErrFormat) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if tr != nil {
				checkTables(t, tr)
			}
		})
	}
}

// TestErrorsForForeignFiles checks that errors say what to do.
func TestErrorsForForeignFiles(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"empty": {"", "the file is empty"},
		"lfs pointer": {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
			"git lfs pull"},
		"noise":       {"\x00\x01\x02\x03", "neither a pickle of protocol 2 to 5 nor JSON"},
		"json array":  {"[1, 2]", "this is not a memory snapshot"},
		"json object": {`{"a": {"b": []}}`, "this is not a memory snapshot"},
		"json cut":    {`{"segments": [`, "the file ends in the middle"},
		"json word":   {`{"segments": nil}`, `"nil" is not a value`},
		"json comma":  {`{"segments": [] "a"}`, "',' should be"},
		"json colon":  {`{"segments" []}`, "':' should be"},
		"json key":    {`{1: 2}`, "where a key should be"},
		"json number": {`{"segments": -}`, `"-" is not a number`},
		"json escape": {`{"\q": 1}`, `escape \q`},
		"json hex":    {`{"\u12x4": 1}`, `in a \u escape`},
		"json deep":   {strings.Repeat(`{"a":`, 300), "nested deeper than 256"},
		"json digits": {`{"a": ` + strings.Repeat("9", 5000) + "}", "an integer of more than 1024 digits"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := read([]byte(c.data))
			if tr != nil || !errors.Is(err, traces.ErrFormat) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v, want %q", tr, err, c.want)
			}
		})
	}
}

// TestSegmentsThatSayNothing: a few bytes of JSON must not make a row each, and a device that cannot be is
// counted.
func TestSegmentsThatSayNothing(t *testing.T) {
	for _, data := range []string{`{"segments": [{}, {}]}`,
		`{"segments": [{"address": 1, "blocks": [{}, {}]}]}`} {
		if _, err := read([]byte(data)); err == nil || !strings.Contains(err.Error(), "without any key") {
			t.Errorf("%s: %v", data, err)
		}
	}
	tr, err :=
		read([]byte(`{"segments": [{"device": -3, "address": 1, "total_size": 8}], "device_traces": []}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.Losses) != 1 || tr.Losses[0].Name != "wrong_types" {
		t.Errorf("a device below zero leaves the losses %v", tr.Losses)
	}
}

// repeated is an endless input of head and then one body for ever, for as many bytes as asked.
func repeated(head, body string, n int) io.Reader {
	return io.MultiReader(strings.NewReader(head), io.LimitReader(&loop{body: body}, int64(n)))
}

type loop struct {
	body string
	at   int
}

func (l *loop) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = l.body[l.at]
		l.at = (l.at + 1) % len(l.body)
	}
	return len(p), nil
}

// TestBombsStayWithinMemory feeds inputs that ask for as much memory for each byte as the opcodes allow. What
// is live at any moment stays within four times the input, whatever they ask for.
func TestBombsStayWithinMemory(t *testing.T) {
	const size = 32 << 20
	root := "\x80\x04}\x94(\x8c\x01a\x94"
	traceList := "\x80\x04}(\x8c\x0ddevice_traces]("
	for name, c := range map[string]struct{ head, body string }{
		"empty lists under unknown keys":     {root + "](", "]"},
		"memoized lists":                     {root + "](", "]\x94"},
		"lists that contain themselves":      {root, "]\x94(h\x01h\x01e"},
		"lists that are appended one by one": {root + "]", "]a"},
		"numbers appended one by one":        {root + "]", "K\x01a"},
		"numbers as keys":                    {root + "}", "K\x01Ns"},
		"tuples in tuples":                   {root + "N", "\x85"},
		"values on the stack":                {root + "](", "N"},
		"one value memoized":                 {root + "](]", "\x94"},
		"memo bomb":                          {root + "](h\x00h\x00", "(h\x01h\x01h\x01h\x01t\x94"},
		"entries of one key":                 {traceList + "](", "}\x8c\x01aNs"},
		"entries of an action":               {traceList + "](", "}\x8c\x06action\x8c\x05allocs"},
		"entries of a memoized key": {"\x80\x04}(\x8c\x06action\x94\x8c\x0ddevice_traces](](",
			"}h\x00h\x00s"},
		"traces":   {traceList, "]"},
		"stacks":   {traceList + "](}(\x8c\x06frames", "]\x94"},
		"segments": {"\x80\x04}(\x8c\x08segments]", "}\x8c\x01aNsa"},
		"blocks": {"\x80\x04}(\x8c\x07address\x94\x8c\x08segments](}(\x8c\x06blocks](",
			"}h\x00K\x00s"},
		"distinct strings": {root + "](", "\x8c\x03abc\x8c\x02de0\x8c\x01f\x94"},
		"deep json":        {`{"a": `, `[`},
		"long json string": {`{"a": "`, `a`},
		"json lists":       {`{"a": [`, `[],`},
		"json dicts":       {`{"a": [`, `{"":0},`},
		"json segments":    {`{"segments": [`, `{"a":0},`},
		"json blocks":      {`{"segments": [{"blocks": [`, `{"a":0},`},
		"json entries":     {`{"device_traces": [[`, `{"a":1},`},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			most := mostLive(func() {
				_, err = Read(context.Background(), repeated(c.head, c.body, size), nil)
			})
			if err == nil {
				t.Error("it was read without an error")
			}
			if most > 4*size {
				t.Errorf("%d MiB were live for %d MiB of input: %v", most>>20, size>>20, err)
			}
		})
	}
}

// mostLive returns the most bytes that the garbage collector found live while f ran, beyond those before.
func mostLive(f func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	read := func() int64 {
		metrics.Read(live)
		return int64(live[0].Value.Uint64())
	}
	runtime.GC()
	before, most := read(), int64(0)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			most = max(most, read())
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	f()
	close(done)
	<-ended
	return most - before
}

// TestDistinctStringsStayWithinMemory: strings that differ are kept, with an index of them.
func TestDistinctStringsStayWithinMemory(t *testing.T) {
	const size = 32 << 20
	r, w := io.Pipe()
	go func() {
		w.Write([]byte("\x80\x04}\x8c\x01a]("))
		b := []byte{opShortBinUnicode, 4, 0, 0, 0, 0, opPop}
		for i := range uint32(size / len(b)) {
			for j := range 4 {
				b[2+j] = 'a' + byte(i>>(5*j)&31)
			}
			if _, err := w.Write(b); err != nil {
				return
			}
		}
		w.Close()
	}()
	most := mostLive(func() { Read(context.Background(), bufio.NewReaderSize(r, 1<<20), nil) })
	if most > 4*size {
		t.Errorf("%d MiB were live for %d MiB of input", most>>20, size>>20)
	}
}

// TestAStackThatGrowsAfterEachUseIsBounded: each use of a list of frames that has grown is another stack, so
// that n uses hold n*n/2 frames. A few thousand are read, and no more.
func TestAStackThatGrowsAfterEachUseIsBounded(t *testing.T) {
	snapshot := func(uses int) []byte {
		const alloc = "\x8c\x06action\x8c\x05alloc"
		const grow, use = "h\x00\x8c\x01fa0", "}(" + alloc + "\x8c\x06framesh\x00u"
		return []byte("\x80\x04}\x8c\x0ddevice_traces]](}(\x8c\x06frames]\x94" + alloc + "u" +
			strings.Repeat(grow+use, uses) + "eas.")
	}
	tr, err := read(snapshot(2000))
	if err != nil || tr.Events.Len() != 2001 || len(tr.Stacks.At(tr.Events.Stack[2000])) != 2000 {
		t.Fatalf("2,000 uses: %v", err)
	}
	if _, err := read(snapshot(4000)); !errors.Is(err, traces.ErrFormat) ||
		!strings.Contains(err.Error(), "a stack that goes on after it was used, again and again") {
		t.Errorf("4,000 uses: %v", err)
	}
}

// TestAMemoBombIsNotWrittenOut: lists of lists of the same list are small in the file and in memory; as JSON
// they would be 4^30 elements.
func TestAMemoBombIsNotWrittenOut(t *testing.T) {
	var p bytes.Buffer
	p.WriteString("\x80\x04}(\x8c\x08segments]\x8c\x04bomb]q\x00K\x01a")
	for i := range byte(30) {
		p.Write([]byte{opEmptyList, opBinPut, i + 1, opMark, opBinGet, i, opBinGet, i, opBinGet, i, opBinGet,
			i, opAppends})
	}
	// Only the last list stays as the value: the others are popped below it.
	source := p.Bytes()
	source = append(source, opBinPut, 40)
	source = append(source, bytes.Repeat([]byte{opPop}, 31)...)
	source = append(source, opBinGet, 40, opSetItems, opStop)
	tr, err := read(source)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(tr.Extra); got != "[{bomb null}]" {
		t.Errorf("extra is %.200s", got)
	}
	if len(tr.Losses) != 2 || tr.Losses[1].Name != "unknown_keys_dropped" {
		t.Errorf("losses are %v", tr.Losses)
	}
}

// TestARepeatedEntryIsRepeated: a list may hold one dict twice.
func TestARepeatedEntryIsRepeated(t *testing.T) {
	tr, err := read(assemble(t, `PROTO 2
EMPTY_DICT
MARK
str device_traces
EMPTY_LIST
MARK
EMPTY_LIST
MARK
EMPTY_DICT
BINPUT 7
MARK
str action
str alloc
str size
BININT2 4096
SETITEMS
EMPTY_DICT
str action
str free
SETITEM
BINGET 7
APPENDS
APPENDS
SETITEMS
STOP
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(tr.Events.Action, tr.Events.Size); got != "[alloc free alloc] [4096 0 4096]" {
		t.Errorf("events are %s", got)
	}
}

// FuzzRead looks for inputs that panic, hang, or give a trace with an id outside its table; what is read must
// also be writable.
func FuzzRead(f *testing.F) {
	for _, a := range cases(f) {
		for form, data := range encodings(f, a) {
			if form == "json" || form == "opcodes" || strings.HasSuffix(form, "tuples true shared true") {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		Sniff(data)
		tr, err := read(data)
		if err != nil && !errors.Is(err, traces.ErrFormat) {
			t.Fatal(err)
		}
		if tr == nil {
			return
		}
		checkTables(t, tr)
		var out bytes.Buffer
		if err := Write(context.Background(), &out, tr); err != nil {
			t.Fatal(err)
		}
		again, err := read(out.Bytes())
		if tr.Events.Len() == 0 && len(tr.Final.Segments) == 0 {
			return
		}
		if err != nil || again.Events.Len() != tr.Events.Len() ||
			len(again.Final.Blocks) != len(tr.Final.Blocks) {
			t.Fatalf("written and read back: %v", err)
		}
	})
}

// TestALargeFileMayHoldAsMuchUnderUnknownKeys: what is kept of unknown keys may grow with the file. Here it
// is twice the file, and more than any file may begin with.
func TestALargeFileMayHoldAsMuchUnderUnknownKeys(t *testing.T) {
	const numbers = 2 << 20
	data := `{"notes": [` + strings.Repeat("1234567,", numbers) +
		`1], "device_traces": [[{"action": "alloc"}]]}`
	tr, err := read([]byte(data))
	if err != nil || tr.Events.Len() != 1 {
		t.Fatalf("%d MiB of notes and an event: %v", len(data)>>20, err)
	}
}
