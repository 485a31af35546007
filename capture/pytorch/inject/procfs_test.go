package inject

import (
	"os"
	"strings"
	"testing"
)

func TestMapsAreParsed(t *testing.T) {
	const text = "00400000-00401000 r-xp 00000000 fe:00 12      /usr/bin/a b (deleted)\n" +
		"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n" +
		"7fff00000000-7fff00001000 r-xp 00000000 00:00 0      [vdso]\n"
	got, err := parseMaps(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []mapping{
		{0x400000, 0x401000, 0, "r-xp", "fe:00", 12, "/usr/bin/a b"},
		{0x7f0000000000, 0x7f0000001000, 0, "rw-p", "00:00", 0, ""},
		{0x7fff00000000, 0x7fff00001000, 0, "r-xp", "00:00", 0, "[vdso]"},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, not %+v", got[i], want[i])
		}
	}
	for _, bad := range []string{"x", "1-2", "2-1 r-xp 0 0:0 0", "1-g r-xp 0 0:0 0 /",
		strings.Repeat("a", 1<<17)} {
		if m, err := parseMaps(strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q gives %+v", bad, m)
		}
	}
}

func TestAFileMappedReadOnlyIsNotAModule(t *testing.T) {
	maps, err := parseMaps(strings.NewReader(
		"1000-2000 r--p 00000000 fe:00 1 /libpython3.11.so\n" + // mapped as data
			"3000-4000 r--p 00000000 fe:00 1 /libpython3.11.so\n" +
			"4000-5000 r-xp 00001000 fe:00 1 /libpython3.11.so\n" +
			"5000-6000 rw-p 00002000 fe:00 1 /libpython3.11.so\n" +
			"6000-7000 rw-p 00000000 00:00 0\n" +
			"8000-9000 r--p 00000000 fe:00 2 /data\n"))
	if err != nil {
		t.Fatal(err)
	}
	mods := modules(maps)
	if len(mods) != 1 || mods[0].base != 0x3000 || mods[0].end != 0x6000 || !mods[0].contains(0x4fff) ||
		mods[0].contains(0x5000) {
		t.Errorf("%+v", mods)
	}
}

func TestOurOwnProcessIsParsed(t *testing.T) {
	for _, name := range []string{"status", "maps"} {
		b, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			t.Skip("needs /proc: ", err)
		}
		switch name {
		case "status":
			if s := parseStatus(string(b)); s.tgid != os.Getpid() || s.ppid != os.Getppid() ||
				s.uid[0] != os.Getuid() || !s.vmSize {
				t.Errorf("%+v", s)
			}
		case "maps":
			if m, err := parseMaps(strings.NewReader(string(b))); err != nil || len(m) < 3 {
				t.Errorf("%v %v", m, err)
			}
		}
	}
}

func FuzzProcfs(f *testing.F) {
	f.Add("00400000-00401000 r-xp 00000000 fe:00 12 /usr/bin/a\n")
	f.Add("Uid:\t1\t2\t3\t4\t5\nCapEff:\tffffffffffffffff1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if maps, err := parseMaps(strings.NewReader(text)); err == nil {
			for _, m := range modules(maps) {
				if len(m.text) == 0 {
					t.Errorf("%+v", m)
				}
			}
		}
		parseStatus(text)
	})
}
