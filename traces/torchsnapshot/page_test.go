package torchsnapshot

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gmemtop/gmemtop/traces"
)

// pageOf returns a page that holds data, as torch.cuda._memory_viz writes it.
func pageOf(data []byte) []byte {
	data = append(bytes.Clone(data), make([]byte, 3-len(data)%3)...)
	return fmt.Appendf(nil, `
<!DOCTYPE html>
<html>
<head>
</head>
<body>
<script type="module">
import {add_local_files} from "https://cdn.jsdelivr.net/gh/pytorch/pytorch@main/torch/utils/viz/MemoryViz.js"
const local_files = [{"name": "snapshot.pickle", "base64": "%s"}]
add_local_files(local_files, 'Active Memory Timeline')
</script>
</body>
`, base64.StdEncoding.EncodeToString(data))
}

func readPage(page []byte) (*traces.Trace, error) {
	return ReadPage(context.Background(), bytes.NewReader(page), nil)
}

func aSnapshot(t testing.TB) []byte {
	return encodings(t, cases(t)["testdata/newest.txtar"])["protocol 4 tuples true shared true"]
}

// TestAPageIsItsSnapshot: the page of a snapshot has the snapshot's tables, whatever pieces it comes in.
func TestAPageIsItsSnapshot(t *testing.T) {
	for name, a := range cases(t) {
		for form, data := range encodings(t, a) {
			want, wantErr := read(data)
			page := pageOf(data)
			if !SniffPage(page[:min(len(page), 4096)]) || Sniff(page) {
				t.Errorf("%s %s: the page is not recognised", name, form)
			}
			got, err := ReadPage(context.Background(), iotest.OneByteReader(bytes.NewReader(page)), nil)
			if (err == nil) != (wantErr == nil) || (got == nil) != (want == nil) ||
				got != nil && dump(got) != dump(want) {
				t.Errorf("%s %s: %v, the snapshot itself: %v", name, form, err, wantErr)
			}
			if got != nil && (got.Source.Tool != pageTool || got.Source.Format != format) {
				t.Errorf("%s %s: the source is %+v", name, form, got.Source)
			}
		}
	}
}

// TestPyTorchsOwnPagesOpen has torch write the pages.
func TestPyTorchsOwnPagesOpen(t *testing.T) {
	python := os.Getenv("GMEMTOP_TORCH")
	if python == "" {
		t.Skip("needs GMEMTOP_TORCH: PyTorch's own memory_viz writes the pages")
	}
	data := aSnapshot(t)
	want, err := read(data)
	if err != nil {
		t.Fatal(err)
	}
	want.Source.Tool = pageTool
	dir := t.TempDir()
	pickle, page := filepath.Join(dir, "snapshot.pickle"), filepath.Join(dir, "output.html")
	if err := os.WriteFile(pickle, data, 0o600); err != nil {
		t.Fatal(err)
	}
	// run as a script, memory_viz does not import torch, which takes seconds
	const script = `import importlib.util, runpy, sys
folder, = importlib.util.find_spec("torch").submodule_search_locations
runpy.run_path(folder + "/cuda/_memory_viz.py", run_name="__main__")`
	for _, args := range [][]string{
		{"trace_plot", pickle}, {"trace_plot", "--segments", pickle}, {"segment_plot", pickle}} {
		cmd := exec.Command(python, append([]string{"-c", script}, append(args, "-o", page)...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readPage(text)
		if err != nil || !SniffPage(text) {
			t.Fatalf("%v: recognised %t, %v", args, SniffPage(text), err)
		}
		sameTables(t, want, got)
	}
}

// TestDamagedPagesAreErrorsWithAPlace says where in the page, and returns what came before.
func TestDamagedPagesAreErrorsWithAPlace(t *testing.T) {
	whole := string(pageOf(aSnapshot(t)))
	data := strings.Index(whole, "gA")
	half := data + (len(whole)-data)/2
	for name, c := range map[string]struct {
		page, want string
		trace      bool
	}{
		"no data":         {whole[:data-20], "the page holds no snapshot up to here", false},
		"data of nothing": {whole[:data] + "\"}]", "the file is empty", false},
		"not base64":      {whole[:half] + "!" + whole[half+1:], "the page's data are not base64", true},
		"cut":             {whole[:half], "the file ends in the middle", true},
		"another pickle":  {whole[:data] + "gARLAy4=\"}]", "this is not a memory snapshot", false},
		"code in it":      {whole[:data] + "gARjb3MKc3lzdGVtCi4=\"}]", "which makes Python run code", false},
		"data beyond the head": {"<html>local_files" + strings.Repeat(" ", maxPageHead) + whole[data-40:],
			"no snapshot up to here", false},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := readPage([]byte(c.page))
			var at *traces.FormatError
			if !errors.As(err, &at) || !strings.Contains(err.Error(), c.want) || (tr != nil) != c.trace {
				t.Fatalf("got %v, %v, want %q", tr != nil, err, c.want)
			}
			if at.Offset < 0 || at.Offset > int64(len(c.page)) {
				t.Errorf("%v is outside the page of %d bytes", err, len(c.page))
			}
		})
	}
	_, err := readPage([]byte(whole[:half] + "!" + whole[half+1:]))
	var at *traces.FormatError
	if !errors.As(err, &at) || at.Offset != int64(half) {
		t.Errorf("the error for the wrong character at byte %d is: %v", half, err)
	}
	broken := errors.New("the disk broke")
	if _, err := ReadPage(context.Background(), iotest.ErrReader(broken), nil); !errors.Is(err, broken) {
		t.Errorf("a reader's error became %v", err)
	}
}

// TestProgressOfAPageIsInItsBytes ends near the end of the page.
func TestProgressOfAPageIsInItsBytes(t *testing.T) {
	page := pageOf(aSnapshot(t))
	last := int64(0)
	tell := func(done int64) { last = done }
	if _, err := ReadPage(context.Background(), bytes.NewReader(page), tell); err != nil {
		t.Fatal(err)
	}
	if last > int64(len(page)) || last < int64(len(page))-120 {
		t.Errorf("of %d bytes, the last progress reported is %d", len(page), last)
	}
}

// FuzzReadPage looks for pages that panic or hang.
func FuzzReadPage(f *testing.F) {
	f.Add(pageOf(aSnapshot(f)))
	f.Add([]byte(`<html>local_files "base64": "gASV`))
	f.Fuzz(func(t *testing.T, page []byte) {
		if len(page) > 1<<16 {
			return
		}
		SniffPage(page)
		tr, err := ReadPage(context.Background(), io.LimitReader(bytes.NewReader(page), 1<<16), nil)
		if err != nil && !errors.Is(err, traces.ErrFormat) {
			t.Fatal(err)
		}
		if tr != nil {
			checkTables(t, tr)
		}
	})
}
