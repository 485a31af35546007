package main

import (
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
)

// addCredsFlag adds --creds.
func addCredsFlag(p *pflag.FlagSet, file *string) {
	p.StringVar(file, "creds", "", "the `file` with your credentials, if the run goes through the site's "+
		"own NATS servers")
	help.Rare(p, "creds")
}

// addReachFlags adds the flags that say where the hub of a run is.
func addReachFlags(p *pflag.FlagSet, w *reach.Where) {
	p.StringVar(&w.JoinFile, "join-file", "", "the `file` that gmemtop hub wrote")
	p.StringVar(&w.Program, "far-gmemtop", "gmemtop", "the `program` that ssh, srun and kubectl start at "+
		"the far end, if gmemtop is not on the PATH there")
	p.StringVar(&w.URL, "hub", "", "reach the run through a site's own NATS servers at this `URL`, such as "+
		"tls://nats.site:4222")
	addCredsFlag(p, &w.Credentials)
	help.Rare(p, "far-gmemtop", "hub")
}
