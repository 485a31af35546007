package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

var update = flag.Bool("update", false, "rewrite the wanted output in testdata/script")

func TestMain(m *testing.M) {
	testscript.Main(ownFolders{m}, map[string]func(){"gmemtop": main})
}

// ownFolders runs the tests with their own folders for sockets, output and what torch compiles. The tests
// share these: file names there contain the number of the process.
type ownFolders struct{ *testing.M }

func (f ownFolders) Run() int {
	dir, err := os.MkdirTemp("", "gm") // a socket's path has to be short
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(os.Setenv("XDG_RUNTIME_DIR", dir),
			os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state")),
			os.Setenv("TORCHINDUCTOR_CACHE_DIR", filepath.Join(dir, "inductor")))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return f.M.Run()
}

// lazyTorch is the variable under which the trainings of .ci/run start without what they never use of
// PyTorch.
const lazyTorch = "GMEMTOP_TEST_LAZY_TORCH"

// TestScripts runs command lines as users and scripts do. testdata/script has one txtar file per topic.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": cmdExits, "train": cmdTrain, "gzip": cmdGzip, "fragment": cmdFragment, "bomb": cmdBomb,
			"cut": cmdCut, "flip": cmdFlip,
			"sqlite": cmdSQLite,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "torch": // GMEMTOP_TORCH names an interpreter with torch
				return os.Getenv("GMEMTOP_TORCH") != "", nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, ".cache"))
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state"))
			env.Setenv("TORCH", os.Getenv("GMEMTOP_TORCH"))
			env.Setenv(lazyTorch, os.Getenv(lazyTorch))
			for name, path := range map[string]string{"TRAIN": "testdata/train.py",
				"LIVE":     "testdata/live.sh",
				"OVERHEAD": "../../replay/acceptance/python/overhead.py",
				"NSIGHT":   "../../traces/nsys/testdata/training.sql"} {
				path, err := filepath.Abs(path)
				if err != nil {
					return err
				}
				env.Setenv(name, path)
			}
			return nil
		},
	})
}

// cmdExits runs a command that must end with the given exit code: "exits 4 gmemtop stats cut.pickle".
func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// cmdTrain writes a memory snapshot of a made-up training run: "train OUT.json [key=value...]", see training.
func cmdTrain(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: train OUT.json [key=value...]")
	}
	run, err := newTraining(args[1:])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), run.json(), 0o666))
}

func cmdGzip(ts *testscript.TestScript, _ bool, args []string) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(ts.ReadFile(args[0])))
	ts.Check(errors.Join(err, z.Close()))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o666))
}

// cmdBomb writes a gzip file of half a megabyte that unpacks to a thousand times that, of a snapshot that
// never ends.
func cmdBomb(ts *testscript.TestScript, _ bool, args []string) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	ts.Check(err)
	_, err = z.Write([]byte(`{"segments": [], "device_traces": [[`))
	ts.Check(err)
	row := bytes.Repeat([]byte(" "), 1<<20)
	for range 1 << 9 {
		_, err = z.Write(row)
		ts.Check(err)
	}
	ts.Check(z.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o666))
}

// cmdCut keeps the first part of a file: "cut FILE 1/2 OUT".
func cmdCut(ts *testscript.TestScript, _ bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	var n, of int
	_, err := fmt.Sscanf(args[1], "%d/%d", &n, &of)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), b[:len(b)*n/of], 0o666))
}

// cmdFlip changes one bit in the middle of a file: "flip FILE 1/2 OUT".
func cmdFlip(ts *testscript.TestScript, _ bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	var n, of int
	_, err := fmt.Sscanf(args[1], "%d/%d", &n, &of)
	ts.Check(err)
	b[len(b)*n/of] ^= 4
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), b, 0o666))
}

// cmdSQLite writes a database: "sqlite STATEMENTS.sql OUT.sqlite".
func cmdSQLite(ts *testscript.TestScript, _ bool, args []string) {
	conn, err := sqlite.OpenConn(ts.MkAbs(args[1]), sqlite.OpenReadWrite|sqlite.OpenCreate)
	ts.Check(err)
	defer conn.Close()
	ts.Check(sqlitex.ExecuteScript(conn, ts.ReadFile(args[0]), nil))
}
