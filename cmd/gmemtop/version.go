package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
)

func newVersionCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "version", GroupID: groupMachine, Args: cobra.NoArgs, Short: "Print the version of this build",
		Long: "Prints the version of this build, and the commit that it was built from.",
		RunE: func(*cobra.Command, []string) error {
			return a.answer(build.This(), func(w io.Writer) error {
				_, err := fmt.Fprintln(w, build.This())
				return err
			})
		},
	}
	c.Flags().BoolVar(&a.flags.json, "json", false, "print JSON")
	return c
}
