package pytorch

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch/pool"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/kineto"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// WindowDamaged is the name of the loss of a damaged window, of which the part before the damage is kept. The
// loss's detail says where the damage is.
const WindowDamaged = "window_damaged"

// WindowRows is the name of the loss of what came after the last row that the agent keeps of a window.
const WindowRows = "window_rows"

// assembly is a window that arrives in pieces.
type assembly struct {
	head   windowHead
	packed bytes.Buffer
	// devices are the GPUs of the process.
	devices []traces.Device
}

// add appends a piece. A window of more than maxPacked is an error, which ends the session.
func (a *assembly) add(p []byte) error {
	if a.packed.Len()+len(p) > maxPacked {
		return fmt.Errorf("%w: a window larger than %d MiB", errProtocol, maxPacked>>20)
	}
	a.packed.Write(p)
	return nil
}

// finish decodes the window. What can be decoded of a damaged one is returned with a loss in the trace.
func (a *assembly) finish(ctx context.Context, tail windowTail) (capture.Window, error) {
	w := capture.Window{First: a.head.First, Last: a.head.Last, How: a.head.How, Partial: a.head.Partial,
		Orders: a.head.Orders,
		Cost:   time.Duration(tail.Cost)}
	switch a.head.Encoding {
	case "":
		return a.ofAgent(ctx, w, tail)
	case encodingGMT:
		return a.ofRelay(ctx, w)
	}
	return w, fmt.Errorf("%w: a window encoded as %.20q", errProtocol, a.head.Encoding)
}

// ofRelay decodes a window that another viewer has already read: remarks about it are in its trace, and
// gmt.Read counts there what was damaged on the way.
func (a *assembly) ofRelay(ctx context.Context, w capture.Window) (capture.Window, error) {
	tr, err := gmt.Read(ctx, &a.packed, nil)
	if tr == nil {
		return w, errors.Join(errProtocol, err)
	}
	w.Trace, w.Bytes = tr, capture.Size(tr)
	return w, nil
}

// ofAgent decodes a window as an agent describes it.
func (a *assembly) ofAgent(ctx context.Context, w capture.Window, tail windowTail) (capture.Window, error) {
	unpacked, err := zlib.NewReader(&a.packed)
	if err != nil {
		return capture.Window{}, fmt.Errorf("%w: %w", errProtocol, err)
	}
	limited := &io.LimitedReader{R: unpacked, N: maxWindow}
	var tr *traces.Trace
	switch a.head.How {
	case capture.HowOps:
		tr, err = described.ReadWith(ctx, limited, described.Options{Sentence: say.Label})
	case capture.HowHistory:
		tr, err = torchsnapshot.Read(ctx, limited, nil)
	case capture.HowProfile:
		tr, err = kineto.Read(ctx, limited, nil)
	case capture.HowEvents:
		var r pool.Recording
		if err = json.NewDecoder(limited).Decode(&r); err == nil {
			tr, err = pool.FromEvents(r)
		}
	default:
		return w, fmt.Errorf("%w: a window captured by %.20q", errProtocol, a.head.How)
	}
	if limited.N <= 0 {
		return w, fmt.Errorf("%w: a window larger than %d MiB", errProtocol, maxWindow>>20)
	}
	if tr == nil {
		return w, errors.Join(errProtocol, err)
	}
	if err != nil {
		tr.Losses = append(tr.Losses, traces.Loss{Name: WindowDamaged, Severity: traces.Fault, Count: 1,
			Detail: err.Error()})
	}
	if a.head.How == capture.HowOps {
		numberSteps(tr, a.head.First)
	} else if tr.Clock.Epoch != 0 {
		markSteps(tr, a.head)
	}
	nameDevices(tr, a.devices)
	if tail.Lost > 0 {
		tr.Losses = append(tr.Losses, traces.Loss{Name: WindowRows, Severity: traces.DataLoss,
			Count:  tail.Lost,
			Detail: "the window was longer than the agent keeps; what came after its last row is missing"})
	}
	if a.head.Partial {
		tr.Losses = append(tr.Losses, traces.Loss{Name: "partial_step", Severity: traces.Info, Count: 1,
			Detail: "the process ended within the last step"})
	}
	w.Trace, w.Bytes = tr, capture.Size(tr)
	return w, nil
}

// nameDevices adds the names of a window's GPUs if its format lacks them. The trace is not shared yet.
func nameDevices(tr *traces.Trace, devices []traces.Device) {
	for i := range tr.Devices {
		d := &tr.Devices[i]
		k := slices.IndexFunc(devices, func(x traces.Device) bool {
			return x.Kind == d.Kind && x.Ordinal == d.Ordinal
		})
		if k < 0 {
			continue
		}
		if d.Name == "" {
			d.Name = devices[k].Name
		}
		if d.TotalBytes == 0 {
			d.TotalBytes = devices[k].TotalBytes
		}
	}
}

// numberSteps renumbers the steps of a description, which has its own count, by the job's count. The trace is
// not shared yet.
func numberSteps(tr *traces.Trace, first int64) {
	for i := range tr.Marks {
		if tr.Marks[i].Kind == traces.MarkIteration {
			tr.Strings = append(tr.Strings, "step "+strconv.FormatInt(first, 10))
			tr.Marks[i].Name = traces.StringID(len(tr.Strings) - 1)
			first++
		}
	}
}

// markSteps adds the step bounds that the agent saw to torch's own recordings, which know no steps. The trace
// is not shared yet.
func markSteps(tr *traces.Trace, head windowHead) {
	for i, s := range head.Steps {
		tr.Strings = append(tr.Strings, "step "+strconv.FormatInt(head.First+int64(i), 10))
		tr.Marks = append(tr.Marks, traces.Mark{Start: s[0] - tr.Clock.Epoch, End: s[1] - tr.Clock.Epoch,
			Name: traces.StringID(len(tr.Strings) - 1), Kind: traces.MarkIteration})
	}
	sort.SliceStable(tr.Marks, func(i, j int) bool { return tr.Marks[i].Start < tr.Marks[j].Start })
}
