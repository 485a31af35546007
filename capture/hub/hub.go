// Package hub serves a run of several machines: beside the messages of the run it keeps the join files, says
// what nodes had to drop, offers metrics, and seals the run.
package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/metrics"
)

// Options say how a run is served.
type Options struct {
	// Run is the name of the run.
	Run string
	// Listen, Store, URL, Leaf and Credentials are those of [bus.HubOptions].
	Listen, Store, URL, Leaf, Credentials string
	// Life is how long the keys are valid.
	Life time.Duration
	// JoinFile gets the keys, and ViewFile, unless it is "", those that allow only looking.
	JoinFile, ViewFile string
	// Metrics is the address for Prometheus, and OTLP the URL of an OpenTelemetry collector, "" for none.
	// Headers are for the collector, as OTEL_EXPORTER_OTLP_HEADERS has them.
	Metrics, OTLP, Headers string
	// Note gets news, and Complain problems.
	Note, Complain func(text string)
}

// Mistake is the error for options that do not go together, and for an unusable address, URL or header of
// metrics.
type Mistake struct{ err error }

func (m *Mistake) Error() string { return m.err.Error() }

// Unwrap returns the cause.
func (m *Mistake) Unwrap() error { return m.err }

// Check returns a mistake if there is no name for the run or its join file, or if options do not go together.
// It names them as the flags of gmemtop hub.
func (o *Options) Check() error {
	switch {
	case o.JoinFile == "":
		return &Mistake{errors.New("name the file for the run's keys: --join-file /shared/r1.join")}
	case o.Run == "":
		return &Mistake{errors.New("name the run: --run r1")}
	case o.URL != "" && (o.Listen != "" || o.Store != "" || o.ViewFile != "" || o.Leaf != ""):
		return &Mistake{errors.New("the site's own servers listen and store: leave out --listen, --store, " +
			"--view-file and --leaf")}
	case o.Credentials != "" && o.URL == "" && o.Leaf == "":
		return &Mistake{errors.New("--creds is for a site's own NATS servers: name them with --hub or " +
			"--leaf")}
	}
	return nil
}

// Hub serves a run.
type Hub struct {
	options Options
	bus     *bus.Hub
	undo    []func() // what Close does, last first
}

