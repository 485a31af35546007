package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
)

// reachFlags say where the hub of a run is: by its join file, or by a name such as ssh://login/r1.
type reachFlags struct {
	join string // the join file, "" for none
	far  string // the gmemtop at the far end

	hub, run string // a site's own servers and the run there, "" for none
	creds    string // the file with the key for them
}

// credsUsage explains --creds.
const credsUsage = "the `file` with your credentials for the site's own NATS servers, if those carry the run"

// errHub says how to name a run on a site's servers.
var errHub = errors.New("to look at a run through a site's own NATS servers, write --hub tls://HOST:PORT " +
	"--creds FILE --run NAME; with the run's join file, write --join-file FILE instead of --run NAME")

func (r *reachFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&r.join, "join-file", "", "the `file` that gmemtop hub wrote")
	p.StringVar(&r.far, "far-gmemtop", "gmemtop", "the `program` that ssh, srun and kubectl start at the "+
		"far end, if gmemtop is not on the PATH there")
	p.StringVar(&r.hub, "hub", "", "reach the run through a site's own NATS servers at this `URL`, such as "+
		"tls://nats.site:4222")
	p.StringVar(&r.creds, "creds", "", credsUsage)
	help.Rare(p, "far-gmemtop", "hub", "creds")
}

// isPlace reports whether an argument names a run elsewhere, not a file.
func isPlace(text string) bool {
	return strings.HasPrefix(text, "ssh://") || strings.HasPrefix(text, "k8s://") ||
		strings.HasPrefix(text, "slurm:")
}

// errPlace says how to name a run elsewhere.
var errPlace = errors.New("write ssh://[USER@]HOST[:PORT]/RUN, ssh://HOST/slurm:JOB, slurm:JOB, " +
	"k8s://NAMESPACE/JOB or k8s://NAMESPACE/pod/NAME")

// way is how to reach a hub: through the join file of a run that is known here, or a program such as ssh.
type way struct {
	run          string
	here         bool
	first, again []string
	env          []string
	encrypted    bool // whether the program encrypts what it carries
}

var (
	slurmJobName = regexp.MustCompile(`^[0-9]+([_+][0-9]+)?$`)
	// kubeName is what Kubernetes allows as a name, with the kind of thing before it if there is one.
	kubeName = regexp.MustCompile(`^([a-z]+/)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	// sshUser does not begin with a hyphen, so that it is no option.
	sshUser = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.@+-]*$`)
)

// wayTo reads a place. role decides which keys the far end hands out.
func (r *reachFlags) wayTo(place string, role bus.Role) (way, error) {
	wrong := func() (way, error) { return way{}, usagef("%q: %w", place, errPlace) }
	relay := []string{r.far, "relay"}
	if role == bus.Operator {
		relay = append(relay, "--operator")
	}
	if job, ok := strings.CutPrefix(place, "slurm:"); ok {
		if !slurmJobName.MatchString(job) {
			return wrong()
		}
		argv := append([]string{"srun", "--jobid=" + job, "--nodes=1", "--ntasks=1", "--quiet"}, relay...)
		argv = append(argv, place)
		// An srun before 20.11 has no such option, but ignores the variable.
		return way{run: job, here: true, first: argv, again: argv, env: []string{"SLURM_OVERLAP=1"}}, nil
	}
	u, err := url.Parse(place)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return wrong()
	}
	path := strings.Trim(u.Path, "/")
	switch u.Scheme {
	case "ssh":
		host := u.Hostname()
		if host == "" || strings.HasPrefix(host, "-") || path == "" || strings.HasPrefix(path, "-") {
			return wrong()
		}
		if job, ok := strings.CutPrefix(path, "slurm:"); ok && !slurmJobName.MatchString(job) {
			return wrong()
		}
		var options []string
		if port := u.Port(); port != "" {
			options = append(options, "-p", port)
		}
		if u.User != nil {
			if _, secret := u.User.Password(); secret {
				return way{}, usagef("leave the password out of the URL, where others can " +
					"read it: ssh asks for it")
			}
			if !sshUser.MatchString(u.User.Username()) {
				return wrong()
			}
			options = append(options, "-l", u.User.Username())
		}
		options = append(options, "-T", "--", host, shellWords(append(relay, path)))
		// The screen is in use when the connection is made again, so ssh must not ask for anything.
		return way{first: append([]string{"ssh"}, options...),
			again: append([]string{"ssh", "-o", "BatchMode=yes"}, options...), encrypted: true}, nil
	case "k8s":
		if u.User != nil || u.Port() != "" || !kubeName.MatchString(u.Host) || !kubeName.MatchString(path) {
			return wrong()
		}
		if !strings.Contains(path, "/") {
			path = "job/" + path
		}
		argv := append([]string{"kubectl", "exec", "-i", "-n", u.Host, path, "--"}, relay...)
		return way{first: argv, again: argv, encrypted: true}, nil
	}
	return wrong()
}

