package sweep

import (
	"os"
	"path/filepath"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
)

// Output is where the rows of a sweep go, as flags say it.
type Output struct {
	// File is the Parquet file.
	File string
	// Shard is the part of the sweep to plan, such as 3/64, "" for all of it. Shards write journals to the
	// folder Parts, which are merged later.
	Shard, Parts string
}

// Journal returns the path of the journal of what is asked for: beside the file, or in the folder of the
// parts, which it makes. It sets the shard of o. The error is a mistake, or says why there is no folder.
func (x *Output) Journal(o *Options) (string, error) {
	if x.Shard == "" {
		switch {
		case x.Parts != "":
			return "", exit.Mistakef("--parts is for --shard: without it, name a file with -o")
		case x.File == "":
			return "", errNoFile
		}
		return x.File + ".part", nil
	}
	if err := o.setShard(x.Shard); err != nil {
		return "", err
	}
	switch {
	case x.File != "":
		return "", exit.Mistakef("a shard writes to the folder of --parts; -o is for --merge")
	case x.Parts == "":
		return "", exit.Mistakef("name the folder for the parts: --parts parts")
	}
	if err := os.MkdirAll(x.Parts, 0o777); err != nil {
		return "", err
	}
	return filepath.Join(x.Parts, journalName(o.Shard, o.Shards)), nil
}

// CheckMerge refuses an output that merged parts cannot be written to. The error is a mistake.
func (x *Output) CheckMerge() error {
	switch {
	case x.File == "":
		return errNoFile
	case x.Shard != "" || x.Parts != "":
		return exit.Mistakef("--merge joins what shards have written: leave out --shard and --parts")
	}
	return nil
}

// errNoFile is the error for a sweep whose rows have nowhere to go.
var errNoFile = exit.Mistakef("name the file for the rows: -o sweep.parquet")
