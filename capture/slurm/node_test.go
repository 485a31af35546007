package slurm

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/capture/procs"
)

// Of a node's processes only the ranks of one job are attached to.
func TestTheRanksOfASlurmJob(t *testing.T) {
	type env = map[string]string
	environ := map[int]env{
		10: {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"},              // torchrun
		11: {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "RANK": "0"}, // its ranks
		12: {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "RANK": "1"},
		13: {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "RANK": "1"}, // loads data for the second
		20: {"SLURM_JOB_ID": "7", "SLURM_PROCID": "1"},              // a script that srun started
		21: {"SLURM_JOB_ID": "7", "SLURM_PROCID": "1"},              // loads data for it
		30: {"SLURM_JOB_ID": "8", "SLURM_PROCID": "0"},              // another job
		40: nil,                                                     // another user
	}
	parents := map[int]int{10: 1, 11: 10, 12: 10, 13: 12, 20: 1, 21: 20, 30: 1, 40: 1}
	var list []procs.Process
	for pid := range 50 {
		if parent, ok := parents[pid]; ok {
			list = append(list, procs.Process{PID: pid, Parent: parent, Torch: true})
		}
	}
	var got []int
	for _, p := range ranksOf(list, "7", func(pid int) map[string]string { return environ[pid] }) {
		got = append(got, p.PID)
	}
	if want := []int{11, 12, 20}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
