package pytorch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Where a viewer and an agent meet
//
// The agent connects to a socket in a folder that both can reach and that is closed to everybody else.
// Usually that is the viewer's own, see Folder. A process of another user (sudo gmemtop attach) cannot enter
// it, and one in a container does not see it. For those the folder is made in the process's own root
// directory, which the kernel shows as /proc/PID/root, and belongs to the process's user.
//
// That user may change such a folder at any time. So this program works in it with that user's rights,
// through os.Root: a link that leads elsewhere gives access to nothing that the user could not reach anyway.

// place is a folder in which a viewer and the agent of one process meet.
type place struct {
	here     string // the folder, as this process reaches it
	there    string // and as the other does
	uid, gid int    // its owner
	// If the two differ: the process's root directory, the folder in it, and the open file that keeps here
	// valid.
	root, dir *os.Root
	held      *os.File
}

// placeFor makes a place to meet the agent of process pid.
func placeFor(pid int) (place, error) {
	uid, _ := userOf(pid)
	if uid == os.Getuid() && sharesFiles(pid) {
		dir, err := Folder()
		if err == nil {
			sweepSockets(dir)
		}
		return place{here: dir, there: dir, uid: uid}, err
	}
	var failed []error
	for _, dir := range folders(pid, uid)[1:] { // folders from our own environment are not for others
		if len(dir)+len("/4194304-4194304.sock") > maxSocketPath { // the process itself must use this path
			continue
		}
		p, err := placeAt(pid, dir, true)
		if err == nil {
			return p, nil
		}
		failed = append(failed, err)
	}
	return place{}, fmt.Errorf("there is no folder to meet the agent of process %d in, which is user %d's: "+
		"%w; run gmemtop with sudo, or as that user where it runs", pid, uid, errors.Join(failed...))
}

// folders are the possible places of a user's folder for process pid: from this process's environment, from
// its own, and by convention.
func folders(pid, uid int) []string {
	env, _ := environOf(pid)
	theirs := ""
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "XDG_RUNTIME_DIR="); ok {
			theirs = value
		}
	}
	list := []string{os.Getenv("XDG_RUNTIME_DIR"), theirs, fmt.Sprintf("/run/user/%d", uid), "/tmp",
		"/dev/shm", "/var/tmp"}
	for i, base := range list {
		list[i] = filepath.Join(base, "gmemtop-"+strconv.Itoa(uid))
	}
	return list
}

// placeAt opens a folder as a place to meet the agent of process pid, and creates it if asked to.
func placeAt(pid int, dir string, make bool) (p place, err error) {
	p = place{here: dir, there: dir}
	p.uid, p.gid = userOf(pid)
	if !filepath.IsAbs(dir) {
		return p, fmt.Errorf("%q is not an absolute path, which a socket needs", dir)
	}
	var f files = host{}
	if p.uid != os.Getuid() || !sharesFiles(pid) {
		if p.root, err = os.OpenRoot(rootOf(pid)); err != nil {
			return p, fmt.Errorf("the files of process %d cannot be reached: %w", pid, err)
		}
		f = p.root
	}
	err = asUser(p.uid, p.gid, func() error {
		name := p.name()
		if make {
			if err := f.Mkdir(name, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
		}
		info, err := f.Lstat(name)
		if err == nil && (!info.IsDir() || owner(info) != p.uid || info.Mode().Perm()&0o077 != 0) {
			err = fmt.Errorf("%s is not a folder that only user %d can enter", dir, p.uid)
		}
		if err != nil || p.root == nil {
			return err
		}
		if p.dir, err = p.root.OpenRoot(name); err != nil {
			return err
		}
		p.held, err = p.dir.Open(".")
		return err
	})
	if err == nil && p.held != nil {
		p.here = fmt.Sprintf("/proc/self/fd/%d", p.held.Fd())
	}
	if err != nil {
		p.close()
	}
	return p, err
}

// files are those of this process or of another.
type files interface {
	Mkdir(name string, mode os.FileMode) error
	Lstat(name string) (os.FileInfo, error)
}

// host are the files of this process.
type host struct{}

func (host) Mkdir(name string, mode os.FileMode) error { return os.Mkdir(name, mode) }
func (host) Lstat(name string) (os.FileInfo, error)    { return os.Lstat(name) }

// name is the folder's name in the process's root directory, or in this one's.
func (p place) name() string {
	if p.root == nil {
		return p.there
	}
	return strings.TrimPrefix(p.there, "/")
}

// close releases the place.
func (p place) close() {
	if p.held != nil {
		_ = p.held.Close()
	}
	for _, r := range []*os.Root{p.dir, p.root} {
		if r != nil {
			_ = r.Close()
		}
	}
}

// leave closes the place, and removes a folder of another user or in another root directory if it is empty.
func (p place) leave() {
	if p.root != nil {
		_ = asUser(p.uid, p.gid, func() error { return p.root.Remove(p.name()) })
	}
	p.close()
}

// read reads a file of the place, and remove removes one.
func (p place) read(name string) (b []byte, err error) {
	err = asUser(p.uid, p.gid, func() error {
		b, err = os.ReadFile(filepath.Join(p.here, name))
		return err
	})
	return b, err
}

func (p place) remove(name string) {
	_ = asUser(p.uid, p.gid, func() error { return os.Remove(filepath.Join(p.here, name)) })
}

// maxSocketPath is the longest path that kernels accept as the address of a Unix socket.
const maxSocketPath = 103

// Folder returns the folder for this user's sockets and agents' markers, and creates it. It must belong to
// the user and be closed to everyone else.
func Folder() (string, error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = "/tmp"
	}
	dir := filepath.Join(base, "gmemtop-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make a folder for the socket: %w; set XDG_RUNTIME_DIR to a folder of yours",
			err)
	}
	return dir, onlyOurs(dir)
}

// onlyOurs reports an error unless dir is a folder that only this user can enter.
func onlyOurs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || owner(info) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a folder that only you can enter; remove it, or set "+
			"XDG_RUNTIME_DIR to another", dir)
	}
	return nil
}
