package reach

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
)

// Relay connects standard input and out with the hub of a run of this user, or of the job of Slurm in
// slurm:JOB. It is the far end of a place.
func Relay(ctx context.Context, run string, role bus.Role, out io.Writer) error {
	job, slurm := strings.CutPrefix(run, "slurm:")
	path, err := fleet.Find(job)
	if err != nil && slurm {
		return relayOn(ctx, run, role, out)
	}
	if err != nil {
		return err
	}
	join, err := bus.ReadJoin(path)
	if err != nil {
		return err
	}
	if slurm && !reachable(&join) {
		return relayOn(ctx, run, role, out)
	}
	return bus.Relay(ctx, join, role, os.Stdin, out)
}

// relayOn passes everything on to a node of a Slurm job.
func relayOn(ctx context.Context, place string, role bus.Role, out io.Writer) error {
	if role == bus.Operator {
		return errPlain(place)
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	w, err := wayTo(place, own, role)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, w.first[0], w.first[1:]...)
	cmd.Env = append(os.Environ(), w.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
	return cmd.Run()
}
