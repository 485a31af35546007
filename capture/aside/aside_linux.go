//go:build amd64 || arm64

package aside

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// request is struct seccomp_notif, and answer struct seccomp_notif_resp.
type request struct {
	id         uint64
	pid, flags uint32
	number     int32
	arch       uint32
	pointer    uint64
	args       [6]uint64
}

type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// addition is struct seccomp_notif_addfd: a file to open in the process, whose number is its answer.
type addition struct {
	id                           uint64
	flags, file, number, flagsIn uint32
}

// watch is what a Guard knows while the command runs.
type watch struct {
	*Guard
	Options
	listener int
	stop     *os.File
	done     chan struct{}
	local    []netip.Addr    // this machine's addresses
	serving  map[uint16]bool // ports on which it listened before
	copies   map[string]string
	made     []thing
	isMade   map[string]bool
	gone     map[string]bool // what was there, and is removed as far as the command knows
}

// thing is what the command made at a path. Its number is 0 until we have seen it there.
type thing struct {
	path           string
	device, number uint64
}

// Start starts a command. Until End is called, the kernel asks us about its calls, and about those of all
// processes that it starts.
func Start(cmd *exec.Cmd, o Options) (*Guard, error) {
	g, started := &Guard{}, make(chan error)
	w, stopped, err := newWatch(g, o)
	if err != nil {
		return nil, err
	}
	go func() {
		// The filter belongs to this thread, and to what is started from it. It cannot be removed, so the
		// thread ends with this goroutine, which never gives it back.
		runtime.LockOSThread()
		if listener, err := install(); err == nil {
			// From here on this thread itself waits for answers.
			g.watch, w.listener = w, listener
			go w.serve(stopped)
		} else {
			g.off = err
			stopped.Close()
		}
		started <- cmd.Start()
	}()
	if err = <-started; err != nil {
		g.End()
	}
	return g, err
}

// newWatch returns a watch that is not used yet, and the pipe whose other end End closes.
func newWatch(g *Guard, o Options) (w *watch, stopped *os.File, err error) {
	w = &watch{Guard: g, Options: o, done: make(chan struct{}), serving: serving(),
		copies: map[string]string{}, isMade: map[string]bool{}, gone: map[string]bool{}}
	w.Free = append(slices.Clone(o.Free), "/dev", "/proc", "/sys")
	if all, err := net.InterfaceAddrs(); err == nil {
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				w.local = append(w.local, p.Addr().Unmap())
			}
		}
	}
	stopped, w.stop, err = os.Pipe()
	return w, stopped, err
}

// End ends the watching and removes what the command made, which has ended.
func (g *Guard) End() (files, folders int) {
	w := g.watch
	if w == nil {
		return 0, 0
	}
	g.watch = nil
	w.stop.Close()
	<-w.done
	w.see()
	for _, made := range slices.Backward(w.made) { // what is in a folder was made after it
		switch now := seen(made.path); {
		case made.number == 0 || now.number != made.number || now.device != made.device:
		case unix.Rmdir(made.path) == nil:
			folders++
		case unix.Unlink(made.path) == nil:
			files++
		}
	}
	return files, folders
}

// serve answers the kernel until the other end of the pipe is closed.
func (w *watch) serve(stopped *os.File) {
	defer close(w.done)
	defer unix.Close(w.listener)
	defer stopped.Close()
	listener := int32(w.listener)
	for {
		ready := []unix.PollFd{{Fd: listener, Events: unix.POLLIN}, {Fd: int32(stopped.Fd())}}
		_, err := unix.Poll(ready, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || ready[1].Revents != 0:
			return
		case ready[0].Revents&unix.POLLIN == 0: // all processes have ended
			listener = -1 // poll ignores it
			continue
		}
		var r request
		if w.control(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&r)) != 0 {
			continue // the process was killed meanwhile
		}
		a := answer{id: r.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if d := w.decide(&r); d != nil {
			if d.file != nil {
				add := addition{id: r.id, flags: unix.SECCOMP_ADDFD_FLAG_SEND, file: uint32(d.file.Fd()),
					flagsIn: d.flags}
				errno := w.control(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&add))
				d.file.Close()
				if errno == 0 {
					continue
				}
				d.errno = unix.EROFS // Linux before 5.14
			}
			a.flags, a.errno = 0, -int32(d.errno)
		}
		w.control(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a))
	}
}

