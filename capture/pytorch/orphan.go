package pytorch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Orphan is a command that goes on although the gmemtop that started it was killed. Its agents stay, keep the
// newest steps, and try every second whether somebody listens at their socket again.
type Orphan struct {
	// PID is the command's process.
	PID int
	// Note is the Launch.Note that it was started with.
	Note string

	folder  string
	started int64
	// session and group are those of the gmemtop that started it. 0 means outside its PID namespace, as in a
	// sandbox; unknown means that the ownerFile does not say.
	session, group int
}

// Orphans returns the orphans of this user on this machine, wherever their folders are: a scheduler may have
// given their gmemtop another XDG_RUNTIME_DIR than a shell has.
func Orphans() (list []Orphan) {
	bases := folders(os.Getpid(), os.Getuid())
	slices.Sort(bases)
	for _, base := range slices.Compact(bases) {
		if !filepath.IsAbs(base) || onlyOurs(base) != nil {
			continue
		}
		owners, _ := filepath.Glob(filepath.Join(base, "run-*", ownerFile))
		for _, path := range owners {
			o, err := readOwner(path)
			// the session may be a terminal's: other programs there would be taken for the command's
			if err == nil && o.session != unknown && alive(o.PID, o.started) &&
				unwatched(socketOf(o.folder)) {
				list = append(list, o)
			}
		}
	}
	return list
}

// unknown is the session and group of a gmemtop whose ownerFile does not name them.
const unknown = -1

// unwatched reports whether no viewer listens on a socket: it is only a name, or somebody has removed that.
func unwatched(socket string) bool {
	_, err := os.Lstat(socket)
	return os.IsNotExist(err) || abandoned(socket)
}

// socketOf returns the socket of the run that has a folder.
func socketOf(folder string) string { return folder + ".sock" }

// A run's folder lives as long as its command, whose children may import torch long after the viewer has
// gone. Its ownerFile identifies the command's process: its number, its start time, and the PID namespace,
// followed by the session and process group of the gmemtop that started it. The lines after that are the
// launch's note.
const ownerFile = "pid"

// leaveOwner describes a command in its run's folder. starter is the gmemtop that started it.
func leaveOwner(folder string, pid, starter int, note string) Orphan {
	s, _ := statOf(pid) // start time 0 if unknown
	by, err := statOf(starter)
	if err != nil {
		by.Session, by.Group = unknown, unknown
	}
	_ = os.WriteFile(filepath.Join(folder, ownerFile), fmt.Appendf(nil, "%d %d %s %d %d\n%s", pid,
		s.Started, pidSpace(), by.Session, by.Group, note), 0o600)
	return Orphan{PID: pid, Note: note, folder: folder, started: s.Started, session: by.Session,
		group: by.Group}
}

// readOwner reads an ownerFile. It reports an error for one of another PID namespace.
func readOwner(path string) (o Orphan, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return o, err
	}
	first, note, _ := strings.Cut(string(b), "\n")
	o = Orphan{Note: note, folder: filepath.Dir(path)}
	var space string
	n, err := fmt.Sscan(first, &o.PID, &o.started, &space, &o.session, &o.group)
	if n == 3 { // of an older gmemtop
		o.session, o.group, err = unknown, unknown, nil
	}
	if err == nil && space != pidSpace() {
		err = fmt.Errorf("%s is in another PID namespace", path)
	}
	return o, err
}

// sweep removes the folders of runs whose command has ended and whose viewer died, and sockets that nobody
// holds. It leaves the runs of other containers alone, which may share the folder but not the processes.
func sweep(base string) {
	owners, _ := filepath.Glob(filepath.Join(base, "run-*", ownerFile))
	for _, path := range owners {
		if o, err := readOwner(path); err == nil && !alive(o.PID, o.started) {
			_ = os.RemoveAll(o.folder)
		}
	}
	sweepSockets(base)
}
