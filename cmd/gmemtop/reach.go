package main

import (
	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
)

// reachFlags say where the hub of a run is.
type reachFlags struct{ reach.Where }

// credsUsage explains --creds.
const credsUsage = "the `file` with your credentials for the site's own NATS servers, if those carry the run"

func (r *reachFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&r.JoinFile, "join-file", "", "the `file` that gmemtop hub wrote")
	p.StringVar(&r.Program, "far-gmemtop", "gmemtop", "the `program` that ssh, srun and kubectl start at "+
		"the far end, if gmemtop is not on the PATH there")
	p.StringVar(&r.URL, "hub", "", "reach the run through a site's own NATS servers at this `URL`, such as "+
		"tls://nats.site:4222")
	p.StringVar(&r.Credentials, "creds", "", credsUsage)
	help.Rare(p, "far-gmemtop", "hub", "creds")
}
