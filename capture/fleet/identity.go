package fleet

import (
	"fmt"
	"os"
	"strconv"
)

// Identity is which run and which machine a process belongs to, as the environment says.
type Identity struct {
	// Run is "" if the environment names none.
	Run string
	// Attempt counts from 0 how often the scheduler has started the run again.
	Attempt int
	// Node is the machine.
	Node string
}

// NodeName is what this process is called as a node: two commands on one machine are two nodes.
func (id Identity) NodeName() string { return fmt.Sprintf("%s:%d", id.Node, os.Getpid()) }

// Identify reads an identity from the environment.
func Identify(env func(name string) string) Identity {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	id := Identity{Node: host}
	first := func(names ...string) string {
		for _, n := range names {
			if v := env(n); v != "" {
				return v
			}
		}
		return ""
	}
	switch {
	case env("SLURM_JOB_ID") != "":
		id.Run = env("SLURM_JOB_ID")
		// The tasks of an array have job numbers that nobody types.
		if array, task := env("SLURM_ARRAY_JOB_ID"), env("SLURM_ARRAY_TASK_ID"); array != "" && task != "" {
			id.Run = array + "_" + task
		}
		id.Node = first("SLURMD_NODENAME", "HOSTNAME")
		if id.Node == "" {
			id.Node = host
		}
	case env("KUBERNETES_SERVICE_HOST") != "":
		// A pod does not know its job's number unless the manifest passes it on.
		id.Run = first("GMEMTOP_RUN", "PET_RDZV_ID", "TORCHELASTIC_RUN_ID")
	default:
		id.Run = first("GMEMTOP_RUN", "TORCHELASTIC_RUN_ID", "PET_RDZV_ID", "PMIX_NAMESPACE", "PMI_JOBID")
		if id.Run == "none" { // torchrun's default, which does not tell runs apart
			id.Run = ""
		}
	}
	for _, n := range []string{"SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"} {
		if k, err := strconv.Atoi(env(n)); err == nil && k > 0 {
			id.Attempt = k
			break
		}
	}
	return id
}
