package usdt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheLibraryIsFoundAsTheProcessSeesIt(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "42")
	seen := "/opt/my torch/lib/libc10_cuda.so"
	inside := filepath.Join(dir, "root", seen)
	maps := `55a0-55a1 r--p 00000000 08:01 11                         /usr/bin/python3
7f00000-7f01000 r--p 00000000 08:01 12                     ` + seen + `
7f01000-7f09000 r-xp 00001000 08:01 12                     ` + seen + `
7f10000-7f20000 r-xp 00000000 08:01 13                     /usr/lib/libcudart.so.12
7f20000-7f30000 r-xp 00002000 08:01 14                     /usr/lib/libcuda.so.570.86.15 (deleted)
7f30000-7f40000 r-xp 00000000 00:00 0 
7f40000-7f50000 r-xp 00000000 00:00 0                      [vdso]
nonsense
`
	if err := errors.Join(os.MkdirAll(filepath.Dir(inside), 0o755), os.WriteFile(inside, nil, 0o644),
		os.WriteFile(filepath.Join(dir, "maps"), []byte(maps), 0o644)); err != nil {
		t.Fatal(err)
	}
	list, err := readMaps(root, 42)
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	if list[0] != (mapping{0x7f01000, 0x7f09000, 0x1000, seen}) {
		t.Errorf("%+v", list[0])
	}
	if lib, ok := findLibrary(root, 42, list, isPyTorch); !ok || lib.mapped != seen || lib.path != inside {
		t.Errorf("%+v, %v", lib, ok)
	}
	lib, ok := findLibrary(root, 42, list, isDriver)
	if want := filepath.Join(dir, "map_files", "7f20000-7f30000"); !ok ||
		lib.mapped != "/usr/lib/libcuda.so.570.86.15" || lib.path != want {
		t.Errorf("%+v, %v, want %s", lib, ok, want)
	}
	if _, err := readMaps(root, 43); !errors.Is(err, ErrNoProcess) {
		t.Error(err)
	}
	if _, err := plan(root, 42, Driver|PyTorch); err == nil || !strings.Contains(err.Error(), seen) {
		t.Errorf("an empty library: %v", err)
	}
}

func TestAProcessWithNothingMappedIsStartingOrGone(t *testing.T) {
	for state, want := range map[string]error{"R": ErrNotLoaded, "Z": ErrNoProcess,
		"S without a file": ErrNoProcess} {
		root := t.TempDir()
		dir := filepath.Join(root, "42")
		line := "42 (a) b) " + state[:1] + strings.Repeat(" 1", 24)
		err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "maps"), nil, 0o644),
			os.WriteFile(filepath.Join(dir, "stat"), []byte(line), 0o644))
		if len(state) == 1 {
			err = errors.Join(err, os.Symlink("/bin/true", filepath.Join(dir, "exe")))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan(root, 42, 0); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", state, err, want)
		}
	}
}

func TestRefusalsAreOneSentenceWithARemedy(t *testing.T) {
	for _, c := range []struct {
		name string
		host host
		is   error
		text []string
	}{
		{"root", host{release: "6.1.0-18-amd64", capabilities: 1<<41 - 1}, nil, nil},
		{"the two capabilities", host{release: "6.10.0-rc1", capabilities: capBPF | capPerfmon}, nil, nil},
		{"the two capabilities, too early", host{release: "6.9.12", capabilities: capBPF | capPerfmon},
			ErrPermission, []string{"CAP_SYS_ADMIN", "from 6.10", "sudo"}},
		{"a version that cannot be read", host{release: "?", capabilities: capSysAdmin}, nil, nil},
		{"administrator", host{release: "5.15", capabilities: capSysAdmin}, nil, nil},
		{"an old kernel", host{release: "5.4.0-150-generic", capabilities: capSysAdmin}, ErrUnsupported,
			[]string{"Linux 5.4.0-150-generic", "5.8", "gmemtop attach"}},
		{"an older kernel", host{release: "4.18.0-553.el8", capabilities: capSysAdmin}, ErrUnsupported, nil},
		{"nobody", host{release: "6.12.0", unprivileged: "2"}, ErrPermission,
			[]string{"CAP_BPF and CAP_PERFMON", "unprivileged_bpf_disabled is 2", "sudo"}},
		{"half", host{release: "6.12.0", capabilities: capBPF, unprivileged: "2"}, ErrPermission,
			[]string{"root or CAP_PERFMON;", "setcap"}},
		{"the other half", host{release: "7.0.1", capabilities: capPerfmon}, ErrPermission,
			[]string{"root or CAP_BPF;"}},
	} {
		err := c.host.check()
		if !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, text := range c.text {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: no %q in %v", c.name, text, err)
			}
		}
	}
	locked := host{lockdown: "none integrity [confidentiality]"}
	if err := locked.refused("make a table", os.ErrPermission); !errors.Is(err, ErrPermission) ||
		!strings.Contains(err.Error(), "confidentiality") {
		t.Error(err)
	}
	if err := (host{}).refused("make a table", os.ErrPermission); !errors.Is(err, ErrPermission) ||
		!strings.Contains(err.Error(), "--cap-add BPF") {
		t.Error(err)
	}
	other := errors.New("out of memory")
	if err := (host{}).refused("make a table", other); !errors.Is(err, other) ||
		errors.Is(err, ErrPermission) {
		t.Error(err)
	}
}

func TestThisHostIsReadFromItsFiles(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"sys/kernel/osrelease": "6.18.0\n",
		"sys/kernel/unprivileged_bpf_disabled": "2\n",
		"self/status":                          "Name:\tx\nCapInh:\t0\nCapEff:\t000000c000000000\n"} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	h := thisHost(root)
	if h.release != "6.18.0" || h.unprivileged != "2" || h.capabilities != capBPF|capPerfmon ||
		h.check() != nil {
		t.Errorf("%+v", h)
	}
}