// Open opens the hub of a run, writes its join files and notes where they are.
func Open(o Options) (_ *Hub, err error) {
	h := &Hub{options: o}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	if err := h.open(); err != nil {
		return nil, err
	}
	if err := h.publish(); err != nil {
		return nil, err
	}
	if err := h.tellLosses(); err != nil {
		return nil, err
	}
	if o.Metrics != "" || o.OTLP != "" {
		if err := h.measure(); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Close ends the hub and removes the join files.
func (h *Hub) Close() {
	for _, f := range slices.Backward(h.undo) {
		f()
	}
	h.undo = nil
}

// Join returns the content of the join file.
func (h *Hub) Join() bus.Join { return h.bus.Join() }

// Remove removes what a site's servers keep of the run.
func (h *Hub) Remove(ctx context.Context) error { return h.bus.Remove(ctx) }

// Seal writes the recordings of all ranks to a new folder.
func (h *Hub) Seal(ctx context.Context, dir string) (fleet.Sealed, error) {
	conn, err := h.bus.Dial(bus.Viewer)
	if err != nil {
		return fleet.Sealed{}, err
	}
	defer conn.Close()
	return fleet.Seal(ctx, conn, dir)
}

// note tells news, and complain a problem.
func (h *Hub) note(format string, args ...any)     { h.options.Note(fmt.Sprintf(format, args...)) }
func (h *Hub) complain(format string, args ...any) { h.options.Complain(fmt.Sprintf(format, args...)) }

// open opens the bus of the run.
func (h *Hub) open() error {
	o := &h.options
	keys, err := bus.NewKeys(o.Life)
	if err != nil {
		return err
	}
	x := bus.HubOptions{Run: o.Run, URL: o.URL, Credentials: o.Credentials, Keys: keys}
	if o.URL == "" {
		// The socket is elsewhere than the join file, since a socket's path must be short.
		dir, err := os.MkdirTemp("", "gmemtop-hub-*")
		if err != nil {
			return err
		}
		h.undo = append(h.undo, func() { _ = os.RemoveAll(dir) })
		x.Listen, x.Store, x.Leaf, x.Socket = o.Listen, o.Store, o.Leaf, filepath.Join(dir, "hub.sock")
		x.Tell = func(o bus.Outage) { h.complain("%s", outageText(o)) }
	}
	if h.bus, err = bus.OpenHub(x); err != nil {
		return err
	}
	h.undo = append(h.undo, h.bus.Close)
	return nil
}

// publish writes the join files and notes where they are.
func (h *Hub) publish() error {
	o, join := &h.options, h.bus.Join()
	if err := join.Write(o.JoinFile); err != nil {
		return err
	}
	h.undo = append(h.undo, func() { _ = os.Remove(o.JoinFile) })
	if forget, err := fleet.Announce(o.Run, o.JoinFile); err == nil {
		h.undo = append(h.undo, forget)
	} else {
		h.complain("view ssh://HOST/%s will not find this hub: %v", o.Run, err)
	}
	if o.ViewFile == "" {
		return nil
	}
	if err := join.ForViewers().Write(o.ViewFile); err != nil {
		return err
	}
	h.undo = append(h.undo, func() { _ = os.Remove(o.ViewFile) })
	return nil
}

// leafWait is how long a site may take to accept a leaf node before people are told.
const leafWait = 5 * time.Second

// Leaf waits until the hub is a leaf node of the site's servers, which it reports, or ctx is done.
func (h *Hub) Leaf(ctx context.Context) bool {
	soon, stop := context.WithTimeout(ctx, leafWait)
	defer stop()
	err := h.bus.Leaf(soon)
	if err != nil && ctx.Err() == nil {
		h.complain("%v; the hub works without it and keeps trying", err)
		err = h.bus.Leaf(ctx)
	}
	return err == nil
}

// outageText says that the hub stores nothing, or that it does again.
func outageText(o bus.Outage) string {
	if o.Ended.IsZero() {
		return fmt.Sprintf("the hub cannot store anything: %v; the training goes on, nodes keep their "+
			"newest steps, and the hub continues by itself once %s has room", o.Why, o.Store)
	}
	text := fmt.Sprintf("the hub is storing steps again, after %s", o.Ended.Sub(o.Begun).Round(time.Second))
	if o.Lost > 0 {
		text += fmt.Sprintf("; %d messages that it had stored are lost", o.Lost)
	}
	return text
}

// lossesEvery is how often the hub checks what nodes had to drop. It is long, so that one message covers a
// whole outage.
const lossesEvery = 5 * time.Second

// tellLosses says how many steps nodes had to drop, until the hub is closed.
func (h *Hub) tellLosses() error {
	conn, err := h.bus.Dial(bus.Viewer)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	var l fleet.Losses
	work.Go(func() { l.Run(ctx, conn) })
	work.Go(func() {
		tick := time.NewTicker(lossesEvery)
		defer tick.Stop()
		var told, before int64
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			// While more is dropped, the sum says little.
			now, worst := l.Sum()
			if now == before && now > told {
				told = now
				h.complain("%d steps are lost: they did not fit in the memory of their nodes while the hub "+
					"took nothing, most of them on %s", now, worst)
			}
			before = now
		}
	})
	h.undo = append(h.undo, func() {
		stop()
		work.Wait()
		conn.Close()
	})
	return nil
}

// metricsRanks is how many ranks the metrics expect: they need only the newest steps of each.
const metricsRanks = 1024

// measure offers the figures of all ranks to Prometheus and sends them to OpenTelemetry, until the hub is
// closed.
func (h *Hub) measure() error {
	conn, err := h.bus.Dial(bus.Viewer)
	if err != nil {
		return err
	}
	o, w := &h.options, fleet.NewWatch(fleet.WatchOptions{Ranks: metricsRanks})
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	h.undo = append(h.undo, func() {
		stop()
		work.Wait()
		conn.Close()
		_ = w.Close()
	})
	if o.Metrics != "" {
		s, err := metrics.Serve(o.Metrics, o.Run, w.Job())
		if errors.Is(err, metrics.ErrOpen) {
			return &Mistake{err}
		}
		if err != nil {
			return err
		}
		h.undo = append(h.undo, s.Close)
		h.note("metrics for Prometheus: http://%s/metrics", s.Address())
	}
	if o.OTLP != "" {
		x, err := h.exporter(w.Job())
		if err != nil {
			return &Mistake{err}
		}
		work.Go(func() { x.Run(ctx) })
	}
	work.Go(func() { w.Run(ctx, conn) })
	return nil
}

// exporter returns what sends a job's figures to OpenTelemetry.
func (h *Hub) exporter(j *job.Job) (*metrics.OTLP, error) {
	headers, err := metrics.ParseHeaders(h.options.Headers)
	if err != nil {
		return nil, err
	}
	return metrics.NewOTLP(metrics.OTLPOptions{URL: h.options.OTLP, Headers: headers, Tell: func(err error) {
		if err == nil {
			h.note("the OpenTelemetry collector takes the metrics again")
			return
		}
		h.complain("%v; the newest ones are sent again later", err)
	}}, h.options.Run, j)
}
