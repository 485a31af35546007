package frames

import "testing"

// A job's own files are those that compute for it: neither PyTorch's, nor what only runs them, nor gmemtop's
// code in the process.
func TestOwn(t *testing.T) {
	for file, want := range map[string]bool{
		"train.py": true, "/home/me/gmemtop/train.py": true, "gmemtop.py": true,
		"gmemtop_estimate": false, "gmemtop_agent": false, "/x/site-packages/torch/nn/init.py": false,
		"/x/lib/python3.12/threading.py": false,
	} {
		if got := Own(file); got != want {
			t.Errorf("%s: own is %v", file, got)
		}
	}
}
