package help

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/traces/load"
)

// Topics returns commands that only explain; cobra lists them below the others.
func Topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "managers", Short: "The memory managers, by family", Long: managersTopic()},
		{Use: "hardware", Short: "The GPUs and networks that have names", Long: hardwareTopic()},
		{Use: "formats", Short: "The files that gmemtop reads", Long: formatsTopic()},
		{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesTopic},
	}
}

const exitCodesTopic = `Every command exits with one of these; run exits as its own command does:

  0    done
  1    failure, such as a file that is not there
  2    mistake in the command line
  3    found what was asked about: an out-of-memory, a condition of --fail-if, nothing that fits
  4    damaged input
  5    not supported here
  130  interrupted`

// formatsTopic lists what is read.
func formatsTopic() string {
	return "gmemtop recognises files by content, plain or in gzip, zstd or zip:\n\n  " +
		strings.Join(load.Formats(), "\n  ") +
		"\n\nFiles in a folder are opened together, as the ranks of one run."
}

// hardwareTopic lists the GPUs and networks that have names.
func hardwareTopic() string {
	return "--hardware takes a name, the beginning of one (h100), or the JSON file of a GPU that\n" +
		"was measured. Words such as NVIDIA and RTX may be left out (4090):\n\n  " +
		strings.Join(hardwareNames(), "\n  ") +
		"\n\n--network takes:\n\n  " + strings.Join(networkNames(), "\n  ")
}

// managersTopic lists the managers, each with what it does and where its method comes from.
func managersTopic() string {
	var b strings.Builder
	b.WriteString("--managers takes names separated by commas, the beginning of names with a * (vdnn-*), " +
		"or\nall.\n")
	family := ""
	for _, m := range managers.All() {
		i := m.Info()
		if f := i.Family.String(); f != family {
			family = f
			fmt.Fprintf(&b, "\n  %s\n", f)
		}
		fmt.Fprintf(&b, "    %-17s %s\n", i.Name, i.Summary)
	}
	return b.String()
}

func networkNames() []string {
	var names []string
	for _, n := range networks.All() {
		names = append(names, n.Name)
	}
	return names
}

func hardwareNames() []string {
	var names []string
	for _, h := range hardware.Presets() {
		names = append(names, h.Name)
	}
	return names
}
