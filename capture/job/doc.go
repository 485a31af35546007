// Package job watches a job: a process that trains already, or a command with all of its processes.
//
// Its duties:
//   - [Process] is one watched process: what is kept of it, which file that goes to, which other viewers are
//     shown it, and what it is asked for;
//   - [Watch] is the process that watching begins with. It brings the agent in, takes it out again, and finds
//     the other ranks of the training where something is to be done in all of them;
//   - [Job] is a command. It sorts what comes from all of its processes, and says which train.
//
// How a process is shown, as a table or as lines on standard error, is up to the caller, which waits
// for a newer view of a process's session, and for a newer version of the job.
package job
