// Package reach finds the hub of a run: by its join file, through a site's own NATS servers, or through ssh,
// srun or kubectl, which start another gmemtop at the far end. There [Relay] takes over.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
)

// Where says where the hub of a run is: by its join file, or by a place such as ssh://login/r1.
type Where struct {
	// Place is "" for the hub of the join file.
	Place string
	// JoinFile is "" for none.
	JoinFile string
	// Program is the gmemtop at the far end of a place.
	Program string
	// URL is a site's own NATS servers and Run the run there, "" for none. Credentials is the file with the
	// key for them.
	URL, Run, Credentials string
}

// Mistake is the error for a place that is named wrongly.
type Mistake struct{ err error }

func (m *Mistake) Error() string { return m.err.Error() }

// Unwrap returns the cause.
func (m *Mistake) Unwrap() error { return m.err }

func mistake(format string, args ...any) error { return &Mistake{fmt.Errorf(format, args...)} }

// ErrPlain is the error for orders through srun, which would send the key in the clear.
var ErrPlain = errors.New("srun encrypts nothing, and the key for giving orders would pass through it: run " +
	"gmemtop capture on a machine that has the join file")

// errHub says how to name a run on a site's servers.
var errHub = errors.New("to look at a run through a site's own NATS servers, write --hub tls://HOST:PORT " +
	"--creds FILE --run NAME; with the run's join file, write --join-file FILE instead of --run NAME")

// Open returns how to reach the hub in a role. command is the name of the command that does so. The caller
// calls leave when it is done.
func (w Where) Open(ctx context.Context, command string, role bus.Role) (_ fleet.Reach, leave func(),
	err error) {
	host, _ := os.Hostname()
	reach := fleet.Reach{Access: bus.Access{Role: role, Name: fmt.Sprintf("%s %s:%d", command, host,
		os.Getpid())}}
	leave = func() {}
	reach.Access.Credentials = w.Credentials
	switch {
	case w.URL == "" && w.Run != "", w.URL != "" && ((w.Run == "") == (w.JoinFile == "") || w.Place != ""):
		return reach, nil, &Mistake{errHub}
	case w.URL != "":
		reach.Access.URL = w.URL
		if w.JoinFile != "" {
			reach.Join = func(context.Context) (bus.Join, error) { return bus.ReadJoin(w.JoinFile) }
			return reach, leave, nil
		}
		reach.Join = func(context.Context) (bus.Join, error) { return bus.Join{Run: w.Run}, nil }
		return reach, leave, nil
	case w.Place != "" && w.JoinFile != "":
		return reach, nil, mistake("give either --join-file or a place such as ssh://HOST/RUN, not both")
	case w.Place == "" && w.JoinFile == "":
		return reach, nil, mistake("name the file that gmemtop hub wrote: --join-file /shared/r1.join")
	case w.Place == "":
		reach.Join = func(context.Context) (bus.Join, error) { return bus.ReadJoin(w.JoinFile) }
		return reach, leave, nil
	}
	way, err := wayTo(w.Place, w.Program, role)
	if err != nil {
		return reach, nil, err
	}
	if way.here {
		if path, err := fleet.Find(way.run); err == nil {
			if j, err := bus.ReadJoin(path); err == nil && reachable(&j) {
				reach.Join = func(context.Context) (bus.Join, error) { return bus.ReadJoin(path) }
				return reach, leave, nil
			}
		}
	}
	if role == bus.Operator && !way.encrypted {
		return reach, nil, errPlain(w.Place)
	}
	t, err := bus.OpenTunnel(ctx, way.first, way.again, way.env)
	if err != nil {
		return reach, nil, fmt.Errorf("connect to %s: %w", w.Place, err)
	}
	reach.Access.Tunnel = t
	reach.Join = func(context.Context) (bus.Join, error) { return t.Join(), nil }
	return reach, t.Close, nil
}

// errPlain says at which place orders would be sent in the clear.
func errPlain(place string) error { return fmt.Errorf("%s: %w", place, ErrPlain) }

// Orders connects with the permission to give orders to the run that looks shows. The caller calls leave
// when done.
// The screen is in use, so ssh must not ask for anything.
func (w Where) Orders(ctx context.Context, looks fleet.Reach) (_ fleet.Reach, leave func(), err error) {
	looks.Access.Role = bus.Operator
	if looks.Access.Tunnel == nil {
		return looks, func() {}, nil
	}
	way, err := wayTo(w.Place, w.Program, bus.Operator)
	if err != nil {
		return looks, nil, err
	}
	if !way.encrypted {
		return looks, nil, errPlain(w.Place)
	}
	t, err := bus.OpenTunnel(ctx, way.again, way.again, way.env)
	if err != nil {
		return looks, nil, fmt.Errorf("a capture needs a second connection to %s: %w; if ssh has to ask for "+
			"a password, run gmemtop capture %s in another terminal", w.Place, err, w.Place)
	}
	looks.Access.Tunnel = t
	looks.Join = func(context.Context) (bus.Join, error) { return t.Join(), nil }
	return looks, t.Close, nil
}

// reachWait is how long a machine may take to say that a port is open.
const reachWait = 2 * time.Second

// reachable reports whether this machine can connect to a hub. Without --listen only its own machine can.
func reachable(j *bus.Join) bool {
	if host, err := os.Hostname(); err == nil && host == j.Host && j.Socket != "" {
		return true
	}
	for _, a := range j.Addresses {
		if c, err := net.DialTimeout("tcp", a, reachWait); err == nil {
			_ = c.Close()
			return true
		}
	}
	return false
}