// shellWords writes words for a shell.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// shellWord writes a word for a shell that a person reads: in quotes only if it needs them.
func shellWord(w string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-,:%=+@"
	if w != "" && strings.Trim(w, plain) == "" {
		return w
	}
	return shellWords([]string{w})
}

// to returns how to reach the hub at place, or the one of the join file if place is "". The caller calls
// leave when it is done.
func (r *reachFlags) to(ctx context.Context, place, command string, role bus.Role) (_ fleet.Reach,
	leave func(), err error) {
	host, _ := os.Hostname()
	reach := fleet.Reach{Access: bus.Access{Role: role, Name: fmt.Sprintf("%s %s:%d", command, host,
		os.Getpid())}}
	leave = func() {}
	reach.Access.Credentials = r.creds
	switch {
	case r.hub == "" && r.run != "", r.hub != "" && ((r.run == "") == (r.join == "") || place != ""):
		return reach, nil, usageError{errHub}
	case r.hub != "":
		reach.Access.URL = r.hub
		if r.join != "" {
			reach.Join = func(context.Context) (bus.Join, error) { return bus.ReadJoin(r.join) }
			return reach, leave, nil
		}
		reach.Join = func(context.Context) (bus.Join, error) { return bus.Join{Run: r.run}, nil }
		return reach, leave, nil
	case place != "" && r.join != "":
		return reach, nil, usagef("give either --join-file or a place such as ssh://HOST/RUN, not both")
	case place == "" && r.join == "":
		return reach, nil, usagef("name the file that gmemtop hub wrote: --join-file /shared/r1.join")
	case place == "":
		reach.Join = func(context.Context) (bus.Join, error) { return bus.ReadJoin(r.join) }
		return reach, leave, nil
	}
	w, err := r.wayTo(place, role)
	if err != nil {
		return reach, nil, err
	}
	if w.here {
		if path, err := fleet.Find(w.run); err == nil {
			if j, err := bus.ReadJoin(path); err == nil && reachable(&j) {
				reach.Join = func(context.Context) (bus.Join, error) { return bus.ReadJoin(path) }
				return reach, leave, nil
			}
		}
	}
	if role == bus.Operator && !w.encrypted {
		return reach, nil, errPlain(place)
	}
	t, err := bus.OpenTunnel(ctx, w.first, w.again, w.env)
	if err != nil {
		return reach, nil, fmt.Errorf("connect to %s: %w", place, err)
	}
	reach.Access.Tunnel = t
	reach.Join = func(context.Context) (bus.Join, error) { return t.Join(), nil }
	return reach, t.Close, nil
}

// errPlain is the error for orders through srun, which would send the key in the clear.
func errPlain(place string) error {
	return unsupportedError{fmt.Errorf("%s: srun encrypts nothing, and the key for giving "+
		"orders would pass through it: run gmemtop capture on a machine that has the join file", place)}
}

// orders returns how to give orders to a run that is viewed through looks. The caller calls leave when done.
// The screen is in use, so ssh must not ask for anything.
func (r *reachFlags) orders(ctx context.Context, place string, looks fleet.Reach) (_ fleet.Reach,
	leave func(), err error) {
	looks.Access.Role = bus.Operator
	if looks.Access.Tunnel == nil {
		return looks, func() {}, nil
	}
	w, err := r.wayTo(place, bus.Operator)
	if err != nil {
		return looks, nil, err
	}
	if !w.encrypted {
		return looks, nil, errPlain(place)
	}
	t, err := bus.OpenTunnel(ctx, w.again, w.again, w.env)
	if err != nil {
		return looks, nil, fmt.Errorf("a capture needs a second connection to %s: %w; if ssh has to ask for "+
			"a password, run gmemtop capture %s in another terminal", place, err, place)
	}
	looks.Access.Tunnel = t
	looks.Join = func(context.Context) (bus.Join, error) { return t.Join(), nil }
	return looks, t.Close, nil
}

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
