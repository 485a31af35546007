package reach

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/slurm"
)

// Nothing in the name of a place becomes an option or a command.
func TestThePlaceOfAHub(t *testing.T) {
	for place, want := range map[string]string{
		"ssh://a@login:22/r1":  `ssh -p 22 -l a -T -- login '/opt/it'\''s/gmemtop' 'relay' 'r1'`,
		"ssh://login/$(id);x":  `ssh -T -- login '/opt/it'\''s/gmemtop' 'relay' '$(id);x'`,
		"ssh://login/slurm:42": `ssh -T -- login '/opt/it'\''s/gmemtop' 'relay' 'slurm:42'`,
		"slurm:42_7": "srun --jobid=42_7 --nodes=1 --ntasks=1 --quiet /opt/it's/gmemtop relay " +
			"slurm:42_7",
		"k8s://ml/my.train": "kubectl exec -i -n ml job/my.train -- /opt/it's/gmemtop relay",
	} {
		w, err := wayTo(place, "/opt/it's/gmemtop", "viewer")
		if got := strings.Join(w.first, " "); err != nil || got != want {
			t.Errorf("%s: %s, %v", place, got, err)
		}
	}
	for _, place := range []string{"ssh://-oProxyCommand=x/r", "ssh://login", "ssh:///r", "ssh://login/-r",
		"ssh://-l@login/r", "ssh://a:secret@login/r", "slurm:", "slurm:-1", "slurm:1;x",
		"ssh://login/slurm:x",
		"k8s://ml", "k8s:///x", "k8s://ml/-x", "k8s://ml/a/b/c", "k8s://-n/x", "k8s://ml/x?y"} {
		w, err := wayTo(place, "/opt/it's/gmemtop", "viewer")
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s is accepted, or its secret is told: %q %v", place, w.first, err)
		}
	}
}

// FuzzPlace: any place is refused, or what the user typed in it stays one argument that is not an option.
func FuzzPlace(f *testing.F) {
	for _, s := range []string{"ssh://a@b:1/c", "ssh://b/slurm:1", "slurm:1_2", "k8s://a/b", "k8s://a/pod/b",
		"ssh://-o/x", "ssh://a/'$(x)", "k8s://a/--x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, place string) {
		w, err := wayTo(place, "gmemtop", bus.Viewer)
		if err != nil {
			return
		}
		known := []string{"-p", "-l", "-T", "--", "-i", "-n", "--nodes=1", "--ntasks=1", "--quiet"}
		for i, word := range w.first {
			if strings.HasPrefix(word, "-") && !slices.Contains(known, word) &&
				!(w.first[0] == "srun" && slurm.IsJob(strings.TrimPrefix(word, "--jobid="))) {
				t.Errorf("%q: %q is an option", place, word)
			}
			if w.first[0] != "ssh" || i < len(w.first)-1 {
				continue
			}
			// The shell at the far end reads this one. It is in single quotes but for what ends them.
			rest := strings.ReplaceAll(word, `'\''`, "")
			if n := strings.Count(rest, "'"); n != 6 {
				t.Errorf("%q: the shell reads %s", place, word)
			}
		}
	})
}
