package procs

import (
	"os"
	"path/filepath"
	"strings"
)

// ReadEnviron reads the environment, as "name=value", that the process which has the folder dir of the proc
// file system was started with.
func ReadEnviron(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return nil, err
	}
	return strings.Split(string(text), "\x00"), nil
}

// Variables is ReadEnviron by name, nil if it cannot be read.
func Variables(dir string) map[string]string {
	list, err := ReadEnviron(dir)
	if err != nil {
		return nil
	}
	env := map[string]string{}
	for _, entry := range list {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}