// control calls ioctl on the listener.
func (w *watch) control(what uint, arg unsafe.Pointer) unix.Errno {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(w.listener), uintptr(what), uintptr(arg))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// decision is what a call does instead: nothing, fail, or return an open file.
type decision struct {
	errno unix.Errno
	file  *os.File
	flags uint32 // of the file's number
}

var nothing = &decision{}

// decide says what a call is to do instead of what it says, nil for just that.
func (w *watch) decide(r *request) *decision {
	w.see()
	c := calls[int(r.number)]
	switch c.kind {
	case connects:
		return w.connect(r, r.args[1], r.args[2])
	case sends, sendsMessage, sendsMessages:
		return w.send(c.kind, r)
	}
	path, ok := w.path(r, c.at, c.path)
	if !ok {
		return nil
	}
	free := w.free(path)
	if c.kind != renames && free {
		return nil
	}
	switch c.kind {
	case opens:
		return w.open(path, int(uint32(r.args[c.flags])))
	case opensHow:
		how, err := read(r.pid, r.args[c.flags], 8)
		if err != nil {
			return nil
		}
		return w.open(path, int(binary.NativeEndian.Uint64(how)))
	case creates:
		return w.open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC)
	case removes:
		if w.old(path) {
			w.gone[path] = true
			note(&w.kept, path)
			return nothing
		}
	case renames:
		to, ok := w.path(r, c.at, c.to)
		if !ok || free && w.free(to) {
			return nil
		}
		return w.rename(path, to)
	case makesFolder, makesLink:
		if w.gone[path] {
			return nothing
		}
		w.makes(path)
	case truncates:
		if w.old(path) {
			note(&w.lost, path)
			return nothing
		}
	case changes:
		if w.old(path) {
			return nothing
		}
	}
	return nil
}

// mostCopied is the size up to which a file that is opened for writing is copied.
const mostCopied = 1 << 30

// open decides on a call that opens a file.
func (w *watch) open(path string, flags int) *decision {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) && flags&unix.O_CREAT != 0 {
		w.makes(path)
		return nil
	}
	written := flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0
	if err != nil || !info.Mode().IsRegular() || !written || !w.old(path) ||
		flags&unix.O_EXCL != 0 && !w.gone[path] {
		return nil
	}
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	note(&w.lost, path)
	at, copied := w.copies[path]
	if !copied {
		at = filepath.Join(w.Scratch, "copy"+strconv.Itoa(len(w.copies)))
		if err := duplicate(path, at, flags&unix.O_TRUNC != 0 || w.gone[path]); err != nil {
			return &decision{errno: unix.EROFS}
		}
		w.copies[path] = at
	}
	f, err := os.OpenFile(at, flags&^(unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC), 0)
	if err != nil {
		return &decision{errno: unix.EROFS}
	}
	return &decision{file: f, flags: uint32(flags & unix.O_CLOEXEC)}
}

// duplicate copies a file, or makes an empty one in its place.
func duplicate(path, to string, empty bool) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil || empty {
		return errors.Join(err, out.Close())
	}
	defer out.Close()
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil { // some file systems copy nothing
		return nil
	}
	if info, err := in.Stat(); err != nil || info.Size() > mostCopied {
		return errors.Join(err, unix.EFBIG)
	}
	_, err = out.ReadFrom(in)
	return err
}

// rename decides on a call that renames a file or a folder.
func (w *watch) rename(path, to string) *decision {
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	switch _, err := os.Lstat(to); {
	case w.old(path):
		w.gone[path] = true
		note(&w.kept, path)
		return nothing
	case err == nil && w.old(to):
		note(&w.lost, to)
		if w.isMade[path] || w.free(path) {
			os.RemoveAll(path)
		}
		return nothing
	}
	for i := range w.made {
		rest, in := strings.CutPrefix(w.made[i].path, path)
		if in && (rest == "" || rest[0] == filepath.Separator) {
			w.made[i].path = to + rest
			w.isMade[to+rest] = true
		}
	}
	return nil
}

// makes notes that something may be made at a path where there is nothing.
func (w *watch) makes(path string) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		w.made = append(w.made, thing{path: path})
		w.isMade[path] = true
	}
}

// see looks for what the last calls made. Something else may be at the same path later, which has to stay.
func (w *watch) see() {
	for i := len(w.made) - 1; i >= 0 && i >= len(w.made)-lately; i-- {
		if w.made[i].number == 0 {
			w.made[i] = seen(w.made[i].path)
		}
	}
}

