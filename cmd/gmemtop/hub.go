package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/metrics"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// hubCommand serves a run of several machines.
type hubCommand struct {
	*app
	run, listen   string
	join, viewers string
	store, seal   string
	life          time.Duration
	metrics       string // the address for Prometheus, "" for none
	otlp          string // the URL of an OpenTelemetry collector, "" for none
	url, creds    string // a site's own servers that carry the run instead
	leaf          string // where a site's own servers take leaf nodes, "" for none
}

func newHubCommand(a *app) *cobra.Command {
	c := hubCommand{app: a}
	cmd := &cobra.Command{
		Use: "hub --join-file FILE [flags]", GroupID: groupLive, Args: cobra.NoArgs,
		Short: "Collect what the machines of one training send",
		Long: `Collects the steps of a training that runs on several machines, until Ctrl-C or SIGTERM. Start
it on a machine that all others can reach, such as the first node.

It writes the keys of the run to the join file, which only you can read. Put it in a folder that all
machines share: gmemtop run --join-file sends the steps of a machine's ranks, and gmemtop view --join-file
shows all ranks. Connections are encrypted. Nothing needs root.

The training does not depend on the hub: without it the training goes on, and steps follow later.`,
		Example: "  gmemtop hub --listen node0:7422 --join-file /shared/r1.join\n" +
			"  gmemtop hub --listen node0:7422 --join-file /shared/r1.join -o /shared/r1",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.serve() },
	}
	p := cmd.Flags()
	p.StringVar(&c.join, "join-file", "", "write the keys of the run to this `file`")
	p.StringVar(&c.listen, "listen", "", "let other machines connect at this `host:port`; without it, only "+
		"programs on this machine can")
	p.StringVar(&c.run, "run", "", "the `name` of the run (default what Slurm, torchrun or MPI say)")
	p.StringVar(&c.viewers, "view-file", "", "also write a join `file` that allows only looking")
	p.StringVarP(&c.seal, "output", "o", "", "at the end, write a recording of each rank to this "+
		"new `folder`")
	p.StringVar(&c.store, "store", "", "keep what was sent in this local `folder`, for a hub that is "+
		"started again (default a temporary one)")
	p.DurationVar(&c.life, "valid", 30*24*time.Hour, "how long the keys are valid")
	p.StringVar(&c.metrics, "metrics", "", "offer the newest figures of all ranks to Prometheus at this "+
		"`address` of this machine, such as 127.0.0.1:9464")
	p.StringVar(&c.otlp, "otlp", "", "send the same figures to the OpenTelemetry collector at this `URL`, "+
		"such as http://127.0.0.1:4318")
	p.StringVar(&c.url, "hub", "", "let a site's own NATS servers at this `URL` carry the run, such as "+
		"tls://nats.site:4222, instead of a server of gmemtop's own")
	p.StringVar(&c.leaf, "leaf", "", "also become a leaf node of the site's own NATS servers at this `URL`, "+
		"so that the site's users can look at the run from there")
	p.StringVar(&c.creds, "creds", "", credsUsage)
	help.Rare(p, "view-file", "store", "valid", "metrics", "otlp", "hub", "leaf", "creds")
	return cmd
}

