// Package job watches a job: a process that trains already, or a command with all of its processes.
//
// Its duties:
//   - [Process] is one watched process: its session, its orders, its recording, other viewers, and its life;
//   - [Watch] is the process that watching begins with. It injects the agent, removes it again, and finds
//     the other ranks of the training where something is to be done in all of them;
//   - [Job] is a command. It sorts what comes from all of its processes, and says which train.
//
// The caller shows them. It waits for a newer view of a process's session, and for a newer version of the
// job.
package job
