package estimate

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/capture/standin"
)

// interpreter finds the Python that a command starts, whose torch the stand-in has to fit: the command
// itself, or what its script names, as torchrun's and accelerate's do; a later word, as behind env or nice;
// else the one on PATH, as for a shell script. checkTorch verifies the choice afterwards.
func interpreter(argv []string) (string, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return "", err
	}
	if isPython(path) {
		return path, nil
	}
	named, err := scripted(path)
	if err != nil {
		return "", err
	}
	if named != "" {
		return exec.LookPath(named)
	}
	for _, word := range argv[1:] {
		if python, err := exec.LookPath(word); err == nil && isPython(word) {
			return python, nil
		}
		if strings.HasSuffix(word, ".py") {
			break // the rest is the script's own
		}
	}
	for _, name := range []string{"python", "python3"} {
		if python, err := exec.LookPath(name); err == nil {
			return python, nil
		}
	}
	return "", fmt.Errorf("%w: %s is not Python, and there is none on PATH: name the interpreter, as in "+
		"gmemtop estimate --allocator real -- python train.py", ErrUnsupported, argv[0])
}

func isPython(path string) bool { return strings.HasPrefix(filepath.Base(path), "python") }

// scripted returns the Python that a script's first lines name, "" for none. Where its path is too long for
// the first line, pip writes a script for the shell whose second line executes Python.
func scripted(path string) (python string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewReader(io.LimitReader(f, 4096))
	first, _ := lines.ReadString('\n')
	line, ok := strings.CutPrefix(first, "#!")
	if !ok {
		return "", nil
	}
	words := strings.Fields(line)
	if len(words) > 1 && filepath.Base(words[0]) == "env" {
		words = words[1:]
	}
	if len(words) > 0 && isPython(words[0]) {
		return words[0], nil
	}
	second, _ := lines.ReadString('\n')
	if m := executed.FindStringSubmatch(second); m != nil && isPython(m[1]+m[2]) {
		return m[1] + m[2], nil
	}
	return "", nil
}

var executed = regexp.MustCompile(`^'''exec' (?:"([^"]+)"|(\S+))`)

// checkTorch refuses a process whose torch is not the one that the stand-in was made for: it could lack what
// that one calls.
func checkTorch(lib *standin.Library, all []Process) error {
	if lib.Torch == "" { // it does not say
		return nil
	}
	for i := range all {
		if torch := all[i].Torch; torch != lib.Torch {
			return fmt.Errorf("%w: the command ran torch %s, and the Python that was found for it has torch "+
				"%s: name the interpreter, as in gmemtop estimate --allocator real -- /path/to/python "+
				"train.py", ErrUnsupported, torch, lib.Torch)
		}
	}
	return nil
}

// processFlags are how torchrun and accelerate are told how many processes to start on this machine.
var processFlags = []string{"nproc-per-node", "num-processes"}

// mostDevices is how many cards a machine has that is pretended for --world-size.
const mostDevices = 8

// devices is how many cards the machine of a command has: one for each process that a launcher starts, that
// --world-size pretends or that CUDA_VISIBLE_DEVICES names, since scripts refuse to train with fewer.
func devices(o *RealOptions) int {
	if o.Devices > 0 {
		return o.Devices
	}
	visible := 0
	for _, e := range slices.Concat(o.environment(), o.Argv) {
		if list, ok := strings.CutPrefix(e, "CUDA_VISIBLE_DEVICES="); ok {
			visible = len(strings.Split(list, ","))
		}
	}
	for i, word := range o.Argv {
		name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if strings.HasSuffix(word, ".py") {
			break // the rest is the script's own
		}
		name = strings.ReplaceAll(name, "_", "-")
		if !strings.HasPrefix(word, "--") || !slices.Contains(processFlags, name) {
			continue
		}
		if !given && i+1 < len(o.Argv) {
			value = o.Argv[i+1]
		}
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			return n
		}
	}
	return max(1, visible, min(o.Processes, mostDevices))
}
