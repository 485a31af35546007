package pytorch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/say"
)

// The environment does not reach every program that a command starts: python -I and -E ignore it, -S does not
// load the sitecustomize in it, env -i and wrappers that build an environment of their own drop it. This
// program attaches to such a program as soon as it has torch.
//
// Once a second, until an agent has connected from anywhere in the job, it looks at the command's processes
// (family). It attaches to one that has had torch's library mapped for a second and has no agent, unless the
// agent would be silent there: in a launcher, or a worker of a data loader or compiler (see Agent.launch). A
// process that has our environment gets half a minute, since its own agent may just be slow. These rules only
// spare processes the millisecond for which attaching stops them. The agent's reach() decides, from inside:
// is torch imported by now, is this a worker or a launcher, is there an agent already. If it does nothing, we
// try again, each time after twice as long.
//
// Not covered: a program that nothing connects to the command any more (see family). And if a command is
// killed in the millisecond in which we attach, the tracer gets its exit code and loses it.
//
// Rejected: watching for exec and mmap with the kernel's help (ptrace from the start, fanotify, eBPF), which
// needs rights that starting a command does not need, and slows the command; wrapping the interpreter, which
// changes sys.executable.

const (
	// reachEvery is how often we look at the processes: /proc has to be polled.
	reachEvery = time.Second
	// reachOwn is how long a program that has our environment may take to import torch from a slow disk.
	reachOwn = 30 * time.Second
	// reachTries is how often we attach to one process: the last time after some minutes.
	reachTries = 8
)

// reach attaches to processes that the environment does not reach, until an agent has connected or ctx is
// done.
func (m *mux) reach(ctx context.Context) {
	if m.job.launch.Reach == nil {
		return
	}
	r := &reacher{mux: m, family: familyOf(m.job), known: map[int]*reached{}}
	tick := time.NewTicker(reachEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.mu.Lock()
		met := m.met
		m.mu.Unlock()
		if met != 0 {
			if k := r.known[met]; k != nil && k.tries > 0 && k.apart {
				m.notice(capture.Say(say.Reached, met, k.command))
			}
			return
		}
		r.look(ctx, time.Now())
	}
}

// reacher is what we know about a job's processes from outside.
type reacher struct {
	mux    *mux
	family *family
	lister procs.Lister
	known  map[int]*reached
}

// reached is a process that has torch.
type reached struct {
	started int64
	command string
	apart   bool      // it cannot have our environment
	next    time.Time // when to attach next
	tries   int       // attempts so far
	over    bool      // leave it alone from now on
}

// look looks once at all processes of the job.
func (r *reacher) look(ctx context.Context, now time.Time) {
	argv := map[int][]string{}
	for _, pid := range r.family.look() {
		if ctx.Err() != nil {
			return
		}
		p, err := r.lister.Look(pid)
		if err != nil { // it has ended
			continue
		}
		argv[pid] = p.Argv
		if !p.Torch || silent(p.Argv, argv[p.Parent]) {
			continue
		}
		k := r.known[pid]
		if k == nil || k.started != p.Started {
			k = &reached{started: p.Started, command: brief(p.Argv), apart: r.apart(p),
				next: now.Add(reachOwn)}
			if k.apart {
				k.next = now.Add(reachEvery - reachEvery/4) // at the next look
			}
			r.known[pid] = k
		}
		if k.over || now.Before(k.next) || Lives(pid) {
			continue
		}
		k.tries++
		k.next, k.over = now.Add(reachEvery<<k.tries), k.tries >= reachTries
		r.attach(ctx, p, k)
	}
}

// attach brings the agent into a process, or says once why it cannot.
func (r *reacher) attach(ctx context.Context, p *procs.Process, k *reached) {
	launch := &r.mux.job.launch
	if uid, _ := userOf(p.PID); uid != os.Getuid() || !sharesFiles(p.PID) {
		k.over = true
		r.mux.notice(capture.Say(say.OutOfReach, p.PID, k.command))
		return
	}
	path, _ := json.Marshal(r.mux.job.listener.Path()) // a JSON string of a path is a Python string
	source := launch.agent() + fmt.Sprintf("\n\nreach(%s)\n", path)
	if err := launch.Reach(ctx, p.PID, source); err != nil && ctx.Err() == nil && alive(p.PID, p.Started) {
		k.over = true
		r.mux.notice(capture.Say(say.NotReached, p.PID, k.command, err))
	}
}

// apart reports whether a process cannot have our environment, or ignores it.
func (r *reacher) apart(p *procs.Process) bool {
	if isolated(p.Argv) {
		return true
	}
	env, ok := environOf(p.PID)
	ours := filepath.Join(r.mux.job.folder, "python")
	return !ok || !slices.Contains(env, envSocket+"="+r.mux.job.listener.Path()) ||
		!slices.ContainsFunc(env, func(e string) bool {
			path, is := strings.CutPrefix(e, envPath+"=")
			return is && slices.Contains(filepath.SplitList(path), ours)
		})
}

// isolated reports whether a command line tells Python not to look at the environment, or not to load what is
// found there: -E, -I and -S, alone or among others.
func isolated(argv []string) bool {
words:
	for i := 1; i < len(argv); i++ {
		a := argv[i]
		if len(a) < 2 || a[0] != '-' || a[1] == '-' {
			return false // the program, or a long option, which none of these is
		}
		for k, c := range a[1:] {
			switch c {
			case 'E', 'I', 'S':
				return true
			case 'c', 'm':
				return false // the program
			case 'W', 'X':
				if k == len(a)-2 {
					i++ // its value is the next word
				}
				continue words
			}
		}
	}
	return false
}

// silent reports whether a command line is that of a process in which the agent would say nothing: a child of
// multiprocessing, a launcher or a helper of torch's own. A fork that went on with its parent's command line
// is a worker as well.
func silent(argv, parent []string) bool {
	if slices.Equal(argv, parent) {
		return true
	}
	for i, a := range argv {
		switch {
		case i > 0 && argv[i-1] == "-m":
			return a == "torch" || strings.HasPrefix(a, "torch.")
		case i > 0 && argv[i-1] == "-c":
			return strings.Contains(a, "from multiprocessing.") ||
				strings.Contains(a, "import multiprocessing.")
		case a == "--multiprocessing-fork":
			return true
		case i > 0 && !strings.HasPrefix(a, "-"): // the program
			return filepath.Base(a) == "torchrun" ||
				strings.Contains(filepath.ToSlash(a), "/torch/_inductor/")
		}
	}
	return false
}

func brief(argv []string) string {
	const most = 60
	text := []rune(strings.Join(argv, " "))
	if len(text) > most {
		text = append(text[:most-1], '…')
	}
	return string(text)
}

// familyOf returns the family of a job's command.
func familyOf(j *Job) *family {
	c := &j.command
	f := &family{root: c.PID, started: c.started, session: c.session, group: c.group,
		mark: envSocket + "=" + j.listener.Path()}
	if j.output != nil {
		// the name under which the kernel shows the file to every process
		f.output, _ = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(j.output.Fd())))
	}
	return f
}
