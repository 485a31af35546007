package main

import (
	"context"
	"errors"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/assistant"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
	"github.com/gmemtop/gmemtop/timeline/report"
)

func newMCPCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "mcp FILE|FOLDER ...", GroupID: groupReport,
		Short: "Answer a coding assistant's questions about recordings",
		Long: `Answers a coding assistant over the Model Context Protocol, on standard input and output: what
held the peak, why it ran out of memory, what a change would save, what differs between two runs.

It only reads, and only the files that you name here or that lie directly in a folder you name. Answers have
a limited size. Most assistants start the command themselves, from a setting such as this:

  {"mcpServers": {"gmemtop": {"command": "gmemtop",
                              "args": ["mcp", "/data/snapshots"]}}}`,
		Example: "  gmemtop mcp snapshot.pickle\n  gmemtop mcp before.pickle after.pickle\n" +
			"  gmemtop mcp /data/snapshots",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the recordings that may be read: gmemtop mcp FILE, or a folder")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return serveMCP(cmd.Context(), a, args) },
	}
	a.flags.reading(c)
	return c
}

func serveMCP(ctx context.Context, a *app, paths []string) error {
	files, err := assistant.NewFiles(paths)
	if err != nil {
		return err
	}
	s := assistant.NewServer(assistant.Options{Files: files, Version: build.This().Version,
		Open:   a.reader().Timeline,
		Report: report.Options{Units: a.flags.report.Units, Devices: a.flags.report.Devices}})
	err = s.Run(ctx, &mcp.IOTransport{Reader: a.In, Writer: a.Out})
	if errors.Is(err, io.EOF) { // the assistant has left
		return nil
	}
	return err
}
