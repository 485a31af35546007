//go:build !nobus

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/await"
)

// typed is a command of docs/fleet.md, under which heading and on which machine it is typed, and what the
// page shows below it.
type typed struct{ section, who, command, shown string }

// prompts are the machines of the page. Each command of the page follows one.
var prompts = regexp.MustCompile(`(?m)^(node0|each|you|login)\$ +(\S.*)$`)

// fenced are the headings of a page and its blocks of code, with their language.
var fenced = regexp.MustCompile("(?ms)^## (?P<heading>[^\n]*)$|^```(?P<language>\\w*)\n(?P<text>.*?)^```$")

// typedOn returns the commands of a page in order, and the blocks without a prompt. A backslash continues a
// command on the next line.
func typedOn(page string) (list []typed, others []string) {
	section := ""
	for _, block := range fenced.FindAllStringSubmatch(page, -1) {
		heading, language, text := block[1], block[2], block[3]
		if heading != "" {
			section = heading
			continue
		}
		if language != "" || !prompts.MatchString(text) {
			others = append(others, text)
			continue
		}
		open := false
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			if m := prompts.FindStringSubmatch(line); m != nil {
				list = append(list, typed{section: section, who: m[1], command: m[2]})
			} else if n := len(list); n > 0 && open {
				list[n-1].command += "\n" + line
			} else if n > 0 {
				list[n-1].shown += line + "\n"
			}
			open = strings.HasSuffix(line, "\\")
		}
	}
	return list, others
}

// typist names the test that types a command of docs/fleet.md.
func typist(c typed) string {
	has := func(text string) bool { return strings.Contains(c.command, text) }
	switch {
	case has("attach slurm:"):
		return "TestARunningJobOfSlurmIsAttachedTo"
	case has("slurm:"):
		return "TestThePageAboutSlurmIsTyped"
	case has("k8s://"), has("kubectl"):
		return "TestThePageAboutKubernetesIsTyped"
	case strings.Contains(c.section, "NATS"):
		return "TestThePageAboutASitesServersIsTyped"
	}
	return "TestThePageAboutSeveralMachinesIsTyped"
}

// toType returns the commands of docs/fleet.md that this test types.
func toType(t *testing.T) []typed {
	t.Helper()
	list, _ := typedOn(fleetPage(t))
	list = slices.DeleteFunc(list, func(c typed) bool { return typist(c) != t.Name() })
	if len(list) == 0 {
		t.Fatal("the page has nothing to type for this test any more")
	}
	return list
}

// withoutSSH returns the commands that need no ssh server.
func withoutSSH(t *testing.T, list []typed) []typed {
	return slices.DeleteFunc(list, func(c typed) bool {
		missing := strings.Contains(c.command, "ssh://")
		if missing {
			t.Logf("left out for want of sshd: %s", c.command)
		}
		return missing
	})
}

// showBothRanks types commands, each at a terminal of its own until it shows two ranks. leave ends it then.
func showBothRanks(t *testing.T, list []typed, leave func(*terminal)) {
	t.Helper()
	for _, c := range list {
		t.Logf("%s$ %s", c.who, c.command)
		cmd := exec.Command("bash", "--norc", "-c", c.command)
		cmd.Env = append(os.Environ(), "TERM=vt220")
		x := newTerminal(t, 120, 40, cmd)
		screen, _ := x.until("both ranks", func(screen string) bool {
			return strings.Contains(screen, "of 2")
		})
		t.Log("\n" + screen)
		leave(x)
	}
}

func fleetPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// attachTyped begins the block of docs/fleet.md that takes over from a gmemtop that was killed.
const attachTyped = "gmemtop attach --join-file"

// attachBlock returns that block.
func attachBlock(t *testing.T) string {
	t.Helper()
	_, others := typedOn(fleetPage(t))
	i := slices.IndexFunc(others, func(text string) bool { return strings.HasPrefix(text, attachTyped) })
	if i < 0 {
		t.Fatalf("the page has no %s", attachTyped)
	}
	return others[i]
}

// Every command of docs/fleet.md is typed by a test, and so are the batch script and the call to Ray.
func TestEveryBlockOfTheFleetPageIsTyped(t *testing.T) {
	_, others := typedOn(fleetPage(t))
	begin := map[string]string{"J=$SLURM_SUBMIT_DIR": "the batch script",
		"ray.init(": "the call to Ray",
		attachTyped: "TestWhatAKilledGmemtopLeftIsAttachedTo types it"}
	for _, text := range others {
		known := ""
		for start := range begin {
			if strings.HasPrefix(text, start) {
				known = start
			}
		}
		if known == "" {
			t.Errorf("no test types %s", text)
		}
		delete(begin, known)
	}
	if len(begin) > 0 {
		t.Errorf("the page no longer has %v", begin)
	}
}

// shellOn is a shell on one machine, at which commands are typed.
type shellOn struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	said words
	done chan struct{} // closed when it has ended
}

// marker follows the output of a command, with its exit code.
const marker = "the command has ended with "

// typedIn starts a shell by a command. At the end of the test stop makes what runs in it end.
func typedIn(t *testing.T, cmd *exec.Cmd, stop func()) *shellOn {
	t.Helper()
	s := &shellOn{t: t, cmd: cmd, done: make(chan struct{})}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in, cmd.Stdout, cmd.Stderr = in, &s.said, &s.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		stop()
		_ = in.Close()
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-s.done:
			case <-time.After(20 * time.Second):
			}
			_ = syscall.Kill(-cmd.Process.Pid, signal) // what runs in the background, too
		}
		<-s.done
	})
	return s
}

// enter types a command.
func (s *shellOn) enter(command string) (before int) {
	s.t.Helper()
	before = len(s.said.String())
	if _, err := fmt.Fprintf(s.in, "%s\necho \"%s$?\"\n", command, marker); err != nil {
		s.t.Fatalf("%s: %v; the shell: %s", command, err, &s.said)
	}
	return before
}

// finish waits for the end of the command that was entered, and returns what it printed and its exit code.
func (s *shellOn) finish(before int) (out string, code int) {
	s.t.Helper()
	ended := ""
	await.Until(s.t, "the command ends", func() bool {
		out, ended, _ = strings.Cut(s.said.String()[before:], marker)
		return strings.Contains(ended, "\n")
	})
	code, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(ended, "\n", 2)[0]))
	if err != nil {
		s.t.Fatal(err)
	}
	return out, code
}

// like reports whether a line is what the page shows, but for figures, sizes and the width of columns.
func like(printed, shown string) bool {
	plain := func(line string) string {
		line = regexp.MustCompile(`[\d.,]+( [KMG]iB| B| m?s| µs)?`).ReplaceAllString(line, "0")
		return strings.Join(strings.Fields(line), " ")
	}
	return plain(printed) == plain(shown)
}

// lacks returns the first line that the page shows and a command has not printed after those before it, "" if
// there is none. "..." stands for any lines.
func lacks(printed, shown string) string {
	lines := slices.Collect(bufioLines(printed))
	for want := range bufioLines(shown) {
		if strings.TrimSpace(want) == "..." || strings.TrimSpace(want) == "" {
			continue
		}
		at := slices.IndexFunc(lines, func(line string) bool { return like(line, want) })
		if at < 0 {
			return want
		}
		lines = lines[at+1:]
	}
	return ""
}

func bufioLines(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
			if !yield(s.Text()) {
				return
			}
		}
	}
}
