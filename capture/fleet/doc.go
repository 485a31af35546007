// Package fleet watches a training that runs on several machines.
//
// A [Node] runs on each machine, in the gmemtop that started the ranks there. It reads what that gmemtop
// keeps of them anyway and puts it in a ring, from which it goes to the hub of the run. A [Watch] reads the
// hub and makes an ordinary job of it, with a process for each rank, so everything that shows or records a
// job on one machine shows and records this one too.
//
// Nothing here is between a rank and its training: a hub that is slow, gone or full costs a training nothing.
// What the ring could not hold is counted, and the viewer says so.
package fleet
