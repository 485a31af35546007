package acceptance

import (
	"os"
	"strings"
	"testing"
)

func TestWhatStaysOfAMessage(t *testing.T) {
	r := newRedactor("jane", "gpu-node7.lab.example.org", "gpu-node7", "/home/jane", "al", "Jürgen")
	for _, c := range []struct{ message, want string }{
		{"", ""},
		{"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which " +
			"1.20 GiB is free. Process 4242 has 77.9 GiB memory in use.",
			"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of " +
				"which 1.20 GiB is free. Process <number> has 77.9 GiB memory in use."},
		{"cannot write /home/jane/project x/run.gmt: no such file",
			"cannot write <name> <path>: no such file"},
		{"open /data/secret/train.py: permission denied", "open <path>: permission denied"},
		{`File "/opt/x.py", line 12, in main`, "File <text>, line 12, in main"},
		{"unknown manager \"acme-corp secret\"; try autoswap", "unknown manager <text>; try autoswap"},
		{"a quote 'that never ends at gpu-node7", "a quote <text>"},
		{"PyTorch's allocator doesn't know", "PyTorch's allocator doesn't know"},
		{"ssh jane@gpu-node7.lab.example.org failed, ask JANE or Al",
			"ssh <name> failed, ask <name> or <name>"},
		{"Jürgen's machine", "<name> <text>"},
		{"connect to 10.0.0.17:22 or fe80::1 refused", "connect to <text> or <text> refused"},
		{"GPU-5b1c2d3e-aaaa-bbbb-cccc-0123456789ab is lost (error 700)", "<text> is lost (error 700)"},
		{"pid 31337 at 0x7f3a00001200", "pid <number> at <text>"},
		{"torch.cuda.OutOfMemoryError: cudaMalloc answered 2; use torch.cuda.empty_cache",
			"torch.cuda.OutOfMemoryError: cudaMalloc answered 2; use torch.cuda.empty_cache"},
		{"torch 2.15.0+cu132 has no `torch.compile` on libcuda.so.1",
			"torch 2.15.0+cu132 has no torch.compile on libcuda.so.1"},
		{"took 12345 ms for 1048576 bytes, 3.5 %, 97%", "took 12345 ms for 1048576 bytes, 3.5 %, 97%"},
		{"two\nlines\x1b[31m and\ta bell\x07", "two lines [<text> and a bell"},
	} {
		if got := r.redact(c.message); got != c.want {
			t.Errorf("%q:\n got %q\nwant %q", c.message, got, c.want)
		}
	}
	if got := r.redact(strings.Repeat("word ", 1000)); len(got) > longestMessage ||
		len(got) < longestMessage-10 {
		t.Errorf("a long message keeps %d bytes", len(got))
	}
}

func TestThisMachineIsNotNamed(t *testing.T) {
	r := newRedactor(namesHere()...)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{host, dir, os.Getenv("HOME")} {
		if got := r.redact("see " + secret + " and"); secret != "" &&
			strings.Contains(strings.ToLower(got), strings.ToLower(secret)) {
			t.Errorf("%q is still in %q", secret, got)
		}
	}
}

// Whatever a message says, no name and no path is left in it.
func FuzzNothingPrivateStays(f *testing.F) {
	f.Add("open ", "jane", "/x.py: gone")
	f.Add("'", "node-17", "'")
	f.Add("a\x00", "Jane Doe", "\xff b")
	f.Add("CUDA ", "al", " error 700")
	f.Add("x<", "nametext", ">y")
	f.Fuzz(func(t *testing.T, before, name, behind string) {
		r := newRedactor(name)
		got := r.redact(before + name + behind)
		if len(got) > longestMessage {
			t.Errorf("%d bytes", len(got))
		}
		rest := got
		for _, placeholder := range []string{isName, isPath, isText, isNumber, "GB/s"} {
			rest = strings.ReplaceAll(rest, placeholder, "\n")
		}
		if strings.ContainsAny(rest, `/\@"`) {
			t.Errorf("a path or a quotation is still there: %q", got)
		}
		for _, c := range rest {
			if c != '\n' && (c < ' ' || c > '~') {
				t.Errorf("%q has a character that is not plain text", got)
			}
		}
		secret := lower(spaced(name))
		words := strings.FieldsFunc(lower(rest), func(c rune) bool {
			return (c < 'a' || c > 'z') &&
				(c < '0' || c > '9')
		})
		switch {
		case secret == "" || strings.Trim(secret, opening+closing+quotation+"%") == "":
		case len(secret) >= shortName && strings.Contains(lower(rest), secret):
			t.Errorf("%q is still in %q", name, got)
		case len(secret) < shortName && strings.Contains("|"+strings.Join(words, "|")+"|", "|"+secret+"|"):
			t.Errorf("%q occurs in %q", name, got)
		}
	})
}
