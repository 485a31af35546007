package planner

import "github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"

// Comparing is what a comparison is asked for, as flags and arguments give it.
type Comparing struct {
	*Task
	// Paths are the traces, none for a network and a running training. Folder says that one of them is a
	// folder.
	Paths  []string
	Folder bool
	// Target is the value of --target, and MaxBatch that of --max-batch.
	Target   string
	MaxBatch bool
}

// OfRanks reports whether the comparison is for all ranks in a folder.
func (c *Comparing) OfRanks() bool { return c.Network == "" && c.Folder }

// Check refuses what contradicts itself. The error is a mistake.
func (c *Comparing) Check() error {
	switch {
	case c.AtSequence != 0 && !c.MaxBatch && c.Network == "":
		return exit.Mistakef("--at-sequence is for --max-batch: a recording is planned at the length that " +
			"it was recorded with")
	case len(c.Paths) > 1 && !c.MaxBatch:
		return exit.Mistakef("compare tries memory managers on one file, and takes more only with "+
			"--max-batch: gmemtop diff says what changed from %q to %q", c.Paths[0], c.Paths[1])
	case c.OfRanks() && c.MaxBatch:
		return exit.Mistakef("--max-batch is for one rank: name its file instead of the folder")
	case c.OfRanks() && c.Target != "sim":
		return exit.Mistakef("a folder of ranks is planned for on the simulator: name the file of one rank " +
			"to measure its plans on a GPU")
	}
	return nil
}

// CheckLive refuses what a running training cannot be asked for. The error is a mistake.
func (c *Comparing) CheckLive() error {
	if c.Network != "" || c.Iteration != "" || c.MaxBatch {
		return exit.Mistakef("--target live:PID plans the step that the training runs: leave out " +
			"--network, --iteration and --max-batch")
	}
	return nil
}
