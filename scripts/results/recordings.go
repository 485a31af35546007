package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/managers/swap"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

// errAbsent is wrapped by errors about a recording that this run lacks.
var errAbsent = errors.New("not in this run")

// recordings are the public ones in the folder that GMEMTOP_TRACES names, "" for none.
type recordings struct{ folder string }

// public returns the file of the public recordings that matches a pattern.
func (from recordings) public(pattern string) (string, error) {
	files, err := from.publicAll(pattern)
	if err != nil {
		return "", err
	}
	return files[0], nil
}

// publicAll returns all matching files, in alphabetical order.
func (from recordings) publicAll(pattern string) ([]string, error) {
	if from.folder == "" {
		return nil, fmt.Errorf("%w: GMEMTOP_TRACES is not set", errAbsent)
	}
	files, err := filepath.Glob(filepath.Join(from.folder, pattern))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%w: GMEMTOP_TRACES has no %s", errAbsent, pattern)
	}
	return files, nil
}

// absent notes on the page that a recording is missing, if err says so, and reports whether it does.
func (p *page) absent(what string, err error) bool {
	if !errors.Is(err, errAbsent) {
		return false
	}
	p.para("Left out of this page: %s. %s.", what, strings.ToUpper(err.Error()[:1])+err.Error()[1:])
	return true
}

// device opens a recording and returns its device.
func device(ctx context.Context, path string) (*timeline.Device, error) {
	tr, err := load.Open(ctx, path, load.Options{NoCache: true})
	if err != nil {
		return nil, err
	}
	tl, err := timeline.Build(ctx, tr, nil)
	if err != nil {
		return nil, err
	}
	d := tl.Main()
	if d == nil {
		return nil, errors.New("a recording has no device")
	}
	return d, nil
}

// blockRecording is AutoSwap's recording of three iterations of VGG with the load curve that its authors
// computed from it.
func (from recordings) blockRecording(ctx context.Context) (*swap.Recording, *timeline.Device, error) {
	path, err := from.public("papers/*block_fresh_vgg*")
	if err != nil {
		return nil, nil, err
	}
	curve, err := from.public("papers/*load_origin_vgg*")
	if err != nil {
		return nil, nil, err
	}
	d, err := device(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	period, ok := steps.SmartPool(d)
	if !ok {
		return nil, nil, errors.New("AutoSwap's VGG recording: no iteration was found")
	}
	tr := d.Timeline().Trace
	r := &swap.Recording{Period: period.Length, Ops: blockOps(tr)}
	if len(r.Ops) < 3*r.Period {
		return nil, nil, fmt.Errorf("AutoSwap's VGG recording: %d ops are no three iterations of %d",
			len(r.Ops), r.Period)
	}
	r.Ops = r.Ops[len(r.Ops)-3*r.Period:] // the reader puts older blocks first
	for i := range r.Ops {
		// the authors' program kept Unix time in a float64, which is exact to 256 ns
		r.Ops[i].Time = int64(float64(tr.Clock.Epoch+r.Ops[i].Time)) - int64(float64(tr.Clock.Epoch))
	}
	f, err := os.Open(curve)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		v, err := strconv.ParseFloat(lines.Text(), 64)
		if err != nil {
			return nil, nil, fmt.Errorf("AutoSwap's load curve: %w", err)
		}
		r.Load = append(r.Load, int64(v))
	}
	return r, d, lines.Err()
}

// blockOps merges a trace's events and accesses as they were recorded.
func blockOps(tr *traces.Trace) []swap.BlockOp {
	kinds := map[traces.AccessMode]swap.OpKind{traces.Read: swap.OpRead, traces.Mutate: swap.OpMutable,
		traces.Use: swap.OpLayer}
	var ops []swap.BlockOp
	acc := tr.Accesses
	for i := 0; ; i++ {
		for len(acc) > 0 && (int(acc[0].Event) <= i || i == tr.Events.Len()) {
			ops = append(ops, swap.BlockOp{Kind: kinds[acc[0].Mode], Addr: acc[0].Addr, Size: acc[0].Size,
				Time: acc[0].Time})
			acc = acc[1:]
		}
		if i == tr.Events.Len() {
			return ops
		}
		kind := swap.OpFree
		if tr.Events.Action[i] == traces.Alloc {
			kind = swap.OpMalloc
		}
		ops = append(ops, swap.BlockOp{Kind: kind, Addr: tr.Events.Addr[i], Size: tr.Events.Size[i],
			Time: tr.Events.Time[i]})
	}
}

// packing reads a storage-allocation problem.
func packing(path string) (*pack.Table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return nil, err
		}
	}
	return pack.ReadCSV(r)
}
