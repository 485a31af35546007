// Package nsys reads the SQLite export of NVIDIA Nsight Systems (nsys profile --cuda-memory-usage=true, then
// nsys export --type sqlite): what a process asked the CUDA driver for, and what ran on its GPUs meanwhile.
//
//   - CUDA_GPU_MEMORY_USAGE_EVENTS becomes memory events: device, static, array and managed memory of the
//     GPU, pinned and pageable memory of the host.
//   - Kernels, copies and memory sets become ops on their streams. NVTX ranges named after a PyTorch op
//     (torch.autograd.profiler.emit_nvtx) become ops of their thread, other NVTX ranges marks.
//   - A stack is the backtrace of the call, where one was recorded (--cudabacktrace=memory), and outside of
//     it the NVTX ranges that were open on its thread; without either, the name of the call.
//
// A caching allocator such as PyTorch's takes memory from the driver in segments: they are the blocks of this
// trace, and the tensors in them are not in the file.
//
// The database is opened read-only and as immutable, so that neither a lock nor a journal is written beside
// it. Only tables are read, by the names and columns that Nsight Systems documents; a view, a virtual table
// or a computed column under one of those names counts as absent, since it could run for ever.
//
// Sources: the SQLite schema reference of Nsight Systems' documentation, and the schemas that exports of
// versions 2021 to 2026 declare.
package nsys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

const magic = "SQLite format 3\x00"

// Sniff reports whether head begins an SQLite database.
func Sniff(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }

// ErrOther is the error about a database of another program.
var ErrOther = &traces.FormatError{Offset: 0,
	Reason: "the file is an SQLite database, but not one that Nsight Systems exported",
	Advice: "nsys export --type sqlite report.nsys-rep writes those"}

// errNoMemory is the error about an export without memory events.
var errNoMemory = &traces.UnsupportedError{Reason: "this export of Nsight Systems holds no memory events",
	Advice: "record with nsys profile --cuda-memory-usage=true"}

// Read reads an export that is not a plain file, such as a compressed one: SQLite needs to seek, so the
// export is copied to a temporary file first. progress, if not nil, is called with the number of bytes
// copied.
func Read(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error) {
	f, err := os.CreateTemp("", "gmemtop-*.sqlite")
	if err != nil {
		return nil, fmt.Errorf("nsys: a compressed export is unpacked to a temporary file: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	for done := int64(0); ; {
		n, err := io.CopyN(f, r, 1<<20)
		done += n
		if progress != nil {
			progress(done)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	db, err := openDatabase(ctx, f.Name())
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name()) // it is open: if gmemtop is killed, nothing is left behind
	return readDatabase(ctx, db)
}

// ReadFile reads the export at path. For damaged input it returns what was read before the damage with an
// error that names the table.
func ReadFile(ctx context.Context, path string) (*traces.Trace, error) {
	db, err := openDatabase(ctx, path)
	if err != nil {
		return nil, err
	}
	return readDatabase(ctx, db)
}

func readDatabase(ctx context.Context, db *database) (*traces.Trace, error) {
	defer db.close()
	x := &reader{db: db, b: traces.NewBuilder(), strings: map[int64]string{}}
	t, err := x.read()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return t, err
}

// reader turns the tables into a trace.
type reader struct {
	db      *database
	b       *traces.Builder
	strings map[int64]string

	process int64 // the shown process, as processOf gives it; -1 if the export does not name processes
	memory  []memory
	calls   map[int64]*call // by correlation, those that memory events name
	failed  []call          // calls that found no memory
	ranges  []nvtxRange
	work    []work
	zero    int64
	gpu     traces.DeviceID // which marks and the ops of threads are about
}

func (x *reader) read() (*traces.Trace, error) {
	switch {
	case !x.db.has("StringIds") && !x.db.has(memoryTable) && !x.db.has("TARGET_INFO_GPU"):
		return nil, ErrOther
	case !x.db.has(memoryTable):
		return nil, errNoMemory
	}
	broken := x.readMemory()
	if len(x.memory) == 0 {
		if broken == nil {
			broken = errNoMemory
		}
		return nil, broken
	}
	// The rest adds names and work to the memory events; the trace is useful without it.
	for _, step := range []func() error{x.readStrings, x.readCalls, x.readRanges, x.readKernels, x.readCopies,
		x.readSets} {
		if broken != nil {
			break
		}
		broken = step()
	}
	return x.finish(broken)
}

func (x *reader) finish(broken error) (*traces.Trace, error) {
	x.setZero()
	if broken == nil {
		broken = x.readTarget()
	}
	if broken != nil {
		x.b.Lose(traces.LossTruncated, traces.DataLoss, 1,
			"the file is cut or damaged; what its tables hold after that place is missing")
	}
	x.addEvents()
	x.addWork()
	x.addMarks()
	x.b.T.Source.Format = traces.FormatNsys
	return x.b.Finish(), broken
}

// setZero finds the first time of the trace, which becomes 0.
func (x *reader) setZero() {
	x.zero = x.memory[0].time
	for _, w := range x.work {
		x.zero = min(x.zero, w.start)
	}
	for _, r := range x.ranges {
		x.zero = min(x.zero, r.start)
	}
}

// processOf returns the process in a serialized id of a process or thread, whose low 24 bits are the thread.
func processOf(global int64) int64 { return global >> 24 }

// readStrings reads the table of strings, which others refer to.
func (x *reader) readStrings() error {
	return x.db.each("StringIds", []string{"id", "value"}, 2, func(r row) {
		if s := r.text(1); s != "" {
			x.strings[r.int(0)] = s
		}
	})
}

// readTarget names the devices, the process, the tool and the time of the recording.
func (x *reader) readTarget() error {
	t := &x.b.T
	t.Source.Tool = "Nsight Systems"
	if x.process >= 0 {
		t.Process.PID = maybe.Known(x.process & (1<<24 - 1))
	}
	for _, table := range []struct {
		name     string
		columns  []string
		required int
		take     func(r row)
	}{
		{"META_DATA_EXPORT", []string{"name", "value"}, 2, func(r row) {
			if r.text(0) == "EXPORT_PRODUCT_VERSION" {
				t.Source.Tool += " " + r.text(1)
			}
		}},
		{"TARGET_INFO_SESSION_START_TIME", []string{"utcEpochNs"}, 1, func(r row) {
			const year2001 = 1e18
			if at := r.int(0); at > year2001 && at < 1<<62 && x.zero < 1<<61 {
				t.Clock.Epoch = at + x.zero
			}
		}},
		{"TARGET_INFO_SYSTEM_ENV", []string{"name", "value"}, 2, func(r row) {
			if strings.EqualFold(r.text(0), "hostname") {
				t.Process.Host = r.text(1)
			}
		}},
		{"TARGET_INFO_GPU", []string{"id", "name", "totalMemory"}, 1, func(r row) {
			for i, d := range t.Devices {
				if d.Kind == traces.DeviceGPU && int64(d.Ordinal) == r.int(0) {
					t.Devices[i].Name, t.Devices[i].TotalBytes = r.text(1), max(r.int(2), 0)
				}
			}
		}},
	} {
		if err := x.db.each(table.name, table.columns, table.required, table.take); err != nil {
			return err
		}
	}
	return nil
}

// named returns string id, or its number where the table lacks it.
func (x *reader) named(id int64) string {
	if s, ok := x.strings[id]; ok {
		return s
	}
	return "string " + strconv.FormatInt(id, 10)
}
