package headless

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestACommandThatIsNotStartedHasTheExitCodeOfAShell(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		why  string
	}{
		{&exec.Error{Name: "pyhton", Err: exec.ErrNotFound}, 127, "pyhton: command not found"},
		{&fs.PathError{Op: "fork/exec", Path: "./a", Err: fs.ErrNotExist}, 127, "./a: no such file or"},
		{&fs.PathError{Op: "fork/exec", Path: "./a", Err: fs.ErrPermission}, 126, "./a: permission denied"},
		{errors.New("too many processes"), 0, ""},
	} {
		code, why := NotStarted(c.err)
		if code != c.code || (why == nil) != (c.why == "") ||
			why != nil && !strings.Contains(why.Error(), c.why) {
			t.Errorf("%v: %d %v, want %d %s", c.err, code, why, c.code, c.why)
		}
	}
}

func TestATextIsSaidOnceForEachRank(t *testing.T) {
	var said []string
	say := OncePerText(func(text string) { said = append(said, text) })
	rank1 := capture.Info{Rank: maybe.Known(int64(1)), WorldSize: maybe.Known(int64(2))}
	for _, who := range []capture.Info{{}, rank1, {}, rank1} {
		say(who, "no history here")
	}
	if got := strings.Join(said, "; "); got != "no history here; "+rank1.Name()+": no history here" {
		t.Errorf("said: %s", got)
	}
}

func TestWhatCouldNotBeReachedIsSaidUnlessItIsGone(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{t.Context(), nil, ""},
		{t.Context(), &inject.Error{Kind: inject.ErrGone}, ""},
		{ended, errors.New("refused"), ""},
		{t.Context(), errors.New("refused\n"), "environment: refused"},
	} {
		said := ""
		bring := func(context.Context, int, string) error { return c.err }
		err := reaching(bring, func(text string) { said = text })(c.ctx, 1, "")
		if err != c.err || (said == "") != (c.want == "") || !strings.HasSuffix(said, c.want) {
			t.Errorf("%v: %q, %v", c.err, said, err)
		}
	}
}

func TestACommandWithoutAScreenKeepsOurStreams(t *testing.T) {
	in, out, err := os.Pipe() // no terminal
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	for _, outlives := range []bool{false, true} {
		var l pytorch.Launch
		Streams(&l, &console.Console{In: in, Out: out, Err: out}, outlives)
		if l.Stdin != in || l.Stdout != out || l.Stderr != out || l.Echo != nil {
			t.Errorf("outlives %v: %+v", outlives, l)
		}
	}
}
