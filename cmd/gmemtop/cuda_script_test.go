//go:build cuda && linux && cgo

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// TestOnADevice runs the command line on the stand-in GPU; the program finds its driver where the real one
// would be.
func TestOnADevice(t *testing.T) {
	lib := standintest.Driver(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/cuda",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool,
			args []string){"exits": cmdExits, "chain": cmdChain},
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, ".cache"))
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state"))
			env.Setenv("STANDIN", lib.Dir())
			m := standin.Machine{Model: "plain", Memory: "1GiB", Driver: 12040, Context: "0", Granule: "512",
				Order: standin.Late,
				Polls: -1, Clock: "virtual", RefusePageable: true,
				Board: filepath.Join(env.WorkDir, ".board")}
			for name, value := range m.Settings() {
				env.Setenv(name, value)
			}
			return nil
		},
	})
}

// cmdChain writes a described step of layers that each keep one activation for backward: "chain OUT.json
// LAYERS BYTES NANOSECONDS", with the size of each buffer and the time of each op.
func cmdChain(ts *testscript.TestScript, _ bool, args []string) {
	var layers, size, length int
	if len(args) != 4 {
		ts.Fatalf("usage: chain OUT.json LAYERS BYTES NANOSECONDS")
	}
	_, err := fmt.Sscan(strings.Join(args[1:], " "), &layers, &size, &length)
	ts.Check(err)
	var b strings.Builder
	now, ids := 0, 0
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	alloc := func(category string) int {
		line(`{"k":"alloc","id":%d,"size":%d,"t":%d,"category":%q,"on":"cuda:0"}`, ids, size, now, category)
		ids++
		return ids - 1
	}
	op := func(name, phase, reads, writes string) {
		line(`{"k":"op","t":%d,"d":%d,"name":%q,"phase":%q,"module":"","r":[%s],"w":[%s],"m":[],`+
			`"rerun":true,"stream":0}`, now, length, name, phase, reads, writes)
		now += length + 1000
	}
	weights, kept := make([]int, layers), make([]int, layers+1)
	for i := range weights {
		weights[i] = alloc("parameter")
	}
	now = 10
	kept[0] = alloc("input")
	for i := range layers {
		kept[i+1] = alloc("activation")
		op("aten::mm", "forward", fmt.Sprintf("%d,%d", weights[i], kept[i]), fmt.Sprint(kept[i+1]))
	}
	gradient := alloc("activation_gradient")
	op("aten::loss", "backward", fmt.Sprint(kept[layers]), fmt.Sprint(gradient))
	for i := layers - 1; i >= 0; i-- {
		next, own := alloc("activation_gradient"), alloc("gradient")
		op("aten::mm", "backward", fmt.Sprintf("%d,%d,%d", weights[i], kept[i], gradient),
			fmt.Sprintf("%d,%d", next, own))
		line(`{"k":"free","id":%d,"t":%d}`, kept[i+1], now)
		line(`{"k":"free","id":%d,"t":%d}`, gradient, now)
		line(`{"k":"op","t":%d,"d":%d,"name":"sgd","phase":"optimizer","module":"","r":[%d],"w":[],"m":[%d],`+
			`"rerun":false,"stream":0}`, now, length, own, weights[i])
		now += length + 1000
		line(`{"k":"free","id":%d,"t":%d}`, own, now)
		gradient = next
	}
	line(`{"k":"free","id":%d,"t":%d}`, gradient, now)
	head := fmt.Sprintf(`{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cuda:0","pid":7,`+
		`"rank":0,"world_size":1,"epoch_ns":1000,"steps":[[5,%d]]}`, now+10)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(head+"\n"+b.String()), 0o666))
}
