package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/hub"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
)

// hubCommand serves a run of several machines.
type hubCommand struct {
	*app
	hub.Options
	seal string // the folder for recordings at the end, "" for none
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

The training does not depend on the hub: if the hub is down, the training continues and its steps
follow later.`,
		Example: "  gmemtop hub --listen node0:7422 --join-file /shared/r1.join\n" +
			"  gmemtop hub --listen node0:7422 --join-file /shared/r1.join -o /shared/r1",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.serve() },
	}
	p := cmd.Flags()
	p.StringVar(&c.JoinFile, "join-file", "", "write the keys of the run to this `file`")
	p.StringVar(&c.Listen, "listen", "", "let other machines connect at this `host:port`; without it, only "+
		"programs on this machine can")
	p.StringVar(&c.Run, "run", "", "the `name` of the run (default what Slurm, torchrun or MPI say)")
	p.StringVar(&c.ViewFile, "view-file", "", "also write a read-only join `file`, for viewers that "+
		"may not capture")
	p.StringVarP(&c.seal, "output", "o", "", "at the end, write a recording of each rank to this "+
		"new `folder`")
	p.StringVar(&c.Store, "store", "", "keep what was sent in this local `folder`, for a hub that is "+
		"started again (default a temporary one)")
	p.DurationVar(&c.Life, "valid", 30*24*time.Hour, "how long the keys are valid")
	p.StringVar(&c.Metrics, "metrics", "", "serve the newest figures of all ranks to Prometheus at this "+
		"`address` of this machine, such as 127.0.0.1:9464")
	p.StringVar(&c.OTLP, "otlp", "", "send the same figures to the OpenTelemetry collector at this `URL`, "+
		"such as http://127.0.0.1:4318")
	p.StringVar(&c.URL, "hub", "", "let a site's own NATS servers at this `URL` carry the run, such as "+
		"tls://nats.site:4222, instead of a server of gmemtop's own")
	p.StringVar(&c.Leaf, "leaf", "", "also become a leaf node of the site's own NATS servers at this `URL`, "+
		"so that the site's users can watch the run from there")
	addCredsFlag(p, &c.Credentials)
	help.Rare(p, "view-file", "store", "valid", "metrics", "otlp", "hub", "leaf")
	return cmd
}

// serve runs a hub until a signal arrives.
func (c *hubCommand) serve() error {
	if err := c.check(); err != nil {
		return err
	}
	ctx, stop := c.UntilSignal(context.Background())
	defer stop()
	// Headers of a collector are secret, so they come from the environment.
	c.Headers = c.Env("OTEL_EXPORTER_OTLP_HEADERS")
	c.Note = c.note
	c.Complain = c.complain
	h, err := hub.Open(c.Options)
	if err != nil {
		return err
	}
	defer h.Close()
	c.note(headless.Where(&c.Options, h.Join()))
	if c.Leaf != "" && h.Leaf(ctx) {
		c.notef("this hub is a leaf node of %s; gmemtop view --hub URL --creds FILE --run %s shows the run "+
			"there", c.Leaf, console.ShellWord(c.Run))
	}
	<-ctx.Done()
	if c.seal != "" {
		if err := c.write(h); err != nil {
			return err
		}
	}
	late, cancel := context.WithTimeout(context.Background(), removeWait)
	defer cancel()
	return h.Remove(late)
}

// removeWait is how long a site's servers may take to remove what they keep of the run.
const removeWait = time.Minute

// check refuses flags that do not go together, and finds the run's name if none was given.
func (c *hubCommand) check() error {
	if c.Run == "" {
		c.Run = fleet.Identify(c.Env).Run
	}
	if err := c.Options.Check(); err != nil {
		return err
	}
	if _, err := os.Lstat(c.seal); c.seal != "" && err == nil {
		return exit.Mistakef("-o %s exists already: name a new folder", c.seal)
	}
	return nil
}

// sealWait is how long writing the recordings may take.
const sealWait = 10 * time.Minute

// write writes the recordings of all ranks. A second signal ends it.
func (c *hubCommand) write(h *hub.Hub) error {
	ctx, cancel := context.WithTimeout(context.Background(), sealWait)
	defer cancel()
	ctx, stop := c.UntilSignal(ctx)
	defer stop()
	s, err := h.Seal(ctx, c.seal)
	if err != nil {
		return err
	}
	c.note(headless.Sealed(s, c.seal))
	return nil
}
