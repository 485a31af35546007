package gmemtop_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A test that sleeps hopes that something has happened by then. So a sleep in a test, or in a program that
// tests run, is the pause between two looks at a condition, or a comment on its line, or right above it, says
// why it is there. In a bubble of synctest time is simulated, and a sleep waits for exactly what it says.
func TestEverySleepOfATestHasItsReason(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		var bare []int
		var n int
		switch {
		case strings.HasSuffix(path, "_test.go"):
			bare, n = sleepsOfGo(t, path, nil)
		case strings.HasSuffix(path, ".py") && testsRun.MatchString(path):
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			bare, n = sleepsOfPython(string(source))
		}
		seen += n
		for _, line := range bare {
			t.Errorf("%s:%d sleeps without a condition and without a comment that says why", path, line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no sleep was found")
	}
}

// testsRun matches Python that only tests run.
var testsRun = regexp.MustCompile(`(^|/)(testdata|tests|torchtest)/`)

// sleepsOfGo returns the lines of a file's sleeps without a reason, and how many sleeps there are. source is
// its text, nil to read it.
func sleepsOfGo(t *testing.T, path string, source any) (bare []int, n int) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	commented := map[int]bool{}
	for _, c := range f.Comments {
		commented[files.Position(c.End()).Line] = true
	}
	var around []ast.Node
	ast.Inspect(f, func(node ast.Node) bool {
		if node == nil {
			around = around[:len(around)-1]
			return true
		}
		around = append(around, node)
		if call, ok := node.(*ast.CallExpr); ok && calls(call, "time", "Sleep") {
			n++
			line := files.Position(call.Pos()).Line
			if !commented[line] && !commented[line-1] && !excused(around) {
				bare = append(bare, line)
			}
		}
		return true
	})
	return bare, n
}

// calls reports whether a call is of a function of a package.
func calls(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg && sel.Sel.Name == name
}

// excused reports whether the last of nested nodes is in a loop that a condition ends, or in a bubble.
func excused(around []ast.Node) bool {
	for i := len(around) - 1; i >= 0; i-- {
		switch x := around[i].(type) {
		case *ast.ForStmt:
			return x.Cond != nil || leaves(x.Body)
		case *ast.RangeStmt:
			return leaves(x.Body)
		case *ast.CallExpr:
			if calls(x, "synctest", "Test") {
				return true
			}
		}
	}
	return false
}

// leaves reports whether a loop's body may end the loop.
func leaves(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			found = true
		case *ast.BranchStmt:
			found = found || x.Tok == token.BREAK
		}
		return !found
	})
	return found
}

var pythonSleep = regexp.MustCompile(`^(\s*)(?:.*\W)?time\.sleep\(`)

// sleepsOfPython returns the lines of a source's sleeps without a reason, and how many sleeps there are.
func sleepsOfPython(source string) (bare []int, n int) {
	lines := strings.Split(source, "\n")
	for i, line := range lines {
		if !pythonSleep.MatchString(line) {
			continue
		}
		n++
		above := i > 0 && strings.HasPrefix(strings.TrimSpace(lines[i-1]), "#")
		if !above && !strings.Contains(line, "# ") && !pythonLoopEnds(lines, i) {
			bare = append(bare, i+1)
		}
	}
	return bare, n
}

// pythonLoopEnds reports whether the innermost loop around a line has a condition, or a way out.
func pythonLoopEnds(lines []string, at int) bool {
	depth := indent(lines[at])
	for i := at - 1; i >= 0; i-- {
		text := strings.TrimSpace(lines[i])
		if text == "" || indent(lines[i]) >= depth {
			continue
		}
		depth = indent(lines[i])
		loops := strings.HasPrefix(text, "while ") || strings.HasPrefix(text, "for ")
		switch {
		case strings.HasPrefix(text, "def "):
			return false
		case !loops:
			continue
		case strings.HasPrefix(text, "while ") && !strings.HasPrefix(text, "while True"):
			return true
		}
		for _, line := range lines[i+1:] {
			switch text := strings.TrimSpace(line); {
			case text != "" && indent(line) <= depth:
				return false
			case text == "break" || strings.HasPrefix(text, "return"):
				return true
			}
		}
		return false
	}
	return false
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

func TestWhichSleepsHaveAReason(t *testing.T) {
	for body, want := range map[string]bool{
		"time.Sleep(s)":                                          false,
		"time.Sleep(s) // it trains in between":                  true,
		"// it trains in between\n time.Sleep(s)":                true,
		"for !done() { time.Sleep(s) }":                          true,
		"for ; ; time.Sleep(s) { if done() { return } }":         true,
		"for { if done() { break }; time.Sleep(s) }":             true,
		"for { time.Sleep(s) }":                                  false,
		"for range 9 { time.Sleep(s) }":                          false,
		"for range 9 { func() { return }(); time.Sleep(s) }":     false,
		"synctest.Test(t, func(t *testing.T) { time.Sleep(s) })": true,
		"go func() { time.Sleep(s) }()":                          false,
		"for !done() { }\n time.Sleep(s)":                        false,
	} {
		bare, n := sleepsOfGo(t, "x.go", "package x\nfunc f() {\n "+body+"\n}\n")
		if n != 1 || (len(bare) == 0) != want {
			t.Errorf("%s: %d sleeps, without a reason in lines %v", strconv.Quote(body), n, bare)
		}
	}
	for source, want := range map[string]bool{
		"time.sleep(1)":                                                       false,
		"time.sleep(1)  # the pace of a step":                                 true,
		"while not done():\n    time.sleep(.1)":                               true,
		"# the pace of a step\ntime.sleep(1)":                                 true,
		"for i in x:\n    time.sleep(.1)":                                     false,
		"while True:\n    time.sleep(.1)":                                     false,
		"while True:\n    if x:\n        break\n    time.sleep(.1)":           true,
		"while not x:\n    if y:\n        z()\n    time.sleep(.1)":            true,
		"for i in x:\n    time.sleep(.1)\nfor i in y:\n    break":             false,
		"while True:\n    def f():\n        time.sleep(.1)\n    if x: return": false,
		"call(lambda: time.sleep(1))":                                         false,
	} {
		bare, n := sleepsOfPython(source)
		if n != 1 || (len(bare) == 0) != want {
			t.Errorf("%s: %d sleeps, without a reason in lines %v", strconv.Quote(source), n, bare)
		}
	}
}
