package acceptance

import (
	"errors"
	"os"
	"testing"
)

func TestATrainingRanOutIfPyTorchSaysSoInItsLog(t *testing.T) {
	x := &trial{checkup: &checkup{Options: Options{Folder: t.TempDir()}}, check: Check{Name: "batch"}}
	failed := errors.New("exit status 1")
	for text, want := range map[string]bool{
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total ": true,
		"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capac": true,
		"FileNotFoundError: no such file: out of memory.py":                                          false,
	} {
		if err := os.WriteFile(x.path(".log"), []byte("Traceback:\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := x.ranOut(failed, 0); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
		if x.ranOut(nil, 0) || x.ranOut(errNoTime, 0) || x.ranOut(failed, 1000) {
			t.Errorf("%q: ran out without an error, for lack of time or before its log", text)
		}
	}
}
