package pytorch

import (
	"os"
	"slices"
	"strconv"

	"github.com/gmemtop/gmemtop/capture/procs"
)

// Which processes belong to a command?
//
// The kernel knows a process's parent, but replaces it when the parent ends: by init, or a process that asked
// for orphans. So this program looks at all processes repeatedly and remembers what it found. A process that
// started after the command is the command's
//
//   - if its parent is, or was at an earlier look. A number and a start time identify a process forever;
//   - if its session or process group has one of the command's, and is not that of the gmemtop that started
//     the command: both are inherited and can only be entered from within. A command under a screen has a
//     session of its own, which only setsid(2) leaves; one that shares the terminal with its gmemtop shares
//     the session, and as a rule the group, with programs that have nothing to do with it, and still does
//     when another gmemtop, in another session, watches it instead;
//   - if its environment names our socket, which no other command's does: python -I inherits it, too;
//   - if its output goes to the file that was made for the command's output.
//
// Not found: a process whose parent ended within a second, before we looked, and that has left the session,
// group, environment and output. A daemon that clears its environment does that.
//
// Rejected: watching every fork (the process connector, eBPF, ptrace), which needs rights or slows the
// command; a new control group, which not every user may make, and which changes how the command shares the
// processors; the control group that the command is in, which holds everything else in the terminal; asking
// for orphans (PR_SET_CHILD_SUBREAPER), which keeps the chain of parents but is visible: getppid(2) returns
// our number instead of 1, by which daemons know that they are detached; this program would have to reap the
// orphans; and the orphans of a command that outlives it change their parent once more.

// family finds the processes that belong to a command. It is not safe for concurrent use.
type family struct {
	root    int   // the command
	started int64 // when it started: a later process may have the same number
	session int   // that of the gmemtop that started the command, which it may share with strangers
	group   int
	mark    string // "name=value" in the environment of what the command starts
	output  string // the file that its output goes to, "" if we did not make one
	seen    map[int]*relative
}

// relative is a process that was looked at. Once it belongs to the family, it always does.
type relative struct {
	procs.Stat
	of bool
}

// look returns the processes that belong to the command now, parents first.
func (f *family) look() []int {
	all := everyone()
	seen := make(map[int]*relative, len(all))
	for pid, s := range all {
		r := f.seen[pid]
		if r == nil || r.Started != s.Started {
			r = &relative{of: pid == f.root && s.Started == f.started || s.Started >= f.started &&
				f.marked(pid)}
		}
		r.Stat = s
		seen[pid] = r
	}
	f.seen = seen
	var sessions, groups []int
	for grows := true; grows; {
		sessions, groups, grows = sessions[:0], groups[:0], false
		for _, r := range seen {
			if r.of {
				sessions, groups = append(sessions, r.Session), append(groups, r.Group)
			}
		}
		slices.Sort(sessions)
		slices.Sort(groups)
		for _, r := range seen {
			if p := seen[r.Parent]; !r.of && r.Started >= f.started &&
				(p != nil && p.of || holds(sessions, r.Session, f.session) ||
					holds(groups, r.Group, f.group)) {
				r.of, grows = true, true
			}
		}
	}
	return f.list()
}

// marked reports whether a process has inherited what only the command's processes have.
func (f *family) marked(pid int) bool {
	if env, ok := environOf(pid); ok && slices.Contains(env, f.mark) {
		return true
	}
	for _, fd := range []string{"1", "2"} {
		if to, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + fd); err == nil && f.output != "" &&
			to == f.output {
			return true
		}
	}
	return false
}

// list returns the family's processes, the command first and parents before their children.
func (f *family) list() []int {
	children, list := map[int][]int{}, []int{}
	for pid, r := range f.seen {
		switch p := f.seen[r.Parent]; {
		case !r.of || pid == f.root:
		case p != nil && p.of:
			children[r.Parent] = append(children[r.Parent], pid)
		default:
			list = append(list, pid)
		}
	}
	slices.Sort(list)
	if r := f.seen[f.root]; r != nil && r.of {
		list = slices.Insert(list, 0, f.root)
	}
	for i := 0; i < len(list); i++ {
		below := children[list[i]]
		slices.Sort(below)
		list = append(list, below...)
	}
	return list
}

// holds reports whether n is in a list and means anything. The starter's number does not, nor does 0, which
// stands for a process outside this program's PID namespace.
func holds(sorted []int, n, starter int) bool {
	_, ok := slices.BinarySearch(sorted, n)
	return ok && n != 0 && n != starter
}
