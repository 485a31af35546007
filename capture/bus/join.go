package bus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/traces/wholefile"
)

// Role is what a key allows.
type Role string

// The roles.
const (
	// Agent publishes what the ranks of a node do, and takes orders.
	Agent Role = "agent"
	// Viewer reads.
	Viewer Role = "viewer"
	// Operator reads, and gives orders.
	Operator Role = "operator"
	// Worker takes units of work and sends their results.
	Worker Role = "worker"
)

// roles are all roles.
var roles = []Role{Agent, Viewer, Operator, Worker}

// Join is what a node or a viewer needs to reach the hub of a run: its addresses, its certificate and the
// keys. It is a file that only its owner can read, usually in a folder that all nodes share.
type Join struct {
	Version int    `json:"version"`
	Run     string `json:"run"`
	// Host is the machine of the hub. There, Socket reaches it without a network.
	Host      string   `json:"host,omitempty"`
	Socket    string   `json:"socket,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// URL is the site's own NATS servers that carry the run, "" for a hub of ours.
	URL string `json:"url,omitempty"`
	// Certificate is the only one that a client accepts, as PEM.
	Certificate string    `json:"certificate"`
	Expires     time.Time `json:"expires"`
	// Seeds are secret. A file for those who only look has only the viewer's.
	Seeds map[Role]string `json:"seeds"`
	// Orders is the public key of those whose orders a node obeys.
	Orders string `json:"orders,omitempty"`
}

const (
	joinVersion = 1
	// maxJoin is the largest join file that is read.
	maxJoin = 64 << 10
)

// only returns a copy of the file with the keys of some roles.
func (j Join) only(roles ...Role) Join {
	seeds := map[Role]string{}
	for _, r := range roles {
		if s := j.Seeds[r]; s != "" {
			seeds[r] = s
		}
	}
	j.Seeds = seeds
	return j
}

// ForViewers returns a copy without the keys for publishing and giving orders.
func (j Join) ForViewers() Join { return j.only(Viewer) }

// Write writes the file with mode 0600. It appears with all its content at once.
func (j Join) Write(path string) error {
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("write the join file %s: %w", path, err)
	}
	if err := wholefile.Write(path, 0o600, func(f *os.File) error {
		_, err := f.Write(append(text, '\n'))
		return errors.Join(err, f.Sync())
	}); err != nil {
		return fmt.Errorf("write the join file %s: %w", path, err)
	}
	return nil
}

// ReadJoin reads a join file. It refuses a file that others can read or write, one of another user, and one
// that has expired.
func ReadJoin(path string) (Join, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Join{}, fmt.Errorf("join file %s: %w: name the file that gmemtop wrote for --join-file", path,
			fs.ErrNotExist)
	}
	if err != nil {
		return Join{}, fmt.Errorf("read the join file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Join{}, fmt.Errorf("read the join file: %w", err)
	}
	if err := private(path, info, "start the hub again"); err != nil {
		return Join{}, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxJoin+1))
	if err != nil {
		return Join{}, fmt.Errorf("read the join file: %w", err)
	}
	j, err := parseJoin(text, time.Now())
	if err != nil {
		return Join{}, fmt.Errorf("%s: %w", path, err)
	}
	return j, nil
}

// private reports an error if a file holds secrets that others could read. renew says how to get new ones.
func private(path string, info os.FileInfo, renew string) error {
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case mode.Perm()&0o077 != 0:
		return fmt.Errorf("%s can be read by others (mode %04o): chmod 600 it, and %s if somebody may have "+
			"read it", path, mode.Perm(), renew)
	case !ownedByUs(info):
		return fmt.Errorf("%s belongs to another user: copy it with its owner's consent", path)
	}
	return nil
}

func parseJoin(text []byte, now time.Time) (Join, error) {
	if len(text) > maxJoin {
		return Join{}, fmt.Errorf("not a join file: it has more than %d bytes", maxJoin)
	}
	var j Join
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&j); err != nil {
		return Join{}, fmt.Errorf("not a join file of gmemtop hub: %w", err)
	}
	switch {
	case j.Version != joinVersion:
		return Join{}, fmt.Errorf("a join file of version %d, and this gmemtop reads version %d: use the "+
			"same "+
			"gmemtop on all nodes", j.Version, joinVersion)
	case j.Run == "":
		return Join{}, errors.New("the join file does not name a run: start the hub again")
	case !now.Before(j.Expires):
		return Join{}, fmt.Errorf("the join file expired at %s: start the hub again",
			j.Expires.Local().Format(time.DateTime))
	case j.URL != "":
		return j, checkURL(j.URL)
	case j.Socket == "" && len(j.Addresses) == 0:
		return Join{}, errors.New("the join file has no address of the hub: start the hub again")
	case j.Socket != "" && !filepath.IsAbs(j.Socket):
		return Join{}, fmt.Errorf("the join file's socket %q is not an absolute path: start the hub again",
			j.Socket)
	}
	for _, a := range j.Addresses {
		if err := checkAddress(a); err != nil {
			return Join{}, err
		}
	}
	return j, nil
}

// checkAddress returns an error unless the address is HOST:PORT.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || strings.ContainsAny(address, "/@? ,") {
		return fmt.Errorf("%q is not an address: write HOST:PORT", address)
	}
	return nil
}

// checkURL returns an error unless the text is a list of a site's servers. They must use TLS, and their key
// must come from a file: a URL is visible to everybody who can list processes.
func checkURL(urls string) error {
	for _, text := range strings.Split(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		switch {
		case err != nil || u.Host == "":
			return fmt.Errorf("%q is not the URL of a hub: write tls://HOST:PORT", redact(text))
		case u.User != nil:
			return fmt.Errorf("the URL %s holds a secret that others on this machine can read: put it in a "+
				"file and name that with --creds", u.Redacted())
		case u.Scheme != "tls":
			return fmt.Errorf("the URL %s is not encrypted: write tls://%s", u.Redacted(), u.Host)
		}
	}
	return nil
}

// redact cuts what may be a secret from text that is not a URL.
func redact(text string) string {
	if _, after, ok := strings.Cut(text, "@"); ok {
		return "..." + after
	}
	return text
}