// serve runs a hub until a signal arrives.
func (c *hubCommand) serve() error {
	if err := c.check(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c.signals(func(os.Signal) { stop() })
	h, end, err := c.open()
	if err != nil {
		return err
	}
	defer end()
	join, withdraw, err := c.publish(h)
	defer withdraw()
	if err != nil {
		return err
	}
	leave, err := c.tellLosses(h)
	if err != nil {
		return err
	}
	defer leave()
	if c.metrics != "" || c.otlp != "" {
		leave, err := c.measure(h)
		if err != nil {
			return err
		}
		defer leave()
	}
	c.tellWhere(join)
	if c.leaf != "" {
		c.joinSite(ctx, h)
	}
	<-ctx.Done()
	if c.seal != "" {
		if err := c.write(h); err != nil {
			return err
		}
	}
	late, cancel := context.WithTimeout(context.Background(), catchUp)
	defer cancel()
	return h.Remove(late)
}

// check refuses flags that do not go together, and finds the run's name if none was given.
func (c *hubCommand) check() error {
	if c.join == "" {
		return usagef("name the file for the run's keys: --join-file /shared/r1.join")
	}
	if c.run == "" {
		if c.run = fleet.Identify(c.Env).Run; c.run == "" {
			return usagef("name the run: --run r1")
		}
	}
	if c.seal != "" {
		if _, err := os.Lstat(c.seal); err == nil {
			return usagef("-o %s exists already: name a new folder", c.seal)
		}
	}
	if c.url != "" && (c.listen != "" || c.store != "" || c.viewers != "" || c.leaf != "") {
		return usagef("the site's own servers listen and store: leave out --listen, --store, --view-file " +
			"and --leaf")
	}
	if c.creds != "" && c.url == "" && c.leaf == "" {
		return usagef("--creds is for a site's own NATS servers: name them with --hub or --leaf")
	}
	return nil
}

// publish writes the join files and notes where they are. withdraw removes what it has written, also after an
// error.
func (c *hubCommand) publish(h *bus.Hub) (join bus.Join, withdraw func(), err error) {
	var undo []func()
	withdraw = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	join = h.Join()
	if c.listen != "" {
		join.Addresses = []string{advertised(c.listen, h.Address())}
	}
	if err := join.Write(c.join); err != nil {
		return join, withdraw, err
	}
	undo = append(undo, func() { _ = os.Remove(c.join) })
	if forget, err := fleet.Announce(c.run, c.join); err == nil {
		undo = append(undo, forget)
	} else {
		c.complain("view ssh://HOST/%s will not find this hub: %v", c.run, err)
	}
	if c.viewers != "" {
		if err := join.ForViewers().Write(c.viewers); err != nil {
			return join, withdraw, err
		}
		undo = append(undo, func() { _ = os.Remove(c.viewers) })
	}
	return join, withdraw, nil
}

// tellWhere says who can connect, and the command that shows the run.
func (c *hubCommand) tellWhere(join bus.Join) {
	switch {
	case c.url != "":
		c.note("run %s: %s carries it; gmemtop view --join-file %s --creds FILE shows it", c.run, c.url,
			c.join)
	case c.listen != "":
		c.note("run %s: listening for %s; gmemtop view --join-file %s shows it", c.run, join.Addresses[0],
			c.join)
	default:
		c.note("run %s: listening for programs on this machine; gmemtop view --join-file %s shows it", c.run,
			c.join)
	}
}

// open opens the hub. end closes it.
func (c *hubCommand) open() (h *bus.Hub, end func(), err error) {
	keys, err := bus.NewKeys(c.life)
	if err != nil {
		return nil, nil, err
	}
	if c.url != "" {
		h, err := bus.OpenHub(bus.HubOptions{Run: c.run, URL: c.url, Credentials: c.creds, Keys: keys})
		if err != nil {
			return nil, nil, err
		}
		return h, h.Close, nil
	}
	// The socket is not beside the join file, since a socket's path must be short.
	dir, err := os.MkdirTemp("", "gmemtop-hub-*")
	if err != nil {
		return nil, nil, err
	}
	h, err = bus.OpenHub(bus.HubOptions{Run: c.run, Listen: c.listen, Keys: keys, Store: c.store,
		Leaf: c.leaf, Credentials: c.creds, Socket: filepath.Join(dir, "hub.sock"),
		Tell: func(o bus.Outage) { c.complain("%s", outageText(o)) }})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	return h, func() {
		h.Close()
		_ = os.RemoveAll(dir)
	}, nil
}

// leafWait is how long a site may take to accept a leaf node before people are told.
const leafWait = 5 * time.Second

// joinSite says how the site's users look at the run, once the hub is a leaf node of the site's servers.
func (c *hubCommand) joinSite(ctx context.Context, h *bus.Hub) {
	soon, stop := context.WithTimeout(ctx, leafWait)
	defer stop()
	err := h.Leaf(soon)
	if err != nil && ctx.Err() == nil {
		c.complain("%v; the hub works without it and keeps trying", err)
		err = h.Leaf(ctx)
	}
	if err == nil {
		c.note("this hub is a leaf node of %s; gmemtop view --hub URL --creds FILE --run %s shows the run "+
			"there", c.leaf, shellWord(c.run))
	}
}

// outageText says that the hub stores nothing, or that it does again.
func outageText(o bus.Outage) string {
	if o.Ended.IsZero() {
		return fmt.Sprintf("the hub can store nothing: %v; the training goes on, nodes keep their newest "+
			"steps, and the hub goes on by itself when %s has room", o.Why, o.Store)
	}
	text := fmt.Sprintf("the hub stores again, after %s", o.Ended.Sub(o.Begun).Round(time.Second))
	if o.Lost > 0 {
		text += fmt.Sprintf("; %d messages that it had are lost", o.Lost)
	}
	return text
}

// lossesEvery is how often the hub says what nodes had to drop.
const lossesEvery = 5 * time.Second

// tellLosses says how many steps nodes had to drop, until leave is called.
func (c *hubCommand) tellLosses(h *bus.Hub) (leave func(), err error) {
	conn, err := h.Dial(bus.Viewer)
	if err != nil {
		return nil, err
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
				c.complain("%d steps are lost: they did not fit in the memory of their nodes while the hub "+
					"took nothing, most of them on %s", now, report.Printable(worst))
			}
			before = now
		}
	})
	return func() {
		stop()
		work.Wait()
		conn.Close()
	}, nil
}

