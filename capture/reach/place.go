package reach

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/slurm"
)

// IsPlace reports whether an argument names a run elsewhere, not a file.
func IsPlace(text string) bool {
	return strings.HasPrefix(text, "ssh://") || strings.HasPrefix(text, "k8s://") ||
		strings.HasPrefix(text, "slurm:")
}

// ErrPlace says how to name a run elsewhere.
var ErrPlace = errors.New("write ssh://[USER@]HOST[:PORT]/RUN, ssh://HOST/slurm:JOB, slurm:JOB, " +
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
	// kubeName is what Kubernetes allows as a name, with the kind of thing before it if there is one.
	kubeName = regexp.MustCompile(`^([a-z]+/)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	// sshUser does not begin with a hyphen, so that it is no option.
	sshUser = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.@+-]*$`)
)

// wayTo reads a place. program is the gmemtop at the far end; role decides which keys that hands out.
func wayTo(place, program string, role bus.Role) (way, error) {
	wrong := func() (way, error) { return way{}, mistake("%q: %w", place, ErrPlace) }
	relay := []string{program, "relay"}
	if role == bus.Operator {
		relay = append(relay, "--operator")
	}
	if job, ok := strings.CutPrefix(place, "slurm:"); ok {
		if !slurm.IsJob(job) {
			return wrong()
		}
		argv := append([]string{"srun", "--jobid=" + job, "--nodes=1", "--ntasks=1", "--quiet"}, relay...)
		argv = append(argv, place)
		return way{run: job, here: true, first: argv, again: argv, env: []string{slurm.Overlap}}, nil
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
		if job, ok := strings.CutPrefix(path, "slurm:"); ok && !slurm.IsJob(job) {
			return wrong()
		}
		var options []string
		if port := u.Port(); port != "" {
			options = append(options, "-p", port)
		}
		if u.User != nil {
			if _, secret := u.User.Password(); secret {
				return way{}, mistake("leave the password out of the URL, where others can " +
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
