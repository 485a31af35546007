// Package pytorch watches a PyTorch program from the inside: an agent in Python lives in the training
// process, reports every step to this one over a Unix socket, and describes steps op by op when asked.
//
// # How the agent gets in
//
// [Start] starts a command with a folder of ours first on PYTHONPATH. The sitecustomize there runs the one
// that would have run, and wakes the agent once torch is imported, in the command and in every Python that it
// starts: the ranks of torchrun, spawned workers. [Attach] runs the agent's source in a process that is
// already training (see package inject). [Connect] finds an agent whose viewer has gone. In every case the
// agent connects to a socket on which this process listens, and retries each second, so that many ranks reach
// one viewer, and a viewer that died can come back.
//
// # What the agent may do
//
// Training comes first: agent/agent.py opens with the rules that ensure it, and the tests of this package
// train real networks with and without it and compare every bit of what they learn.
//
// docs/wire.md describes the protocol between agent and viewer. Each treats the other's messages as hostile
// input.
package pytorch

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/capture/pytorch/agent"
	"github.com/gmemtop/gmemtop/capture/say"
)

// protocolVersion is the version of the protocol and of the agent.
const protocolVersion = 2

//go:embed sitecustomize.py
var siteSource string

//go:embed begin.py
var beginSource string

// Agent returns the agent's source: one file for Python 3.8 and newer that needs torch 2.2 or newer and
// nothing else.
func Agent() string { return agent.Bundle("arrive") }

// CarrySource returns the part of the agent that carries out plans, for a program without a viewer: a
// separate file, which imports torch and includes its sentences.
func CarrySource() string {
	source := agent.WithSentences(agent.Bundle("alone"), say.AgentSentences())
	return strings.Replace(source, "\n\n", "\n\nimport torch\n\n", 1)
}

// bootstrap returns the source that brings the agent into a running process and connects it to the socket at
// path.
func bootstrap(path string) string {
	// JSON strings of these are Python strings.
	source, _ := json.Marshal(Agent())
	quoted, _ := json.Marshal(path)
	return "source = " + string(source) + "\npath = " + string(quoted) + "\n" + beginSource
}

// Errors that callers distinguish. All are wrapped with a sentence for the user.
var (
	// ErrVersion means that the agent in the process is of another version than this program.
	ErrVersion = errors.New("the agent's version differs")
	// errReused means that the intended process has gone and another has its number.
	errReused = errors.New("the process number was used again")
	// ErrWatched means that another viewer watches the process.
	ErrWatched = errors.New("watched already")
	// errNoAgent means that the process has no agent.
	errNoAgent = errors.New("no agent")
	// errRefused means that the agent refused to start.
	errRefused = errors.New("refused")
	// errLives means that an agent refused to start beside another.
	errLives = fmt.Errorf("%w", errRefused)
	// errAttaching means that the viewer watching the process has only just started.
	errAttaching = fmt.Errorf("%w", ErrWatched)
	// ErrLost means that the connection ended although the process goes on.
	ErrLost = errors.New("the connection to the agent was lost")
	// errProtocol means that something other than an agent's messages came over the socket.
	errProtocol = errors.New("not an agent's frames")
)

// otherVersion is the error for an agent of another version.
func otherVersion(pid, version int) error {
	return fmt.Errorf("process %d: %w: it speaks version %d and this program %d; use the gmemtop that "+
		"started it, or restart the job",
		pid, ErrVersion, version, protocolVersion)
}
