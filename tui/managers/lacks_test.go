package managers_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func TestAKeyThatDoesNothingHereSaysWhy(t *testing.T) {
	_, v := show(t, &plannertest.Planner{})
	if why := v.Lacks(viewtest.Key("T")); !strings.Contains(why, "gmemtop attach PID") {
		t.Errorf("T without a training: %q", why)
	}
	if why := v.Lacks(viewtest.Key("x")); !strings.HasSuffix(why, ": C") {
		t.Errorf("x without a target: %q", why)
	}
	if why := v.Lacks(viewtest.Key("space")); why != "" {
		t.Errorf("a key that does something: %q", why)
	}
	r := watch(t)
	r.press("up") // caching
	if why := r.v.Lacks(viewtest.Key("T")); !strings.HasPrefix(why, "caching makes no plan") {
		t.Errorf("T on a row without a plan: %q", why)
	}
}