// lately is how many of the newest things may not have been seen: as many processes may be making them.
const lately = 32

// seen returns what is at a path now.
func seen(path string) thing {
	var s unix.Stat_t
	if unix.Lstat(path, &s) != nil {
		return thing{path: path}
	}
	return thing{path, uint64(s.Dev), s.Ino}
}

// old reports whether what is at a path, or anything in a folder there, is older than the command.
func (w *watch) old(path string) bool {
	if w.isMade[path] {
		return false
	}
	var s unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME,
		&s) != nil {
		return false
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		inside, err := os.ReadDir(path)
		if err == nil && len(inside) > 0 {
			return slices.ContainsFunc(inside, func(e os.DirEntry) bool {
				return w.old(filepath.Join(path, e.Name()))
			})
		}
	}
	born := s.Btime
	if s.Mask&unix.STATX_BTIME == 0 { // the file system does not say: when it last changed
		born = s.Ctime
	}
	return time.Unix(born.Sec, int64(born.Nsec)).Before(w.Began)
}

// connect refuses an address of another machine, a port of this one on which something listened before, and
// its name server, which asks others.
func (w *watch) connect(r *request, at, n uint64) *decision {
	if n < 2 {
		return nil
	}
	b, err := read(r.pid, at, int(min(n, 28)))
	if err != nil {
		return nil
	}
	var ip netip.Addr
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET && len(b) >= 8:
		ip, _ = netip.AddrFromSlice(b[4:8])
	case family == unix.AF_INET6 && len(b) >= 24:
		ip, _ = netip.AddrFromSlice(b[8:24])
		ip = ip.Unmap()
	default:
		return nil
	}
	port := binary.BigEndian.Uint16(b[2:])
	if !ip.IsLoopback() && !ip.IsUnspecified() && !slices.Contains(w.local, ip) {
		if port != 53 { // the name that is looked up would say more than the server's address
			note(&w.hosts, ip.String())
		}
		return &decision{errno: unix.ENETUNREACH}
	}
	if port == 53 || w.serving[port] {
		if port != 53 {
			note(&w.hosts, netip.AddrPortFrom(ip, port).String())
		}
		return &decision{errno: unix.ECONNREFUSED}
	}
	return nil
}

// serving returns the ports on which this machine listens.
func serving() map[uint16]bool {
	ports := map[uint16]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) < 4 || words[3] != "0A" {
				continue
			}
			_, port, _ := strings.Cut(words[1], ":")
			if n, err := strconv.ParseUint(port, 16, 16); err == nil {
				ports[uint16(n)] = true
			}
		}
	}
	return ports
}

// path returns the path that an argument of a call names.
func (w *watch) path(r *request, at bool, argument int) (string, bool) {
	if r.args[argument] == 0 { // an open file is meant
		return "", false
	}
	named, err := text(r.pid, r.args[argument])
	if err != nil || named == "" {
		return "", false
	}
	if filepath.IsAbs(named) {
		return filepath.Clean(named), true
	}
	process, in := "/proc/"+strconv.Itoa(int(r.pid)), "cwd"
	if folder := int32(r.args[max(argument-1, 0)]); at && folder != unix.AT_FDCWD {
		in = "fd/" + strconv.Itoa(int(folder))
	}
	folder, err := os.Readlink(filepath.Join(process, in))
	if err != nil {
		return "", false
	}
	return filepath.Join(folder, named), true
}

// read reads memory of a process.
func read(pid uint32, at uint64, n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := unix.ProcessVMReadv(int(pid), []unix.Iovec{{Base: &b[0], Len: uint64(n)}},
		[]unix.RemoteIovec{{Base: uintptr(at), Len: n}}, 0)
	return b[:max(got, 0)], err
}

// text reads a string of a process: page by page, since there may be nothing after it.
func text(pid uint32, at uint64) (string, error) {
	var all []byte
	for len(all) < unix.PathMax {
		page := uint64(os.Getpagesize())
		b, err := read(pid, at, int(page-at%page))
		if err != nil {
			return "", err
		}
		if end := bytes.IndexByte(b, 0); end >= 0 {
			return string(append(all, b[:end]...)), nil
		}
		all, at = append(all, b...), at+uint64(len(b))
	}
	return "", unix.ENAMETOOLONG
}

// note adds what is not there yet; of a path, the name.
func note(all *[]string, what string) {
	what = filepath.Base(what)
	if !slices.Contains(*all, what) {
		*all = append(*all, what)
	}
}