// metricsRanks is how many ranks the metrics expect: they need only the newest steps of each.
const metricsRanks = 1024

// measure offers the figures of all ranks to Prometheus and sends them to OpenTelemetry, until leave is
// called.
func (c *hubCommand) measure(h *bus.Hub) (leave func(), err error) {
	conn, err := h.Dial(bus.Viewer)
	if err != nil {
		return nil, err
	}
	w := fleet.NewWatch(fleet.WatchOptions{Ranks: metricsRanks})
	ctx, stop := context.WithCancel(context.Background())
	var sending, reading sync.WaitGroup
	serving := func() {}
	leave = func() {
		serving()
		stop()
		sending.Wait()
		reading.Wait()
		conn.Close()
		_ = w.Close()
	}
	if c.metrics != "" {
		s, err := metrics.Serve(c.metrics, c.run, w.Job())
		if err != nil {
			leave()
			if errors.Is(err, metrics.ErrOpen) {
				return nil, usageError{err}
			}
			return nil, err
		}
		serving = s.Close
		c.note("metrics for Prometheus: http://%s/metrics", s.Address())
	}
	if c.otlp != "" {
		x, err := c.exporter(w.Job())
		if err != nil {
			leave()
			return nil, err
		}
		sending.Go(func() { x.Run(ctx) })
	}
	reading.Go(func() { w.Run(ctx, conn) })
	return leave, nil
}

// exporter returns what sends a job's figures to OpenTelemetry. The headers are secret, so they come from the
// environment.
func (c *hubCommand) exporter(j *job.Job) (*metrics.OTLP, error) {
	headers, err := metrics.ParseHeaders(c.Env("OTEL_EXPORTER_OTLP_HEADERS"))
	if err != nil {
		return nil, usageError{err}
	}
	x, err := metrics.NewOTLP(metrics.OTLPOptions{URL: c.otlp, Headers: headers, Tell: func(err error) {
		if err == nil {
			c.note("the OpenTelemetry collector takes the metrics again")
			return
		}
		c.complain("%s; the newest ones are sent again later", report.Printable(err.Error()))
	}}, c.run, j)
	if err != nil {
		return nil, usageError{err}
	}
	return x, nil
}

// sealWait is how long writing the recordings may take.
const sealWait = 10 * time.Minute

// write writes the recordings of all ranks. A second signal ends it.
func (c *hubCommand) write(h *bus.Hub) error {
	ctx, stop := context.WithTimeout(context.Background(), sealWait)
	defer stop()
	c.signals(func(os.Signal) { stop() })
	conn, err := h.Dial(bus.Viewer)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := fleet.Seal(ctx, conn, c.seal)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d steps of %d processes recorded; gmemtop view %s", s.Steps, len(s.Files), c.seal)
	if s.Lost > 0 {
		text += fmt.Sprintf("; %d steps never reached the hub", s.Lost)
	}
	if s.Gone > 0 {
		text += fmt.Sprintf("; the hub no longer had the first %d", s.Gone)
	}
	c.note("%s", text)
	return nil
}

// advertised is the address at which other machines reach a hub. One that listens everywhere is reached by
// the machine's name.
func advertised(listen, address string) string {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}
